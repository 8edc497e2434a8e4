// The images of a token file, PREFIX.images: each as it was given, JPEG or PNG, and where in the token stream it lies.
// A token file with images has it beside its .bin, .idx and note (Note::patch). An image that becomes rows x cols
// patches (image/image.h) is rows x (cols + 1) tokens: the patch token for each patch, row after row, and the row token
// behind each row. These two are the last ids of the vocabulary. The loss ignores them.
//
//   the images, one after another; for each i64 its first token, i64 its byte, u32 its bytes, u16 rows, u16 cols;
//   "MSIMAGE\1", i64 images, i64 tokens of .bin, i64 pixels of a patch's side. Little-endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/note.h"
#include "data/part_file.h"
#include "data/token_file.h"
#include "image/image.h"

namespace ms::data {

inline constexpr std::int64_t kMaxPatch = 256;                          // pixels a side
inline constexpr std::int64_t kMaxImageBytes = std::int64_t{64} << 20;  // of one, as JPEG or PNG

// An image in the file.
struct ImageEntry {
  std::int64_t token = 0;  // its first
  std::int64_t begin = 0;  // byte of the file
  std::uint32_t size_bytes = 0;
  std::uint16_t rows = 0, cols = 0;  // of patches
  TokenRange tokens() const { return {token, token + std::int64_t{rows} * (cols + 1)}; }
};

class ImageFile {
 public:
  // Opens that of a token file and checks its index. Errors: as of TokenFile, with "data.image"; "image.build", user:
  // this build reads no images; "data.image", user: the token file is an object.
  ImageFile(const TokenFile& file, const Note& note);

  std::int64_t patch() const { return patch_; }  // pixels a side
  std::int64_t size() const { return std::ssize(entries_); }
  const ImageEntry& operator[](std::int64_t i) const { return entries_[static_cast<std::size_t>(i)]; }
  // The images that have tokens in the range, as indices [first, last).
  std::pair<std::int64_t, std::int64_t> within(const TokenRange& tokens) const;

  std::string bytes(std::int64_t i) const;  // as it was given
  // The image as the model sees it: of whole patches. Error("data.image", storage): it is damaged.
  image::Image image(std::int64_t i) const;
  // Writes the patches of tokens, image::patch_size() numbers for each; 0 for a token that is no patch. Any thread.
  void read(const TokenRange& tokens, std::span<std::int8_t> patches) const;
  // Asks the storage for the images of tokens, and does not wait for them.
  void will_need(const TokenRange& tokens) const;

 private:
  void check_entries() const;
  [[noreturn]] void damaged(const std::string& what) const;

  std::string path_;
  MappedFile file_;
  std::int64_t num_tokens_, patch_ = 0;
  std::vector<ImageEntry> entries_;
};

// The file of a token file with images; nullopt: it has none. Throws Error("data.image", user) where its patches are
// not of `patch` pixels a side, which are those of the model, or 0.
std::optional<ImageFile> open_images(const TokenFile& file, const std::optional<Note>& note, std::int64_t patch);

// ImageFile::read(), or zeros without images.
void read_patches(const std::optional<ImageFile>& images, const TokenRange& tokens, std::span<std::int8_t> patches);

// Writes such a file as a part, beside a TokenWriter's.
class ImageWriter {
 public:
  ImageWriter(const std::string& prefix, std::int64_t patch);
  // An image whose first token has this number.
  void append(std::string_view bytes, const image::Grid& grid, std::int64_t token);
  // Images of `from` whose tokens all lie in the range, as if the range began with token `to`.
  void append(const ImageFile& from, const TokenRange& tokens, std::int64_t to);
  std::int64_t size() const { return std::ssize(entries_); }
  void rollback(std::int64_t images);  // forgets all but the first so many
  // Makes it durable, and gives it its name, before the token file gets its own.
  void commit(std::int64_t num_tokens);

 private:
  std::int64_t patch_;
  PartFile file_;
  std::vector<ImageEntry> entries_;
};

}  // namespace ms::data
