#include "data/encode.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/handle.h"
#include "base/log.h"
#include "data/json_lines.h"

namespace ms::data {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kChunkBytes = 1U << 20;

struct GzTraits {
  using Type = gzFile;
  static constexpr gzFile null() { return nullptr; }
  static void destroy(gzFile file) noexcept { ::gzclose_r(file); }
};

// A file, or what a gzip-compressed file holds.
class TextInput {
 public:
  explicit TextInput(const std::string& path) : path_(path) {
    errno = 0;
    file_.reset(::gzopen(path.c_str(), "rb"));
    if (!file_) {
      const int err = errno == 0 ? ENOMEM : errno;
      throw user_error("data.input", fmt::format("cannot open {}: {}", path, errno_text(err)));
    }
    ::gzbuffer(file_.get(), kChunkBytes);
    buffer_.resize(kChunkBytes);
  }

  // The next piece, empty at the end. Valid until the next call.
  std::string_view next() {
    errno = 0;
    const int n = ::gzread(file_.get(), buffer_.data(), kChunkBytes);
    int code = Z_OK;
    const char* const words = ::gzerror(file_.get(), &code);
    // zlib tells of a file that ends inside a gzip member with Z_BUF_ERROR, beside the data that it could still read.
    if (n < 0 || code != Z_OK) {
      throw Error("data.input", Blame::storage,
                  fmt::format("cannot read {}: {}", path_, code == Z_ERRNO ? errno_text(errno) : std::string(words)));
    }
    return {buffer_.data(), static_cast<std::size_t>(n)};
  }

  // Bytes of the file itself that were read.
  std::int64_t position_bytes() const { return ::gzoffset(file_.get()); }

 private:
  std::string path_;
  Handle<GzTraits> file_;
  std::vector<char> buffer_;
};

// Turns the text of one file into documents of the writer.
class DocumentSink {
 public:
  DocumentSink(const Tokenizer& tokenizer, const std::optional<std::string>& split_on, TokenWriter& writer)
      : tokenizer_(tokenizer), split_on_(split_on), writer_(writer) {}

  void feed(std::string_view text) {
    if (!split_on_) {
      emit(text);
      return;
    }
    while (!text.empty()) {
      const std::size_t newline = text.find('\n');
      const std::string_view piece = text.substr(0, newline == std::string_view::npos ? newline : newline + 1);
      text.remove_prefix(piece.size());
      if (newline == std::string_view::npos) {
        feed_line_part(piece);
      } else {
        feed_line_end(piece);
      }
    }
  }

  void finish() {
    if (!is_delimiter(line_)) emit(line_);
    line_.clear();
    end_document();
  }

  std::int64_t text_bytes() const { return text_bytes_; }
  std::int64_t num_splits() const { return num_splits_; }

 private:
  // The beginning of a line is held back while it may still become the delimiter.
  void feed_line_part(std::string_view piece) {
    if (inside_line_) {
      emit(piece);
      return;
    }
    line_ += piece;
    if (line_.size() > split_on_->size() + 1) {  // one more for a '\r'
      emit(line_);
      line_.clear();
      inside_line_ = true;
    }
  }

