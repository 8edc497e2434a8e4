// Files to documents: opens one after another, tells text from what is not, finds where documents end, and hands out
// batches of them for workers. One thread. Of the input a piece of 1 MiB is in memory, and a whole document where the
// tokenizer takes no pieces, or where lines are documents.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tar_samples.h"
#include "data/text_batch.h"
#include "unpack/input_file.h"

namespace ms::data {

struct ReadOptions {
  // A line that is exactly this ends a document ("%" in fortune files). Without it, each file is one document.
  std::optional<std::string> split_on;
  // Each line of a text is a document, without what ends the line.
  bool by_line = false;
  // JSON is taken as the text that it is, braces and keys included. Otherwise a file that begins with { or [ holds JSON
  // Lines or an array of objects.
  bool json_as_text = false;
  // Where the text is in JSON. Empty: in "text". Otherwise all files are JSON.
  std::vector<std::string> fields;
  // The field for the images of a sample in a tar archive (tar_samples.h). Empty: tar archives are no text.
  std::string image_field = {};
  // The files that must be text: another one is an error. The others are skipped if they are not.
  std::vector<std::string> named = {};
  std::size_t batch_items = std::size_t{1} << 14;  // of a batch, at most
};

// Documents and lines that have to be in memory whole have no more bytes.
inline constexpr std::int64_t kMaxWholeBytes = std::int64_t{1} << 30;

class DocumentReader {
 public:
  // `whole_documents`: no document is handed out in pieces. `max_whole_bytes` bounds those, and lines.
  DocumentReader(std::span<const std::string> files, const ReadOptions& options, bool whole_documents,
                 const InputPosition& begin = {}, std::int64_t max_whole_bytes = kMaxWholeBytes);

  // Fills the batch with the next documents; false: there are no more. Errors of unpack::InputFile; "data.document",
  // user: a document or a line is too long; "data.json", user: an array of JSON is not sound; "data.input", user: a
  // file has another format, which may hold text, or is named and is not text.
  bool next(TextBatch& batch);

 private:
  enum class Mode : std::uint8_t { text, lines, json, array, tar };
  enum class Place : std::uint8_t { before, first, next, inside, behind, ended };  // in an array, of its elements

  void open_file();
  void end_file(TextItem::Kind kind, std::string why = {});
  void skip_file(std::string_view why);
  void feed(std::string_view piece);
  void feed_lines(std::string_view piece);
  void add_sample(std::string_view line);
  void feed_array(std::string_view piece);
  void step_array(char c, std::size_t at);
  [[noreturn]] void refuse_array(std::string_view why) const;
  void feed_line_part(std::string_view piece);
  void feed_line_end(std::string_view piece);
  void end_line(std::string_view line);
  void emit_or_split(std::string_view line);
  bool is_delimiter(std::string_view line) const;
  void emit(std::string_view text);
  void end_document(TextItem::Kind kind);
  void add_text(TextItem::Kind kind, std::string_view text);
  void hold(std::string& held, std::string_view text, const char* what) const;
  InputPosition position() const;

  std::span<const std::string> files_;
  const ReadOptions& options_;
  const bool whole_documents_;
  const std::int64_t max_whole_bytes_;
  InputPosition begin_;

  TextBatch* batch_ = nullptr;  // the one that next() fills
  std::optional<unpack::InputFile> input_;
  std::string_view piece_;  // of it, still to be fed
  std::int64_t file_ = 0, text_bytes_ = 0, lines_ = 0, files_bytes_ = 0;
  Mode mode_ = Mode::text;
  std::optional<TarSamples> samples_;  // of Mode::tar
  Place place_ = Place::before;
  std::size_t element_begin_ = 0, depth_ = 0;  // of the element, in line_; of brackets in it
  bool in_string_ = false, escaped_ = false;   // of the element
  std::string line_;  // the beginning of a line: one that may become the delimiter, or any where lines are documents;
                      // of an array, what follows the last element that is complete
  std::string document_;      // one that is not complete, where whole ones are wanted
  bool inside_line_ = false;  // the line that is being read cannot be the delimiter any more
};

// "corpus.jsonl:17" or "corpus.json: element 17", for messages about an item of JSON.
std::string place_of(const std::string& path, const TextItem& item);

// Size as on disk; 0 of a pipe.
std::int64_t file_size_bytes(const std::string& path);

}  // namespace ms::data
