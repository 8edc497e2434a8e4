#include "data/image_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "data/cached_object.h"

namespace ms::data {
namespace {

// The end of the file.
struct ImageFooter {
  std::array<char, 8> magic;
  std::int64_t images, tokens, patch;
};
constexpr std::array<char, 8> kImageMagic{'M', 'S', 'I', 'M', 'A', 'G', 'E', 1};
static_assert(std::endian::native == std::endian::little && sizeof(ImageEntry) == 24 && sizeof(ImageFooter) == 32);
static_assert(std::is_trivially_copyable_v<ImageEntry>);

std::string images_path(const std::string& prefix) { return prefix + ".images"; }

std::string local_images_path(const std::string& prefix) {
  image::require_decoders();
  if (is_object(prefix)) {
    throw user_error("data.image", fmt::format("{} has images, which are not read from object stores", prefix),
                     "copy its files to a file system");
  }
  return images_path(prefix);
}

}  // namespace

ImageFile::ImageFile(const TokenFile& file, const Note& note)
    : path_(local_images_path(file.prefix())), file_(path_, Blame::user), num_tokens_(file.num_tokens()) {
  ImageFooter footer{};
  if (file_.size_bytes() < sizeof footer) damaged("it is too short");
  const std::size_t end = file_.size_bytes() - sizeof footer;
  file_.read(end, std::as_writable_bytes(std::span(&footer, 1)));
  if (footer.magic != kImageMagic) damaged("its end is not that of a file of images");
  if (footer.tokens != num_tokens_ || footer.patch != note.patch)
    damaged(fmt::format("it is of {} tokens and patches of {} pixels, and {} has {} tokens and patches of {}",
                        footer.tokens, footer.patch, file.prefix(), num_tokens_, note.patch));
  if (footer.images < 0 || static_cast<std::uint64_t>(footer.images) > end / sizeof(ImageEntry))
    damaged(fmt::format("it cannot hold {} images", footer.images));
  if (footer.patch < 1 || footer.patch > kMaxPatch) damaged(fmt::format("patches of {} pixels", footer.patch));
  patch_ = footer.patch;
  entries_.resize(static_cast<std::size_t>(footer.images));
  file_.read(end - entries_.size() * sizeof(ImageEntry), std::as_writable_bytes(std::span(entries_)));
  check_entries();
}

void ImageFile::check_entries() const {
  std::int64_t byte = 0, token = 0;
  for (const ImageEntry& entry : entries_) {
    if (entry.begin != byte || entry.token < token || entry.rows == 0 || entry.cols == 0 ||
        entry.tokens().end > num_tokens_)
      damaged(fmt::format("the entry of image {} is wrong", &entry - entries_.data()));
    byte += entry.size_bytes;
    token = entry.tokens().end;
  }
  if (byte + static_cast<std::int64_t>(entries_.size() * sizeof(ImageEntry) + sizeof(ImageFooter)) !=
      static_cast<std::int64_t>(file_.size_bytes()))
    damaged("its images do not fill it");
}

void ImageFile::damaged(const std::string& what) const {
  throw Error("data.image", Blame::storage, fmt::format("{}: {}", path_, what), "encode the data again");
}

std::pair<std::int64_t, std::int64_t> ImageFile::within(const TokenRange& tokens) const {
  const auto first = std::ranges::partition_point(
      entries_, [&](const ImageEntry& entry) { return entry.tokens().end <= tokens.begin; });
  const auto last =
      std::ranges::partition_point(entries_, [&](const ImageEntry& entry) { return entry.token < tokens.end; });
  return {first - entries_.begin(), std::max(first, last) - entries_.begin()};
}

std::string ImageFile::bytes(std::int64_t i) const {
  const ImageEntry& entry = (*this)[i];
  std::string bytes(entry.size_bytes, '\0');
  file_.read(static_cast<std::size_t>(entry.begin), std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

image::Image ImageFile::image(std::int64_t i) const {
  image::Image image;
  if (const auto problem = image::decode(bytes(i), image)) damaged(fmt::format("image {}: {}", i, *problem));
  return image::resize(image, (*this)[i].cols * patch_, (*this)[i].rows * patch_);
}

void ImageFile::read(const TokenRange& tokens, std::span<std::int8_t> patches) const {
  const auto size = static_cast<std::size_t>(image::patch_size(patch_));
  MS_ASSERT(patches.size() == size * static_cast<std::size_t>(tokens.size()), "{} numbers for the patches of {} tokens",
            patches.size(), tokens.size());
  std::ranges::fill(patches, 0);
  const auto [first, last] = within(tokens);
  for (std::int64_t i = first; i < last; ++i) {
    const image::Image pixels = image(i);
    const std::int64_t row = (*this)[i].cols + 1;  // tokens
    const auto [begin, end] = (*this)[i].tokens();
    for (std::int64_t token = std::max(begin, tokens.begin); token < std::min(end, tokens.end); ++token) {
      const std::int64_t at = token - begin;
      if (at % row == row - 1) continue;
      image::copy_patch(pixels, patch_, at / row * (row - 1) + at % row,
                        patches.subspan(size * static_cast<std::size_t>(token - tokens.begin), size));
    }
  }
}

void ImageFile::will_need(const TokenRange& tokens) const {
  const auto [first, last] = within(tokens);
  if (first == last) return;
  const auto begin = static_cast<std::size_t>((*this)[first].begin);
  file_.will_need(begin, static_cast<std::size_t>((*this)[last - 1].begin) + (*this)[last - 1].size_bytes - begin);
}

std::optional<ImageFile> open_images(const TokenFile& file, const std::optional<Note>& note, std::int64_t patch) {
  if (!note || note->patch == 0) return std::nullopt;
  if (note->patch != patch) {
    throw user_error(
        "data.image",
        fmt::format("{} has images in patches of {} pixels a side, and {}", file.prefix(), note->patch,
                    patch == 0 ? "what reads it takes no images" : fmt::format("model.patch_size is {}", patch)),
        patch == 0 ? fmt::format("train on it with ms-train and model.patch_size = {}", note->patch)
                   : fmt::format("set model.patch_size = {}, or encode with --patch-size {}", note->patch, patch));
  }
  return std::optional<ImageFile>(std::in_place, file, *note);
}

void read_patches(const std::optional<ImageFile>& images, const TokenRange& tokens, std::span<std::int8_t> patches) {
  if (images) {
    images->read(tokens, patches);
  } else {
    std::ranges::fill(patches, 0);
  }
}

ImageWriter::ImageWriter(const std::string& prefix, std::int64_t patch) : patch_(patch), file_(images_path(prefix)) {
  file_.truncate(0);
}

void ImageWriter::append(std::string_view bytes, const image::Grid& grid, std::int64_t token) {
  entries_.push_back({.token = token,
                      .begin = file_.size_bytes(),
                      .size_bytes = static_cast<std::uint32_t>(bytes.size()),
                      .rows = static_cast<std::uint16_t>(grid.rows),
                      .cols = static_cast<std::uint16_t>(grid.cols)});
  file_.write(bytes.data(), bytes.size());
}

void ImageWriter::append(const ImageFile& from, const TokenRange& tokens, std::int64_t to) {
  const auto [first, last] = from.within(tokens);
  for (std::int64_t i = first; i < last; ++i) {
    if (from[i].token < tokens.begin || from[i].tokens().end > tokens.end) continue;
    append(from.bytes(i), {from[i].rows, from[i].cols}, to + from[i].token - tokens.begin);
  }
}

void ImageWriter::rollback(std::int64_t images) {
  if (images == size()) return;
  file_.truncate(entries_[static_cast<std::size_t>(images)].begin);
  entries_.resize(static_cast<std::size_t>(images));
}

void ImageWriter::commit(std::int64_t num_tokens) {
  file_.write(entries_.data(), entries_.size() * sizeof(ImageEntry));
  const ImageFooter footer{.magic = kImageMagic, .images = size(), .tokens = num_tokens, .patch = patch_};
  file_.write(&footer, sizeof footer);
  file_.sync();
  file_.publish();
}

}  // namespace ms::data
