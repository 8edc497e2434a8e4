#include "data/document_reader.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/json_lines.h"

namespace ms::data {
namespace {

// A batch is full with this much text, or this many items: there may be files and documents without any.
constexpr std::size_t kBatchTextBytes = std::size_t{1} << 20;

// Files that are not text, though they may have no NUL byte. Those that have a hint may hold the text that is wanted:
// they are refused, and not skipped.
struct OtherFormat {
  std::string_view begin, why, hint = "";
};
constexpr OtherFormat kOtherFormats[] = {
    {"PK\x03\x04", "it is a zip archive"},
    {"%PDF-", "it is a PDF"},
    {"\x04\x22\x4d\x18", "it is compressed with lz4", "lz4 -d FILE unpacks it"},
    {"LZIP", "it is compressed with lzip", "lzip -d FILE unpacks it"},
    {"\xff\xfe", "it is UTF-16, not UTF-8", "iconv -f UTF-16 -t UTF-8 FILE >FILE.txt converts it"},
    {"\xfe\xff", "it is UTF-16, not UTF-8", "iconv -f UTF-16 -t UTF-8 FILE >FILE.txt converts it"},
    {"PAR1", "it is a Parquet file",
     "with pyarrow from PyPI, this makes JSON Lines of it: python3 -c 'import json, sys, pyarrow.parquet as p; "
     "[print(json.dumps(r, default=str)) for b in p.ParquetFile(sys.argv[1]).iter_batches() for r in b.to_pylist()]' "
     "FILE >FILE.jsonl"},
};

constexpr std::string_view kJsonHint =
    "a file that begins with [ is an array of objects; --json-as-text takes it as text";

}  // namespace

std::string place_of(const std::string& path, const TextItem& item) {
  return fmt::format("{}{}{}", path, item.in_array ? ": element " : ":", item.number);
}

std::int64_t file_size_bytes(const std::string& path) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(path, failed);
  return failed ? 0 : static_cast<std::int64_t>(size);  // of a pipe, say: its size only moves the progress bar
}

DocumentReader::DocumentReader(std::span<const std::string> files, const ReadOptions& options, bool whole_documents,
                               const InputPosition& begin, std::int64_t max_whole_bytes)
    : files_(files),
      options_(options),
      whole_documents_(whole_documents),
      max_whole_bytes_(max_whole_bytes),
      begin_(begin),
      file_(begin.file) {
  for (std::int64_t i = 0; i < file_; ++i) files_bytes_ += file_size_bytes(files_[static_cast<std::size_t>(i)]);
}

bool DocumentReader::next(TextBatch& batch) {
  batch.text.clear();
  batch.items.clear();
  batch.tokens.clear();
  batch_ = &batch;
  // A document in whole pieces ends a batch only where it ends itself.
  while (batch.text.size() < kBatchTextBytes && batch.items.size() < options_.batch_items) {
    if (!input_) {
      if (file_ == std::ssize(files_)) break;
      open_file();
    } else if (piece_.empty()) {
      end_file(TextItem::Kind::file_end);
      continue;
    }
    if (!input_) continue;
    const bool is_text = mode_ == Mode::text || mode_ == Mode::lines;
    if (is_text && piece_.find('\0') != std::string_view::npos) {
      skip_file("it holds a NUL byte, so it is not text");
      continue;
    }
    feed(piece_);
    piece_ = input_->next();
  }
  batch.text.append(JsonLine::kPadding, '\0');
  batch.end = position();
  batch.input_bytes = files_bytes_ + (input_ ? input_->position_bytes() : 0);
  batch_ = nullptr;
  return !batch.items.empty();
}

