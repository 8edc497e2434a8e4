#include "unpack/unpack.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>

#include "base/error.h"
#include "base/handle.h"

namespace ms::unpack {
namespace {

// zstd's --long=31 asks for 2 GiB: whoever unpacks has to have as much memory.
constexpr int kMaxWindowLog = 27;

class Gunzip final : public Unpacker {
 public:
  Gunzip() { MS_ASSERT(::inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK, "zlib is not the one that was compiled for"); }
  ~Gunzip() override { ::inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  Step unpack(std::span<const char> from, std::span<char> to) override {
    // A gzip member is followed by another one or by padding with zeros, which is skipped.
    if (between_ && !from.empty()) {
      if (from[0] == 0) {
        const auto* const first =
            std::ranges::find_if(from.data(), from.data() + from.size(), [](char c) { return c; });
        return {.taken = static_cast<std::size_t>(first - from.data()), .made = 0};
      }
      ::inflateReset(&stream_);
      between_ = false;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));  // zlib's interface; it only reads
    stream_.avail_in = static_cast<uInt>(from.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(to.size(), 1 << 30));
    const uInt room = stream_.avail_out;
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      between_ = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      problem_ = "compressed data is damaged";
    }
    return {.taken = from.size() - stream_.avail_in, .made = room - stream_.avail_out};
  }
  std::string_view problem() const override { return problem_; }
  bool complete() const override { return between_; }

 private:
  ::z_stream stream_{};
  bool between_ = false;
  std::string_view problem_;
};

struct ZstdTraits {
  using Type = ::ZSTD_DStream*;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type stream) noexcept { ::ZSTD_freeDStream(stream); }
};

class Unzstd final : public Unpacker {
 public:
  Unzstd() { ::ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kMaxWindowLog); }

  Step unpack(std::span<const char> from, std::span<char> to) override {
    ::ZSTD_inBuffer in{from.data(), from.size(), 0};
    ::ZSTD_outBuffer out{to.data(), to.size(), 0};
    const std::size_t left = ::ZSTD_decompressStream(stream_.get(), &out, &in);
    if (::ZSTD_isError(left) != 0) {
      const bool wide = ::ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge;
      problem_ =
          wide ? "compressed data needs a window of more than 128 MiB; compress it again without --long and --ultra"
               : "compressed data is damaged";
    }
    if (in.pos > 0 || out.pos > 0) complete_ = left == 0;  // without either it hints at a next frame
    return {.taken = in.pos, .made = out.pos};
  }
  std::string_view problem() const override { return problem_; }
  bool complete() const override { return complete_; }

 private:
  Handle<ZstdTraits> stream_{::ZSTD_createDStream()};
  bool complete_ = false;
  std::string_view problem_;
};

// pzstd and others write a frame of their own first, which zstd skips: its magic is 50 to 5f 2a 4d 18.
bool is_zstd(std::string_view beginning) {
  if (beginning.starts_with("\x28\xb5\x2f\xfd")) return true;
  return !beginning.empty() && (beginning[0] & 0xf0) == 0x50 && beginning.substr(1).starts_with("\x2a\x4d\x18");
}

}  // namespace

std::unique_ptr<Unpacker> unpacker_of(std::string_view beginning) {
  if (beginning.starts_with("\x1f\x8b")) return std::make_unique<Gunzip>();
  if (is_zstd(beginning)) return std::make_unique<Unzstd>();
  return nullptr;
}

}  // namespace ms::unpack
