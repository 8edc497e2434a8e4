// Writes files of other programs for tests: in a directory of their own, packed if needed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {

class ForeignFiles {
 public:
  ForeignFiles() {
    std::string pattern = ::testing::TempDir() + "foreign-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  ~ForeignFiles() { std::filesystem::remove_all(path_); }
  ForeignFiles(const ForeignFiles&) = delete;
  ForeignFiles& operator=(const ForeignFiles&) = delete;

  std::string operator/(const std::string& name) const { return path_ / name; }
  std::string path() const { return path_; }
  std::string put(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::filesystem::remove(path_ / name);  // file systems write an overwritten file out at once, which takes long
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::string gzipped(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string zstd_packed(std::string_view text) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

inline std::uint64_t problem(const RunTrace& trace, const std::string& name) {
  const auto found = trace.problems.find(name);
  return found == trace.problems.end() ? 0 : found->second;
}

// The one event of this name.
inline const Event& event_named(const RunTrace& trace, std::string_view name) {
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      if (trace.strings.text(trace.info(event).name) == name) return event;
    }
  }
  throw std::runtime_error("no event " + std::string(name));
}

}  // namespace ms::tracepp