void DocumentReader::open_file() {
  const std::string& path = files_[static_cast<std::size_t>(file_)];
  input_.emplace(path);
  piece_ = input_->next();
  text_bytes_ = lines_ = 0;
  inside_line_ = false;
  const auto* const other =
      std::ranges::find_if(kOtherFormats, [&](const OtherFormat& format) { return piece_.starts_with(format.begin); });
  const bool is_other = other != std::end(kOtherFormats);
  if (is_other && !other->hint.empty())
    throw user_error("data.input", fmt::format("{}: {}", path, other->why), std::string(other->hint));
  JsonForm form = options_.json_as_text ? JsonForm::none : json_form(piece_, path);
  const bool is_wanted = !options_.fields.empty() && piece_.find('\0') == std::string_view::npos;
  if (form == JsonForm::none && is_wanted) form = JsonForm::lines;
  mode_ = form == JsonForm::array   ? Mode::array
          : form == JsonForm::lines ? Mode::json
          : options_.by_line        ? Mode::lines
                                    : Mode::text;
  if (!options_.image_field.empty() && is_tar(piece_)) {
    const std::string& field = options_.fields.front();
    const bool is_member = options_.fields.size() == 1 && field.find('.') == std::string::npos;
    samples_.emplace(path, is_member ? field : "", options_.image_field);
    mode_ = Mode::tar;
  }
  const InputPosition begin = std::exchange(begin_, {});
  if (!begin.begun) batch_->items.push_back({.kind = TextItem::Kind::file_begin, .number = file_});
  place_ = begin.text_bytes > 0 ? Place::behind : Place::before;
  if (is_other) {
    skip_file(other->why);
  } else if (begin.text_bytes > 0) {
    input_.emplace(path);
    input_->skip(begin.text_bytes);
    piece_ = input_->next();
    text_bytes_ = begin.text_bytes;
    lines_ = begin.lines;
    inside_line_ = begin.inside_line;
  } else if (mode_ == Mode::json && piece_.starts_with(kUtf8Bom)) {
    piece_.remove_prefix(kUtf8Bom.size());
    text_bytes_ = std::ssize(kUtf8Bom);
  }
}

void DocumentReader::end_file(TextItem::Kind kind, std::string why) {
  if (kind == TextItem::Kind::file_end) {
    if (mode_ == Mode::array) {
      if (place_ != Place::ended) refuse_array("the file ends before the array does");
    } else if (mode_ == Mode::tar) {
      samples_->end([this](std::string_view line) { add_sample(line); });
    } else if (mode_ != Mode::text) {
      if (!line_.empty()) end_line(line_);
    } else {
      if (!is_delimiter(line_)) emit(line_);
      end_document(TextItem::Kind::document_end);
    }
  }
  line_.clear();
  document_.clear();
  batch_->items.push_back({.kind = kind, .number = file_, .problem = std::move(why)});
  input_.reset();
  piece_ = {};
  files_bytes_ += file_size_bytes(files_[static_cast<std::size_t>(file_)]);
  ++file_;
}

void DocumentReader::skip_file(std::string_view why) {
  const std::string& path = files_[static_cast<std::size_t>(file_)];
  if (std::ranges::find(options_.named, path) != options_.named.end())
    throw user_error("data.input", fmt::format("{}: {}", path, why),
                     "leave it out; of a directory, with --recursive, files that are not text are skipped");
  end_file(TextItem::Kind::file_skip, std::string(why));
}

InputPosition DocumentReader::position() const {
  if (!input_) return {.file = file_};
  return {.file = file_,
          .begun = true,
          .text_bytes = text_bytes_ - std::ssize(line_) - std::ssize(document_),
          .lines = lines_,
          .inside_line = inside_line_ && !whole_documents_};
}

void DocumentReader::hold(std::string& held, std::string_view text, const char* what) const {
  if (std::ssize(held) + std::ssize(text) > max_whole_bytes_) {
    const std::string& path = files_[static_cast<std::size_t>(file_)];
    throw user_error("data.document",
                     mode_ == Mode::text ? fmt::format("{}: {} has more than {}, and this tokenizer takes whole ones",
                                                       path, what, format_size(static_cast<double>(max_whole_bytes_)))
                                         : fmt::format("{}:{}: {} has more than {}", path, lines_ + 1, what,
                                                       format_size(static_cast<double>(max_whole_bytes_))),
                     "--split-on LINE ends documents at a line of your choice, --by-line at each line");
  }
  held += text;
}

void DocumentReader::feed(std::string_view piece) {
  text_bytes_ += std::ssize(piece);
  if (mode_ == Mode::array) {
    feed_array(piece);
    return;
  }
  if (mode_ == Mode::tar) {
    samples_->feed(piece, [this](std::string_view line) { add_sample(line); });
    return;
  }
  if (mode_ != Mode::text) {
    feed_lines(piece);
    return;
  }
  if (!options_.split_on) {
    emit(piece);
    return;
  }
  while (!piece.empty()) {
    const std::size_t newline = piece.find('\n');
    const std::string_view part = piece.substr(0, newline == std::string_view::npos ? newline : newline + 1);
    piece.remove_prefix(part.size());
    if (newline == std::string_view::npos) {
      feed_line_part(part);
    } else {
      feed_line_end(part);
    }
  }
}

void DocumentReader::add_sample(std::string_view line) {
  ++lines_;
  add_text(TextItem::Kind::json, line);
  batch_->items.back().in_array = true;
}

