#include "ckpt/load.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "ckpt/file_pool.h"

namespace ms::ckpt {

namespace {

// How many blocks lie between the beginning and the end of some transfer, which are sorted by offset.
std::int64_t blocks_of(const std::vector<Transfer>& transfers) {
  std::int64_t blocks = 0;
  std::int64_t counted = 0;  // up to this block
  for (const Transfer& t : transfers) {
    const std::int64_t end = t.file_offset + (t.rows - 1) * t.file_stride + t.row_bytes;
    const std::int64_t begin = std::max(counted, t.file_offset / kBlockBytes);
    counted = std::max(begin, block_count(end));
    blocks += counted - begin;
  }
  return blocks;
}

}  // namespace

LoadReport load(const std::string& checkpoint, const PieceIndex& index, const std::vector<Want>& wants,
                const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  LoadReport report;
  std::vector<Piece> pieces;
  pieces.reserve(wants.size());
  for (const Want& want : wants) {
    pieces.push_back(want.piece);
    report.bytes_wanted += want.piece.size_bytes();
  }
  const std::vector<FileEntry>& files = index.manifest().files;
  std::vector<std::vector<Transfer>> transfers(files.size());
  for (const PlannedCopy& copy : index.plan(pieces)) {
    transfers[copy.file].push_back({.file_offset = copy.file_offset,
                                    .row_bytes = copy.row_bytes,
                                    .rows = copy.rows,
                                    .file_stride = copy.file_stride,
                                    .memory_stride = copy.want_stride,
                                    .to = wants[copy.want].to + copy.want_offset});
  }
  std::vector<std::int64_t> blocks;
  blocks.reserve(files.size());
  for (const auto& of_file : transfers) blocks.push_back(blocks_of(of_file));

  const ProgressSum progress(options.progress);
  std::atomic<std::int64_t> bytes_read{0};
  for_each_file(blocks, options.threads, [&](std::size_t i, int threads) {
    const FileEntry& entry = files[i];
    const std::string path = checkpoint + "/" + entry.name;
    const BlockFile file{.path = path, .size_bytes = entry.size_bytes, .hashes = entry.hashes};
    bytes_read += read_blocks(file, transfers[i], false, threads, progress.of_file()).bytes_read;
  });
  report.bytes_read = bytes_read;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

LoadReport load(const std::string& checkpoint, const Manifest& manifest, const std::vector<Want>& wants,
                const LoadOptions& options) {
  return load(checkpoint, PieceIndex(manifest), wants, options);
}

}  // namespace ms::ckpt
