// Images with text to tokens, for `ms-data encode`: a line of JSON names images, as paths or in base64, and has a text.
// Where the text has "<image>", an image stands there, in order; otherwise all of them come first. Each is decoded once
// here, so that what a token file holds can be read. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/json_lines.h"
#include "data/text_batch.h"
#include "data/tokenizer.h"

namespace ms::data {

struct ImageOptions {
  std::int64_t patch = 16;      // pixels a side
  std::int64_t longest = 224;   // pixels of an image's longer side, at most; a multiple of `patch`
  std::string field = "image";  // its value: a text, an array of texts, or null
  std::string directory = {};   // of relative paths; empty: the working directory
};

class ImageEncoder {
 public:
  static constexpr std::string_view kPlace = "<image>";

  // Throws Error("image.build", user).
  ImageEncoder(ImageOptions options, const Tokenizer& tokenizer);

  const ImageOptions& options() const { return options_; }

  // Appends the tokens of a line whose text is `text`, marked as target_mask.h says, and its images to the batch, and
  // sets what of `item` a worker sets. A text that is empty gives nothing. Returns what is wrong; nothing is appended
  // then.
  std::optional<JsonLineProblem> encode(std::string_view line, std::string_view text, TextBatch& batch,
                                        TextItem& item) const;

 private:
  std::optional<JsonLineProblem> read_image(const std::string& text, BatchImage& image) const;
  void append_image(BatchImage image, TextBatch& batch) const;

  ImageOptions options_;
  const Tokenizer& tokenizer_;
};

}  // namespace ms::data
