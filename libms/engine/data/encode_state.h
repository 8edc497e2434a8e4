// How far an encoding has come, PREFIX.encode.part: a later process that is given the same input goes on from there. It
// is replaced as a whole, and only after what it says of the other parts is durable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/handle.h"
#include "data/text_batch.h"
#include "data/token_writer.h"

namespace ms::data {

struct EncodeReport {
  std::int64_t num_files = 0;         // that gave documents
  std::int64_t num_binary_files = 0;  // skipped: a NUL byte, or the format, says that it is no text; the first ones are
                                      // named in warnings
  std::int64_t num_empty_files = 0;   // skipped, because they hold no text
  std::int64_t text_bytes = 0;        // of all documents, uncompressed
  std::int64_t num_splits = 0;        // lines that ended a document, as split_on says
  std::int64_t num_empty_documents = 0;  // lines of JSON Lines whose text is null or empty
  std::int64_t num_bad_lines = 0;        // of JSON Lines, skipped; the first ones are named in warnings
  std::int64_t num_not_utf8 = 0;         // texts with bytes that became U+FFFD; the first ones are named in warnings
  std::int64_t num_with_control = 0;     // conversations; ChatEncoder::Scratch::has_control
  std::int64_t num_documents = 0, num_tokens = 0;  // written
  std::int64_t num_images = 0;                     // written; not in a state, as images are not resumed

  // Adds the counts of a file.
  EncodeReport& operator+=(const EncodeReport& file);
};

struct EncodeState {
  std::string identity = {};  // of all that decides the output
  InputPosition position = {};
  TokenWriter::Mark written = {}, file_begin = {};  // at the position; where its file began
  EncodeReport report = {}, file = {};              // of the files before that of the position; of its own one
  bool complete = false;                            // nothing is left but to give the files their names
  std::uint64_t bin_inode = 0;                      // of what was PREFIX.bin.part
};

class StateFile {
 public:
  // Error("data.output", user): the directory is not there.
  explicit StateFile(const std::string& prefix);
  // nullopt: there is none, or it is none. Error("data.output", user): it is not this user's.
  std::optional<EncodeState> read() const;
  void write(const EncodeState& state) const;
  void remove() const;

 private:
  std::string name_;
  UniqueFd directory_;
};

}  // namespace ms::data
