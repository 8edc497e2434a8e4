// Writes PREFIX.bin and PREFIX.idx (the layout is in token_file.h) and the note PREFIX.meta.json as parts
// (part_file.h), and gives them their names only in publish(), .bin first and .idx last: whoever sees an .idx sees a
// whole file. Tokens are streamed; what stays in memory is 4 bytes a sequence. One thread. ms-data encodes and merges
// through it. A file with tokens that the loss ignores has a mask: each run of them is a sequence of its own.
//
// Another process can go on from a save(), whatever became of this one: the parts are
// PREFIX.bin.part, and PREFIX.sequences.part with the u32 of each sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/part_file.h"
#include "data/token_file.h"

namespace ms::data {

// Error("data.output", user): a token file of this prefix would have no name, or the wrong one.
void check_prefix(const std::string& prefix);
// Error("data.output", user): a token file of this prefix is there, and may be what others train on.
void refuse_existing(const std::string& prefix);

class TokenWriter {
 public:
  // `type` is u16 or i32, what token_type_for_vocab() says. A prefix without a file name is Error("data.output", user);
  // and the errors of PartFile. What another writer left is overwritten; with `goes_on` only when restart() says so.
  TokenWriter(std::string prefix, TokenType type, bool goes_on = false);
  ~TokenWriter();

  // Tokens of the document that is being written, marked as target_mask.h says. Ids must fit the type.
  void append(std::span<const std::int32_t> tokens);
  // The document must have tokens: callers leave empty ones out.
  void end_document();

  // How much was written.
  struct Mark {
    std::int64_t num_sequences = 0, num_tokens = 0, num_documents = 0;
    bool operator==(const Mark&) const = default;
  };
  Mark mark() const;
  bool inside_document() const { return num_tokens_ > document_begin_; }
  // Forgets everything since the mark, which was taken between two documents.
  void rollback(const Mark& mark);

  // Makes all that was written durable: resume() of another writer may begin there. It stays, then, without publish().
  void save();
  // Goes on from the mark of a save(). False: what is there is not what it was; it is overwritten.
  bool resume(const Mark& mark);
  void restart();

  TokenType type() const { return type_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::int64_t num_documents() const { return num_documents_; }
  std::int64_t num_targets() const;  // of the documents that are ended
  std::uint64_t bin_inode() const { return bin_.inode(); }

  // Makes both files and the note durable; nothing is written after it. The note is to_json(Note), to which the number
  // of targets and a hash of the mask are added; null: there is none. Error("data.empty", user) where there is no
  // document.
  void finish(Json note = {});
  // Gives the files their names. Older files of that name are replaced, the old .idx going first, so that no moment
  // shows an old index beside a new .bin.
  void publish();
  void commit(Json note = {}) {
    finish(std::move(note));
    publish();
  }

 private:
  void append_run(std::span<const std::int32_t> tokens, bool is_ignored);
  void end_sequence();
  std::vector<std::int8_t> modes() const;
  void write_index(std::span<const std::int8_t> modes);

  std::string prefix_;
  TokenType type_;
  PartFile bin_;
  std::optional<PartFile> idx_, note_, saved_;
  // Tokens of each sequence. A document is one sequence, unless it has more tokens than the count holds, or a mask: the
  // top bit marks a sequence that continues the document of the one before it, the next one that the loss ignores it.
  std::vector<std::uint32_t> sequences_;
  std::vector<std::uint16_t> narrow_;  // of append()
  std::int64_t num_tokens_ = 0;
  std::int64_t num_documents_ = 0;
  // First tokens of the document and of the sequence that are being written.
  std::int64_t document_begin_ = 0, sequence_begin_ = 0;
  bool is_ignored_ = false;  // that sequence
};

}  // namespace ms::data
