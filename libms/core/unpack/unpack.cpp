#include "unpack/unpack.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/handle.h"
#include "unpack/zip.h"

namespace ms::unpack {
namespace {

// The widest window of each format's own program: zstd --long=31 and xz --lzma2=dict=1536MiB. Memory is taken as the
// data asks for it.
constexpr int kMaxWindowLog = 31;
constexpr std::uint64_t kMaxXzBytes = std::uint64_t{2} << 30;

constexpr std::string_view kDamaged = "compressed data is damaged";
constexpr std::string_view kTooWide = "compressed data needs more memory for its window than there is";

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
      problem_ = kDamaged;
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
      const ::ZSTD_ErrorCode code = ::ZSTD_getErrorCode(left);
      const bool wide = code == ZSTD_error_frameParameter_windowTooLarge || code == ZSTD_error_memory_allocation;
      problem_ = wide ? kTooWide : kDamaged;
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

class Unxz final : public Unpacker {
 public:
  Unxz() {
    MS_ASSERT(::lzma_stream_decoder(&stream_, kMaxXzBytes, LZMA_CONCATENATED) == LZMA_OK, "liblzma has no decoder");
  }
  ~Unxz() override { ::lzma_end(&stream_); }
  Unxz(const Unxz&) = delete;
  Unxz& operator=(const Unxz&) = delete;

  Step unpack(std::span<const char> from, std::span<char> to) override {
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(from.data());
    stream_.avail_in = from.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(to.data());
    stream_.avail_out = to.size();
    const ::lzma_ret code = ::lzma_code(&stream_, from.empty() ? LZMA_FINISH : LZMA_RUN);
    complete_ = code == LZMA_STREAM_END;
    if (code == LZMA_MEM_ERROR || code == LZMA_MEMLIMIT_ERROR) {
      problem_ = kTooWide;
    } else if (code != LZMA_OK && code != LZMA_BUF_ERROR && !complete_) {
      problem_ = kDamaged;
    }
    return {.taken = from.size() - stream_.avail_in, .made = to.size() - stream_.avail_out};
  }
  std::string_view problem() const override { return problem_; }
  bool complete() const override { return complete_; }

 private:
  ::lzma_stream stream_ = LZMA_STREAM_INIT;
  bool complete_ = false;
  std::string_view problem_;
};

// Several streams behind one another, as pbzip2 writes them, are one text.
class Unbzip2 final : public Unpacker {
 public:
  Unbzip2() { begin(); }
  ~Unbzip2() override { ::BZ2_bzDecompressEnd(&stream_); }
  Unbzip2(const Unbzip2&) = delete;
  Unbzip2& operator=(const Unbzip2&) = delete;

  Step unpack(std::span<const char> from, std::span<char> to) override {
    if (from.empty() && between_) return {};
    if (between_) {
      ::BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    stream_.next_in = const_cast<char*>(from.data());  // bzlib's interface; it only reads
    stream_.avail_in = static_cast<unsigned>(from.size());
    stream_.next_out = to.data();
    stream_.avail_out = static_cast<unsigned>(std::min<std::size_t>(to.size(), 1 << 30));
    const unsigned room = stream_.avail_out;
    const int code = ::BZ2_bzDecompress(&stream_);
    between_ = code == BZ_STREAM_END;
    if (code != BZ_OK && !between_) problem_ = code == BZ_MEM_ERROR ? kTooWide : kDamaged;
    return {.taken = from.size() - stream_.avail_in, .made = room - stream_.avail_out};
  }
  std::string_view problem() const override { return problem_; }
  bool complete() const override { return between_; }

 private:
  void begin() {
    stream_ = {};
    MS_ASSERT(::BZ2_bzDecompressInit(&stream_, 0, 0) == BZ_OK, "libbz2 is not the one that was compiled for");
    between_ = false;
  }
  ::bz_stream stream_{};
  bool between_ = false;
  std::string_view problem_;
};

// pzstd and others write a frame of their own first, which zstd skips: its magic is 50 to 5f 2a 4d 18.
bool is_zstd(std::string_view beginning) {
  if (beginning.starts_with("\x28\xb5\x2f\xfd")) return true;
  return !beginning.empty() && (beginning[0] & 0xf0) == 0x50 && beginning.substr(1).starts_with("\x2a\x4d\x18");
}

// The level is a digit; a block, or the end of a stream without blocks, has a magic of its own.
bool is_bzip2(std::string_view beginning) {
  if (!beginning.starts_with("BZh") || beginning.size() < kPackedMagicBytes) return false;
  const std::string_view block = beginning.substr(4);
  return block.starts_with("1AY&SY") || block.starts_with("\x17\x72\x45\x38\x50\x90");
}

}  // namespace

std::unique_ptr<Unpacker> unpacker_of(std::string_view beginning) {
  if (beginning.starts_with("\x1f\x8b")) return std::make_unique<Gunzip>();
  if (is_zstd(beginning)) return std::make_unique<Unzstd>();
  if (beginning.starts_with(std::string_view("\xfd\x37zXZ\0", 6))) return std::make_unique<Unxz>();
  if (is_bzip2(beginning)) return std::make_unique<Unbzip2>();
  return nullptr;
}

std::uint32_t zip_crc(std::uint32_t crc, std::span<const std::byte> data) {
  return static_cast<std::uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

}  // namespace ms::unpack
