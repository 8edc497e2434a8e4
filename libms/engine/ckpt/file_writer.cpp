#include "ckpt/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/handle.h"
#include "base/safe_file.h"
#include "ckpt/blocks.h"
#include "ckpt/scratch_file.h"

namespace ms::ckpt {

namespace {

// Bytes [begin, end) of the file into the image.
void copy_range(const ScratchFile& file, std::span<std::byte> image, std::int64_t begin, std::int64_t end) {
  while (begin < end) {
    const ssize_t got = ::pread(file.fd(), image.data() + begin, static_cast<std::size_t>(end - begin), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw write_error("read", file.path(), errno);
    if (got == 0) throw write_error("read", file.path(), EIO);  // its size is in HDF5's own words
    begin += got;
  }
}

// Disk space is taken before the first byte is written: a full disk is told at once, and the file lies in one piece. A
// file system that cannot do it grows the file as it is written.
void reserve(int fd, const std::string& path, std::int64_t size_bytes) {
  int result = 0;
  do { result = ::fallocate(fd, 0, 0, size_bytes); } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) throw write_error("make room for", path, errno);
}

}  // namespace

FileWriter::FileWriter(const std::vector<Piece>& pieces, std::span<std::byte> image, const std::string& scratch)
    : image_(image) {
  const ScratchFile skeleton(scratch);
  layout_ = make_skeleton(skeleton.path(), pieces);
  const std::int64_t needed = image_bytes(layout_.size_bytes);
  MS_ASSERT(static_cast<std::int64_t>(image.size()) >= needed, "an image of {} bytes for a file of {}", image.size(),
            layout_.size_bytes);

  std::vector<std::pair<std::int64_t, std::int64_t>> data;  // begin and end of every dataset
  for (const PlacedPiece& placed : layout_.pieces) {
    data.emplace_back(placed.offset, placed.offset + placed.piece.size_bytes());
  }
  std::sort(data.begin(), data.end());
  std::int64_t at = 0;
  for (const auto& [begin, end] : data) {
    copy_range(skeleton, image_, at, begin);
    at = end;
  }
  copy_range(skeleton, image_, at, layout_.size_bytes);
  std::fill(image_.begin() + layout_.size_bytes, image_.begin() + needed, std::byte{0});
}

std::span<std::byte> FileWriter::data(std::size_t i) const {
  const PlacedPiece& placed = layout_.pieces.at(i);
  return image_.subspan(static_cast<std::size_t>(placed.offset), static_cast<std::size_t>(placed.piece.size_bytes()));
}

FileEntry FileWriter::write(const Directory& directory, const std::string& name, const std::stop_token& stop,
                            WriteReport* report) const {
  const std::string path = directory.path_of(name);
  ToWrite file = open_to_write(directory.fd(), directory.at(name), O_TRUNC);
  if (!file.fd) throw write_error("create", path, file.error != 0 ? file.error : EEXIST);
  reserve(file.fd.get(), path, layout_.size_bytes);
  WriteReport written =
      write_image(path, std::move(file.fd), image_.first(static_cast<std::size_t>(image_bytes(layout_.size_bytes))),
                  layout_.size_bytes, stop);
  FileEntry entry{.name = name, .size_bytes = layout_.size_bytes, .hashes = written.hashes, .pieces = layout_.pieces};
  if (report != nullptr) *report = std::move(written);
  return entry;
}

std::string rank_file_name(int rank) { return fmt::format("rank-{:05d}.h5", rank); }

}  // namespace ms::ckpt
