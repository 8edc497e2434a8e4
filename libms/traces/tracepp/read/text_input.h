// The text of a file, piece by piece: as it is, or unpacked if its first bytes are those of gzip or zstd, whatever its
// name. Packed data that is cut off or damaged, or that grows beyond the limit, ends there: trouble() says so, and the
// text before counts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/handle.h"
#include "unpack/unpack.h"

namespace ms::tracepp {

// A packed file of a megabyte can hold many gigabytes.
inline constexpr std::int64_t kMaxTextBytes = std::int64_t{64} << 30;

class TextInput {
 public:
  // Throws Error("file.open" or "file.read", user if `path` is not a readable file). `max_bytes` limits the text.
  explicit TextInput(const std::string& path, std::int64_t max_bytes = kMaxTextBytes);
  // Text that was made of another file's.
  TextInput(const TextInput& file, std::string text);
  ~TextInput();
  TextInput(const TextInput&) = delete;
  TextInput& operator=(const TextInput&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size_bytes() const { return size_bytes_; }          // of the file
  std::int64_t position_bytes() const { return position_bytes_; }  // in the file
  std::int64_t modified_ns() const { return modified_ns_; }        // of the file, since 1970
  bool is_packed() const { return unpacker_ != nullptr; }

  // Returns the first bytes, fewer only if there are no more. read() still returns them.
  std::string_view peek(std::size_t bytes);
  // Fills `to` as far as there is text; returns 0 at its end.
  std::size_t read(std::span<char> to);
  // Returns why the text ended early; empty: it did not.
  const std::string& trouble() const { return trouble_; }

 private:
  std::size_t read_text(std::span<char> to);
  std::size_t read_file(std::span<char> to);

  std::string path_;
  UniqueFd fd_;
  std::int64_t size_bytes_ = 0, modified_ns_ = 0, position_bytes_ = 0, left_bytes_ = 0, unpacked_bytes_ = 0;
  std::unique_ptr<unpack::Unpacker> unpacker_;
  std::vector<char> packed_;  // [packed_at_, packed_end_) is to be unpacked
  std::size_t packed_at_ = 0, packed_end_ = 0;
  std::string ahead_;  // text that was peeked at; valid from ahead_at_ on
  std::size_t ahead_at_ = 0;
  std::string trouble_;
  bool ended_ = false;
};

}  // namespace ms::tracepp
