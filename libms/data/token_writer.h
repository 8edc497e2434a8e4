// Writes PREFIX.bin and PREFIX.idx (the layout is in token_file.h) under temporary names, and gives them their names
// only in commit(), .bin first and .idx last: whoever sees an .idx sees a whole file. Tokens are streamed; what stays
// in memory is 4 bytes a sequence. One thread. ms-data encodes through it, and so do tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/handle.h"
#include "data/token_file.h"

namespace ms::data {

// A file that is written under a temporary name beside its own one, through a buffer of its own, and is removed by the
// destructor unless publish() gave it its name. Every failure is Error("file.write", storage).
class PendingFile {
 public:
  explicit PendingFile(std::string path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(const void* data, std::size_t size_bytes);
  // Keeps only the first `size_bytes` of what was written.
  void truncate(std::int64_t size_bytes);
  // Makes the content durable; nothing is written after it.
  void sync();
  // Gives it its name, durably.
  void publish();

 private:
  void flush();
  [[noreturn]] void failed(const char* operation) const;

  std::string path_;
  std::string temporary_path_;
  UniqueFd fd_;
  std::vector<char> buffer_;
  bool published_ = false;
};

class TokenWriter {
 public:
  // `type` is u16 or i32, what token_type_for_vocab() says. A prefix without a file name is Error("data.output", user).
  TokenWriter(std::string prefix, TokenType type);

  // Tokens of the document that is being written. Ids must fit the type.
  void append(std::span<const std::int32_t> tokens);
  // The document must have tokens: callers leave empty ones out.
  void end_document();

  // A point between two documents to come back to, for input that turns out to be unusable after it was begun.
  struct Mark {
    std::size_t num_sequences;
    std::int64_t num_tokens;
    std::int64_t num_documents;
  };
  Mark mark() const;
  // Forgets everything since the mark, a document that was not ended included.
  void rollback(const Mark& mark);

  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t num_documents() const { return num_documents_; }

  // Makes both files durable and gives them their names. Older files of that name are replaced, the old .idx going
  // first, so that no moment shows an old index beside a new .bin. Error("data.empty", user) where there is no
  // document.
  void commit();

 private:
  void write_index();

  std::string prefix_;
  TokenType type_;
  PendingFile bin_;
  PendingFile idx_;
  // Tokens of each sequence. A document is one sequence, unless it has more tokens than an i32 can count: the top bit
  // marks a sequence that goes on with the document of the one before it.
  std::vector<std::uint32_t> sequences_;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_documents_ = 0;
  std::int64_t document_begin_ = 0;  // first token of the document that is being written
};

}  // namespace ms::data