  void feed_line_end(std::string_view piece) {
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

  void emit_or_split(std::string_view line) {
    if (is_delimiter(line)) {
      ++num_splits_;
      end_document();
    } else {
      emit(line);
    }
  }

  bool is_delimiter(std::string_view line) const {
    if (!split_on_ || line.empty()) return false;
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line == *split_on_;
  }

  void emit(std::string_view text) {
    if (text.empty()) return;
    tokenizer_.encode(text, tokens_);
    text_bytes_ += static_cast<std::int64_t>(text.size());
    has_text_ = true;
    if (tokens_.size() >= kFlushTokens) flush();
  }

  void end_document() {
    if (!has_text_) return;
    tokens_.push_back(tokenizer_.end_of_document());
    flush();
    writer_.end_document();
    has_text_ = false;
  }

  void flush() {
    writer_.append(tokens_);
    tokens_.clear();
  }

  static constexpr std::size_t kFlushTokens = std::size_t{1} << 16;

  const Tokenizer& tokenizer_;
  const std::optional<std::string>& split_on_;
  TokenWriter& writer_;
  std::vector<std::int32_t> tokens_;
  std::string line_;          // the beginning of a line that may become the delimiter
  bool inside_line_ = false;  // the line that is being read cannot be the delimiter any more
  bool has_text_ = false;
  std::int64_t text_bytes_ = 0, num_splits_ = 0;
};

constexpr std::int64_t kNamedSkips = 3;  // files; a directory of pictures has thousands

void refuse_json_lines(std::string_view head, const std::string& path) {
  if (!looks_like_json_lines(head, path)) return;
  throw user_error("data.json",
                   fmt::format("{} holds JSON Lines, an object on each line, and would be encoded with its braces and "
                               "keys",
                               path),
                   "take the text out of it: jq -r '.text, \"<eod>\"' FILE >TEXT, and --split-on '<eod>' for TEXT; or "
                   "--json-as-text encodes the lines as they are");
}

// Files that are no text, though they may have no NUL byte.
struct OtherFormat {
  std::string_view begin, why;
};
constexpr OtherFormat kOtherFormats[] = {
    {"\x28\xb5\x2f\xfd", "it is compressed with zstd"},
    {"\xfd\x37zXZ", "it is compressed with xz"},
    {"BZh91AY&SY", "it is compressed with bzip2"},
    {"PK\x03\x04", "it is a zip archive"},
    {"%PDF-", "it is a PDF"},
    {"PAR1", "it is a Parquet file"},
};

// Why the next piece of a file says that it is no text; empty if it does not.
std::string_view why_not_text(std::string_view piece, bool is_begin) {
  for (const OtherFormat& format : kOtherFormats)
    if (is_begin && piece.starts_with(format.begin)) return format.why;
  return piece.find('\0') != std::string_view::npos ? "it holds a NUL byte, so it is not text" : "";
}

std::int64_t file_size_bytes(const std::string& path) {
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  return failed ? 0 : static_cast<std::int64_t>(size);  // of a pipe, say: its size only moves the progress bar
}

}  // namespace

std::vector<std::string> read_list(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    const int err = errno;
    if (!file) throw user_error("data.input", fmt::format("cannot open {}: {}", path, errno_text(err)));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (in.bad()) throw Error("data.input", Blame::storage, fmt::format("cannot read {}", path));
  return lines;
}

std::vector<std::string> expand_inputs(std::span<const std::string> paths, bool recursive) {
  std::vector<std::string> files;
  for (const std::string& named : paths) {
    const std::string path = named == "-" ? "/dev/stdin" : named;
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (!fs::exists(status)) {
      throw user_error("data.input",
                       fmt::format("cannot open {}: {}", path, failed ? failed.message() : errno_text(ENOENT)));
    }
    if (!fs::is_directory(status)) {
      files.push_back(path);
      continue;
    }
    if (!recursive) {
      throw user_error("data.input", fmt::format("{} is a directory", path),
                       "--recursive reads the files in it and below it");
    }
    std::vector<std::string> below;
    for (auto entry = fs::recursive_directory_iterator(path, failed);
         !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
      std::error_code vanished;
      if (entry->is_regular_file(vanished)) below.push_back(entry->path().string());
    }
    if (failed) throw Error("data.input", Blame::user, fmt::format("cannot list {}: {}", path, failed.message()));
    std::sort(below.begin(), below.end());
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

EncodeReport encode_files(std::span<const std::string> files, const Tokenizer& tokenizer, const EncodeOptions& options,
                          TokenWriter& writer) {
  EncodeReport report;
  std::int64_t total_bytes = 0;
  for (const std::string& path : files) total_bytes += file_size_bytes(path);
  std::int64_t done_bytes = 0;
  for (const std::string& path : files) {
    TextInput input(path);
    const TokenWriter::Mark before = writer.mark();
    DocumentSink sink(tokenizer, options.split_on, writer);
    std::string_view skip;  // why
    bool is_begin = true;
    for (std::string_view text = input.next(); !text.empty() && skip.empty(); text = input.next()) {
      skip = why_not_text(text, is_begin);
      if (std::exchange(is_begin, false) && skip.empty() && !options.json_as_text) refuse_json_lines(text, path);
      if (skip.empty()) sink.feed(text);
      if (options.progress) options.progress(done_bytes + input.position_bytes(), total_bytes);
    }
    if (!skip.empty()) {
      writer.rollback(before);
      ++report.num_binary_files;
      const std::string skipped = fmt::format("skipped {}: {}", path, skip);
      if (report.num_binary_files <= kNamedSkips) {
        log::warn("data", "{}", skipped);
      } else {
        log::debug("data", "{}", skipped);
      }
    } else {
      sink.finish();
      report.text_bytes += sink.text_bytes();
      report.num_splits += sink.num_splits();
      ++(writer.num_documents() > before.num_documents ? report.num_files : report.num_empty_files);
    }
    done_bytes += file_size_bytes(path);
    if (options.progress) options.progress(done_bytes, total_bytes);
  }
  if (report.num_binary_files > kNamedSkips) {
    log::warn("data", "skipped {} more files that are not text; MS_LOG=data:debug names them",
              report.num_binary_files - kNamedSkips);
  }
  return report;
}

}  // namespace ms::data