void DocumentReader::feed_lines(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t newline = piece.find('\n');
    if (newline == std::string_view::npos) {
      hold(line_, piece, "a line");
      return;
    }
    if (line_.empty()) {
      end_line(piece.substr(0, newline));
    } else {
      hold(line_, piece.substr(0, newline), "a line");
      end_line(line_);
      line_.clear();
    }
    piece.remove_prefix(newline + 1);
  }
}

// Finds where elements begin and end; a worker reads what is in them. An encoding resumes behind an element.
void DocumentReader::feed_array(std::string_view piece) {
  std::size_t held = 0;  // of the piece, in line_
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const char c = piece[i];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    if (place_ == Place::inside && depth_ == 0 && (c == ',' || c == ']')) {
      hold(line_, piece.substr(held, i - held), "an element");
      held = i;
      add_sample(std::string_view(line_).substr(element_begin_));
      line_.clear();
      place_ = Place::behind;
    }
    if (std::string_view(" \t\r\n").find(c) == std::string_view::npos) step_array(c, line_.size() + i - held);
  }
  hold(line_, piece.substr(held), "an element");
}

// Takes a character that is not space and not in a string; `at` is its place in what is held.
void DocumentReader::step_array(char c, std::size_t at) {
  switch (place_) {
    case Place::before:
      if (c == '[') place_ = Place::first;  // only a byte order mark is before it
      return;
    case Place::behind:
      if (c != ',' && c != ']') refuse_array("there is neither a comma nor the end of the array");
      place_ = c == ',' ? Place::next : Place::ended;
      return;
    case Place::ended: refuse_array("the array has ended, and the file has not");
    case Place::first:
    case Place::next:
      if (c == ']' && place_ == Place::first) {
        place_ = Place::ended;
        return;
      }
      if (c == ',' || c == ']') refuse_array("no element follows");
      place_ = Place::inside;
      element_begin_ = at;
      depth_ = 0;
      [[fallthrough]];
    case Place::inside:
      in_string_ = c == '"';
      if (c == '{' || c == '[') ++depth_;
      if ((c == '}' || c == ']') && depth_ > 0) --depth_;
  }
}

void DocumentReader::refuse_array(std::string_view why) const {
  throw user_error("data.json",
                   fmt::format("{}: behind element {}: {}", files_[static_cast<std::size_t>(file_)], lines_, why),
                   std::string(kJsonHint));
}

void DocumentReader::end_line(std::string_view line) {
  ++lines_;
  if (mode_ == Mode::json) {
    if (!trim(line).empty()) add_text(TextItem::Kind::json, line);
    return;
  }
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) return;
  add_text(TextItem::Kind::text, line);
  batch_->items.push_back({.kind = TextItem::Kind::document_end});
}

// The beginning of a line is held back while it may still become the delimiter.
void DocumentReader::feed_line_part(std::string_view piece) {
  if (inside_line_) {
    emit(piece);
    return;
  }
  line_ += piece;
  if (line_.size() > options_.split_on->size() + 1) {  // one more for a '\r'
    emit(line_);
    line_.clear();
    inside_line_ = true;
  }
}

void DocumentReader::feed_line_end(std::string_view piece) {
  if (inside_line_) {
    emit(piece);
    inside_line_ = false;
  } else if (line_.empty()) {
    emit_or_split(piece);
  } else {
    line_ += piece;
    emit_or_split(line_);
    line_.clear();
  }
}

void DocumentReader::emit_or_split(std::string_view line) {
  if (is_delimiter(line)) {
    end_document(TextItem::Kind::split);
  } else {
    emit(line);
  }
}

bool DocumentReader::is_delimiter(std::string_view line) const {
  if (!options_.split_on || line.empty()) return false;
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line == *options_.split_on;
}

void DocumentReader::emit(std::string_view text) {
  if (text.empty()) return;
  if (whole_documents_) {
    hold(document_, text, "a document");
  } else {
    add_text(TextItem::Kind::text, text);
  }
}

void DocumentReader::end_document(TextItem::Kind kind) {
  if (!document_.empty()) add_text(TextItem::Kind::text, document_);
  document_.clear();
  batch_->items.push_back({.kind = kind});
}

void DocumentReader::add_text(TextItem::Kind kind, std::string_view text) {
  const std::size_t begin = batch_->text.size();
  batch_->text += text;
  TextItem* const last = batch_->items.empty() ? nullptr : &batch_->items.back();
  const bool joins = kind == TextItem::Kind::text && last != nullptr && last->kind == kind;  // one document's pieces
  if (joins) {
    last->end = batch_->text.size();
  } else {
    batch_->items.push_back({.kind = kind, .number = lines_, .begin = begin, .end = batch_->text.size()});
  }
}

}  // namespace ms::data
