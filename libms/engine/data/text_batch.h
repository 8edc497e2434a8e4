// A piece of the input on its way from the reader of files over a worker, which makes tokens of it, to the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "image/image.h"

namespace ms::data {

// A place in the input at which it can be gone on with.
struct InputPosition {
  std::int64_t file = 0;  // its index
  bool begun = false;     // whether its beginning was told of
  std::int64_t text_bytes = 0;
  std::int64_t lines = 0;    // before it, where lines are documents; elements of a JSON array
  bool inside_line = false;  // of a document whose pieces are encoded one by one
  bool operator==(const InputPosition&) const = default;
};

struct TextItem {
  enum class Kind : std::uint8_t {
    file_begin,
    text,          // of a document, or a piece of one
    json,          // a line of JSON Lines, or an element of an array: becomes text, and is a document
    bad_json,      // `problem` and `hint`
    document_end,  // nothing, where there was no text
    split,         // the same, by a line that says so
    file_end,
    file_skip,  // the file is no text: `problem`
  };
  Kind kind;
  std::int64_t number = 0;  // of the file, or of the line or element in it, from 1
  // In the batch's text. Of JSON that a worker has read `end` is how much text it gave, `begin` the column of what is
  // wrong, from 1, or 0.
  std::size_t begin = 0, end = 0;
  std::size_t tokens_end = 0;  // in the batch's tokens
  bool in_array = false;       // of JSON: `number` is that of the element
  bool has_control = false;    // of a conversation: ChatEncoder::Scratch::has_control
  bool is_utf8 = true;         // of text; otherwise U+FFFD stands for what is not
  std::string problem = {}, hint = {};
};

// An image among the tokens of a batch.
struct BatchImage {
  std::size_t token = 0;  // its first, in the batch's tokens
  image::Grid grid;
  std::string bytes;  // JPEG or PNG
};

struct TextBatch {
  // The reader's.
  std::string text;
  std::vector<TextItem> items;
  InputPosition end;             // the place behind it
  std::int64_t input_bytes = 0;  // as on disk, up to there

  // The worker's.
  std::vector<std::int32_t> tokens;
  std::vector<BatchImage> images;
  std::exception_ptr failure;
};

}  // namespace ms::data
