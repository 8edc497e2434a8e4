#include "data/pack.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "data/image_file.h"
#include "data/note.h"
#include "data/target_mask.h"
#include "data/token_file.h"
#include "data/token_writer.h"

namespace ms::data {
namespace {

class Packer {
 public:
  Packer(const TokenFile& file, const std::optional<ImageFile>& images, std::int32_t padding,
         const PackOptions& options, TokenWriter& writer, std::optional<ImageWriter>& images_to)
      : file_(file), images_(images), padding_(padding), options_(options), writer_(writer), images_to_(images_to) {}

  // Documents [begin, end) of the file.
  void pack(std::int64_t begin, std::int64_t end) {
    std::vector<TokenRange> documents;
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = begin; i < end; ++i) {
      const TokenRange document = fitted(i);
      if (document.size() > 0 && is_ignored(document)) {
        ++report_.num_ignored_documents;
        continue;
      }
      if (const std::int64_t lost = file_.document(i).size() - document.size(); lost > 0) {
        ++report_.num_too_long;
        report_.lost_tokens += lost;
      }
      if (document.size() == 0) continue;
      documents.push_back(document);
      lengths.push_back(document.size());
    }
    for (const std::vector<std::size_t>& sample : best_fit(lengths, options_.seq)) {
      std::int64_t room = options_.seq;
      for (const std::size_t i : sample) {
        write(documents[i]);
        room -= lengths[i];
      }
      pad(room);
      ++report_.num_samples;
    }
  }

  // The target of the last sample's last token.
  PackReport finish() {
    pad(1);
    report_.num_targets = writer_.num_targets();
    return report_;
  }

 private:
  // Returns the part of a document that fits a sample; empty: it is skipped.
  TokenRange fitted(std::int64_t i) const {
    TokenRange document = file_.document(i);
    const std::int64_t surplus = document.size() - options_.seq;
    if (surplus <= 0) return document;
    if (options_.too_long == TooLong::refuse) {
      throw user_error("data.long",
                       fmt::format("document {} of {} has {} tokens, and a sample has {}", i, file_.prefix(),
                                   document.size(), options_.seq),
                       "raise --seq, or say what becomes of such documents with --too-long truncate or skip");
    }
    document.end = options_.too_long == TooLong::skip ? document.begin : document.end - surplus;
    if (images_) document.end = without_part(document.end);
    return document;
  }

  // Returns where a document ends that would end inside an image: before it.
  std::int64_t without_part(std::int64_t end) const {
    const auto [first, last] = images_->within({end, end + 1});
    return first < last ? std::min(end, (*images_)[first].token) : end;
  }

  // Whether the mask leaves no target in a document, the first token of which never is one in a sample.
  bool is_ignored(const TokenRange& document) const {
    return file_.has_mask() && file_.count_targets({document.begin + 1, document.end}) == 0;
  }

  void write(const TokenRange& document) {
    tokens_.resize(static_cast<std::size_t>(document.size()));
    file_.read(document.begin, tokens_);
    const auto bad = std::ranges::find_if(tokens_, [](std::int32_t id) { return id < 0; });
    if (bad != tokens_.end()) {
      throw Error("data.token", Blame::storage,
                  fmt::format("{}.bin: the token at position {} is {}", file_.prefix(),
                              document.begin + (bad - tokens_.begin()), *bad));
    }
    file_.mark_ignored(document.begin, tokens_);
    tokens_[0] = ignored_target(token_id(tokens_[0]));
    if (images_) images_to_->append(*images_, document, writer_.num_tokens());
    writer_.append(tokens_);
    writer_.end_document();
    ++report_.num_documents;
    report_.num_tokens += document.size();
  }

  void pad(std::int64_t count) {
    if (count == 0) return;
    tokens_.assign(static_cast<std::size_t>(count), ignored_target(padding_));
    writer_.append(tokens_);
    writer_.end_document();
    report_.num_padding += count;
  }

  const TokenFile& file_;
  const std::optional<ImageFile>& images_;
  const std::int32_t padding_;
  const PackOptions& options_;
  TokenWriter& writer_;
  std::optional<ImageWriter>& images_to_;
  std::vector<std::int32_t> tokens_;
  PackReport report_;
};

}  // namespace

std::vector<std::vector<std::size_t>> best_fit(std::span<const std::int64_t> lengths, std::int64_t seq) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return lengths[i]; });
  std::vector<std::vector<std::size_t>> samples;
  std::map<std::int64_t, std::deque<std::size_t>> by_room;  // samples that are not full
  for (const std::size_t i : order) {
    MS_ASSERT(lengths[i] >= 1 && lengths[i] <= seq, "a document of {} tokens in samples of {}", lengths[i], seq);
    std::size_t sample = samples.size();
    std::int64_t room = seq;
    if (const auto found = by_room.lower_bound(lengths[i]); found != by_room.end()) {
      room = found->first;
      sample = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) by_room.erase(found);
    } else {
      samples.emplace_back();
    }
    samples[sample].push_back(i);
    room -= lengths[i];
    if (room > 0) by_room[room].push_back(sample);
  }
  return samples;
}

PackReport pack(const std::string& prefix, const std::string& output, const PackOptions& options) {
  MS_ASSERT(options.seq >= 1 && options.buffer >= 1, "samples of {} tokens, {} documents at a time", options.seq,
            options.buffer);
  check_prefix(output);
  const TokenFile file(prefix);
  const std::optional<Note> note = read_note(prefix);
  if (!note) {
    throw user_error("data.packed",
                     fmt::format("{} has no {}, which names the token of padding", prefix, note_path("PREFIX")),
                     "encode its text with ms-data");
  }
  if (note->packed_to > 0) {
    throw user_error("data.packed",
                     fmt::format("{} is packed to samples of {} tokens already", prefix, note->packed_to),
                     "pack the file that it was made of");
  }
  if (file.type() != TokenType::u16 && file.type() != TokenType::i32) {
    throw user_error("data.merge",
                     fmt::format("{} holds {}; only u16 and i32 are packed", prefix, to_string(file.type())));
  }
  const std::optional<ImageFile> images = open_images(file, note, note->patch);
  TokenWriter writer(output, file.type());
  std::optional<ImageWriter> images_to;
  if (images) images_to.emplace(output, note->patch);
  Packer packer(file, images, note->eod, options, writer, images_to);
  for (std::int64_t begin = 0; begin < file.num_documents(); begin += options.buffer)
    packer.pack(begin, std::min(begin + options.buffer, file.num_documents()));
  const PackReport report = packer.finish();
  if (report.num_documents + report.num_ignored_documents == 0) {
    throw user_error("data.empty", fmt::format("no document of {} fits a sample of {} tokens", prefix, options.seq),
                     "raise --seq, or cut the documents with --too-long truncate");
  }
  if (report.num_targets == 0) {
    throw user_error(
        "data.mask", fmt::format("no document of {} has a target of the loss left", prefix),
        fmt::format("raise --seq above {} if documents were truncated, or encode with --train-on all", options.seq));
  }
  Note packed = *note;
  packed.packed_to = options.seq;
  packed.documents = writer.num_documents();
  packed.tokens = writer.num_tokens();
  if (images_to) images_to->commit(writer.num_tokens());
  writer.commit(to_json(packed));
  return report;
}

}  // namespace ms::data
