// The bytes of data files: written from memory that is laid out as the file, read in blocks, and hashed either way.
// Everything moves in blocks of 16 MiB, each with its xxh64: the unit of verification, and of what a damaged file
// costs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/handle.h"

namespace ms::ckpt {

inline constexpr std::int64_t kBlockBytes = std::int64_t{16} << 20;
inline constexpr std::int64_t kPageBytes = 4096;  // alignment of memory, offsets and lengths of direct I/O
constexpr std::int64_t block_count(std::int64_t size_bytes) { return (size_bytes + kBlockBytes - 1) / kBlockBytes; }
// Returns the memory that the image of a file of this size takes: whole pages.
constexpr std::int64_t image_bytes(std::int64_t size_bytes) {
  return (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// The cost of a write, for the log and for benchmarks.
struct WriteReport {
  std::vector<std::uint64_t> hashes;  // by block
  double seconds = 0, cpu_seconds = 0;
  bool direct = false;  // past the page cache
};

// Returns Error("ckpt.write", storage) with the message of `err`. If the disk is full, its hint says how to free space.
Error write_error(std::string_view doing, const std::string& path, int err);

// Writes the first size_bytes of `image` as the file, which is open for writing and is `path` in messages, and makes
// them durable (fsync) before it returns (the directory's entry is not: commit() syncs it).
// Direct I/O where the file system has it, so that neither the page cache nor the processor pays for a checkpoint.
// `image` is page-aligned and image_bytes(size_bytes) long. Stops between blocks with Error("ckpt.stopped", bug) when
// asked to. Errors: "ckpt.write", storage, with the path and the system's words.
WriteReport write_image(const std::string& path, UniqueFd file, std::span<const std::byte> image,
                        std::int64_t size_bytes, const std::stop_token& stop);

// A run of bytes of a file, and where they go: `rows` rows of row_bytes, stride apart on either side.
struct Transfer {
  std::int64_t file_offset = 0;
  std::int64_t row_bytes = 0, rows = 1;
  std::int64_t file_stride = 0, memory_stride = 0;  // bytes from row to row; of no meaning where rows is 1
  std::byte* to = nullptr;
};

struct BlockFile {  // what a file must be
  std::string path;
  std::int64_t size_bytes = 0;
  std::span<const std::uint64_t> hashes;
};

struct ReadReport {
  std::int64_t bytes_read = 0;  // from the file system: whole blocks, each once
};

// Reads every block that a transfer touches, once, and checks it against its hash; it returns only if all were right.
// `threads` blocks are in flight at a time. Transfers lie in the file, their rows in order and apart; no transfers:
// nothing is read. `all` reads every block of the file, whether a transfer touches it or not. `progress` (bytes so far)
// may be called from several threads. Where it throws, the memory holds no telling what.
// Errors: "ckpt.damaged", storage, with path, block and offset, where size or hash differ; "ckpt.read", storage, where
// the system says no.
ReadReport read_blocks(const BlockFile& file, std::span<const Transfer> transfers, bool all, int threads,
                       const std::function<void(std::int64_t)>& progress = {});

}  // namespace ms::ckpt
