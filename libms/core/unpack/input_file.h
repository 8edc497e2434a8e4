// One file to read once, from its beginning to its end: as it is, or what gzip, zstd, xz or bzip2 packed in it,
// which its first bytes tell. It may be larger than memory, or a pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/handle.h"
#include "unpack/unpack.h"

namespace ms::unpack {

class InputFile {
 public:
  // Error("data.input", user): it cannot be opened.
  explicit InputFile(std::string path);

  // The next piece of text, 1 MiB but for the last one; empty at the end. Valid until the next call.
  // Error("data.input"): storage where it cannot be read, user where what is packed in it is damaged or cut off.
  std::string_view next();
  // Passes over so many bytes of text; what next() gave was the last piece before them.
  void skip(std::int64_t text_bytes);

  // Bytes of the file itself that were read.
  std::int64_t position_bytes() const { return position_bytes_; }

 private:
  std::size_t fill(std::span<char> to);
  std::size_t read_packed();
  [[noreturn]] void failed(Blame blame, std::string_view why) const;

  std::string path_;
  UniqueFd fd_;
  std::unique_ptr<Unpacker> unpacker_;
  std::vector<char> packed_, text_;
  std::size_t packed_at_ = 0, packed_end_ = 0;  // of packed_: read, and not yet text
  std::int64_t position_bytes_ = 0;
  bool ended_ = false;
};

}  // namespace ms::unpack
