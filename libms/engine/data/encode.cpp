#include "data/encode.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "data/encode_workers.h"
#include "data/image_file.h"
#include "data/token_writer.h"

namespace ms::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNamedSkips = 3;  // files or lines; a directory of pictures has thousands
constexpr double kSaveEvery_s = 5;
// Batches that are read and not yet written: enough that no worker waits, unless documents are large.
constexpr std::size_t kBatchesPerWorker = 2;
constexpr std::size_t kMostInFlightBytes = std::size_t{256} << 20;

// A hash of all that decides the output; empty where that cannot be known, as of a pipe, or of images in other files.
std::string identity_of(std::span<const std::string> files, const Note& note, const EncodeOptions& options) {
  if (options.images != nullptr) return "";
  std::string words =
      fmt::format("{}\n{}\n{}\n{}\n{} {}\n", note.tokenizer, note.tokenizer_fingerprint, note.vocab_size, note.eod,
                  fmt::join(note.frame.begin, ","), fmt::join(note.frame.end, ","));
  words += options.read.split_on ? fmt::format("split {}\n", *options.read.split_on) : "";
  words += fmt::format("{} {} {}\n", options.read.by_line, options.read.json_as_text, options.skip_bad_lines);
  if (options.chat != nullptr)
    words += fmt::format("chat {} {}\n", options.chat->format().name, options.chat->trains_on_all());
  for (const std::string& field : options.read.fields) words += fmt::format("field {}\n", field);
  for (const std::string& path : files) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
    words += fmt::format("{} {}.{:09} {}\n", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, path);
  }
  return hash_hex(xxh64(words));
}

// Names the first few of many.
void name_one(std::int64_t number, const std::string& what) {
  if (number <= kNamedSkips) {
    log::warn("data", "{}", what);
  } else {
    log::debug("data", "{}", what);
  }
}

// Puts batches that workers are done with into the token file, in order, and keeps account of how far that has come.
class BatchSink {
 public:
  BatchSink(std::span<const std::string> files, const Tokenizer& tokenizer, const EncodeOptions& options,
            TokenWriter& writer, ImageWriter* images, const StateFile& file, EncodeState state)
      : files_(files),
        frame_(options.chat != nullptr ? Tokenizer::Frame() : tokenizer.frame()),
        options_(options),
        writer_(writer),
        images_(images),
        file_(file),
        state_(std::move(state)),
        saved_(state_.written) {
    state_.bin_inode = writer.bin_inode();
  }

  void write(const TextBatch& batch) {
    std::size_t tokens_at = 0, image = 0;
    for (const TextItem& item : batch.items) {
      take(item, std::span(batch.tokens).subspan(tokens_at, item.tokens_end - tokens_at));
      for (; image < batch.images.size() && batch.images[image].token < item.tokens_end; ++image) {
        const BatchImage& one = batch.images[image];
        images_->append(one.bytes, one.grid, item_begin_ + static_cast<std::int64_t>(one.token - tokens_at));
      }
      tokens_at = item.tokens_end;
    }
    state_.position = batch.end;
    const std::int64_t token_bytes = size_bytes(token_type());
    const bool is_due = (writer_.num_tokens() - saved_.num_tokens) * token_bytes >= options_.save_every_bytes ||
                        monotonic_s() - saved_s_ >= kSaveEvery_s;
    if (is_due) save(writer_.mark());
  }

  // The state with nothing left to read.
  const EncodeState& finish() {
    state_.complete = true;
    if (state_.report.num_binary_files > kNamedSkips) {
      log::warn("data", "skipped {} more files that are not text; MS_LOG=data:debug names them",
                state_.report.num_binary_files - kNamedSkips);
    }
    if (state_.report.num_bad_lines > kNamedSkips) {
      log::warn("data", "skipped {} more lines of JSON Lines; MS_LOG=data:debug names them",
                state_.report.num_bad_lines - kNamedSkips);
    }
    state_.report.num_documents = writer_.num_documents();
    state_.report.num_tokens = writer_.num_tokens();
    return state_;
  }

  void save(const TokenWriter::Mark& mark) {
    if (state_.identity.empty()) return;
    writer_.save();
    state_.written = saved_ = mark;
    file_.write(state_);
    saved_s_ = monotonic_s();
  }

 private:
  TokenType token_type() const { return writer_.type(); }

  void take(const TextItem& item, std::span<const std::int32_t> tokens) {
    EncodeReport& file = state_.file;
    if (!item.is_utf8) {
      name_one(state_.report.num_not_utf8 + ++file.num_not_utf8,
               fmt::format("{}: a document has bytes that are not UTF-8; U+FFFD stands for them",
                           path_of(state_.position.file)));
    }
    if (item.has_control) {
      name_one(state_.report.num_with_control + ++file.num_with_control,
               place_of(path_of(state_.position.file), item) +
                   ": a message has the text of a control token, which becomes that token");
    }
    switch (item.kind) {
      case TextItem::Kind::file_begin:
        state_.file_begin = writer_.mark();
        file_begin_images_ = images_ != nullptr ? images_->size() : 0;
        state_.position = {.file = item.number, .begun = true};
        file = {};
        break;
      case TextItem::Kind::text:
        append(tokens);
        file.text_bytes += static_cast<std::int64_t>(item.end - item.begin);
        break;
      case TextItem::Kind::json:
        append(tokens);
        file.text_bytes += static_cast<std::int64_t>(item.end);
        if (item.end == 0) ++file.num_empty_documents;
        end_document();
        break;
      case TextItem::Kind::bad_json: bad_line(item); break;
      case TextItem::Kind::split: ++file.num_splits; [[fallthrough]];
      case TextItem::Kind::document_end: end_document(); break;
      case TextItem::Kind::file_end:
        ++(writer_.num_documents() > state_.file_begin.num_documents ? file.num_files : file.num_empty_files);
        state_.report += std::exchange(file, {});
        break;
      case TextItem::Kind::file_skip: skip_file(item); break;
    }
  }

  void append(std::span<const std::int32_t> tokens) {
    if (!tokens.empty() && !writer_.inside_document()) writer_.append(frame_.begin);
    item_begin_ = writer_.num_tokens();
    writer_.append(tokens);
  }

  void end_document() {
    if (!writer_.inside_document()) return;
    writer_.append(frame_.end);
    writer_.end_document();
  }

  const std::string& path_of(std::int64_t file) const { return files_[static_cast<std::size_t>(file)]; }

  void bad_line(const TextItem& item) {
    const std::string column = item.begin > 0 ? fmt::format(":{}", item.begin) : "";
    const std::string what =
        fmt::format("{}{}: {}", place_of(path_of(state_.position.file), item), column, item.problem);
    if (!options_.skip_bad_lines) {
      throw user_error("data.json", what,
                       item.hint.empty()
                           ? "correct the line, skip such lines with --skip-bad-lines, or encode a text that "
                             "begins with { or [ with --json-as-text"
                           : item.hint);
    }
    ++state_.file.num_bad_lines;
    name_one(state_.report.num_bad_lines + state_.file.num_bad_lines, "skipped " + what);
  }

  void skip_file(const TextItem& item) {
    state_.file = {.num_binary_files = 1};
    state_.report += std::exchange(state_.file, {});
    name_one(state_.report.num_binary_files, fmt::format("skipped {}: {}", path_of(item.number), item.problem));
    // The saved state has to be true while its tokens are taken back, too.
    state_.position = {.file = item.number + 1};
    if (saved_.num_tokens > state_.file_begin.num_tokens) save(state_.file_begin);
    writer_.rollback(state_.file_begin);
    if (images_ != nullptr) images_->rollback(file_begin_images_);
  }

  std::span<const std::string> files_;
  const Tokenizer::Frame frame_;
  const EncodeOptions& options_;
  TokenWriter& writer_;
  ImageWriter* images_;  // nullptr: no line has any
  const StateFile& file_;
  EncodeState state_;
  std::int64_t item_begin_ = 0, file_begin_images_ = 0;  // a token; how many there were
  TokenWriter::Mark saved_;
  double saved_s_ = monotonic_s();
};

// Whether an encoding of this identity was killed when nothing was left to do but to give the files their names. If
// that is not done, .bin becomes a part again, as if nothing had its name yet.
bool was_finished(const std::string& prefix, const EncodeState& state) {
  const std::string bin = prefix + ".bin";
  if (!state.complete || ::access((bin + ".part").c_str(), F_OK) == 0) return false;
  const UniqueFd fd(::open(bin.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || status.st_ino != state.bin_inode) return false;
  if (try_lock(fd) == EWOULDBLOCK)
    throw user_error("data.output", fmt::format("another process writes {}", bin), "wait for it");
  if (::access((prefix + ".idx").c_str(), F_OK) == 0) return true;
  rename_synced(bin, bin + ".part");
  return false;
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

Inputs expand_inputs(std::span<const std::string> paths, bool recursive) {
  Inputs inputs;
  for (const std::string& named : paths) {
    const std::string path = named == "-" ? "/dev/stdin" : named;
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (!fs::exists(status)) {
      throw user_error("data.input",
                       fmt::format("cannot open {}: {}", path, failed ? failed.message() : errno_text(ENOENT)));
    }
    if (!fs::is_directory(status)) {
      inputs.files.push_back(path);
      inputs.named.push_back(path);
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
    inputs.files.insert(inputs.files.end(), below.begin(), below.end());
  }
  return inputs;
}

EncodeReport encode(const std::string& prefix, std::span<const std::string> files, const Tokenizer& tokenizer,
                    Note note, const EncodeOptions& options) {
  check_prefix(prefix);
  const StateFile file(prefix);
  const std::string identity = identity_of(files, note, options);
  if (const std::optional<EncodeState> old = file.read();
      old && old->identity == identity && was_finished(prefix, *old)) {
    ::unlink((prefix + ".sequences.part").c_str());
    file.remove();
    return old->report;
  }
  if (!options.replace) refuse_existing(prefix);
  TokenWriter writer(prefix, token_type_for_vocab(std::max(tokenizer.vocab_size(), note.vocab_size)), true);
  std::optional<ImageWriter> images;
  if (options.images != nullptr) images.emplace(prefix, options.images->options().patch);
  EncodeState state{.identity = identity};
  if (std::optional<EncodeState> old = file.read()) {  // nobody else writes it now
    const bool is_same = old->identity == identity;
    if (is_same && writer.resume(old->written)) {
      state = std::move(*old);
      log::info("data", "resuming {}: {} documents, {} tokens are there", prefix, writer.num_documents(),
                writer.num_tokens());
    } else {
      log::warn("data", "{}.encode.part is from {}: encoding starts over", prefix,
                is_same ? "parts that are damaged" : "other files or options");
    }
  }
  if (writer.num_tokens() == 0) {
    writer.restart();
    file.remove();
    state = {.identity = identity};
  }

  const bool is_whole = !tokenizer.takes_pieces();
  std::int64_t total_bytes = 0;
  for (const std::string& path : files) total_bytes += file_size_bytes(path);
  DocumentReader reader(files, options.read, is_whole, state.position);
  BatchSink sink(files, tokenizer, options, writer, images ? &*images : nullptr, file, state);
  std::deque<std::unique_ptr<TextBatch>> in_flight;  // outlives the workers
  const int num_workers = options.workers > 0 ? options.workers : default_workers();
  EncodeWorkers workers(num_workers, tokenizer,
                        options.read.fields.empty() ? std::vector<std::string>{"text"} : options.read.fields,
                        options.chat, options.images);
  const std::size_t most_batches = kBatchesPerWorker * static_cast<std::size_t>(num_workers) + 1;
  std::size_t in_flight_bytes = 0;
  for (bool ended = false; !ended || !in_flight.empty();) {
    while (!ended && in_flight.size() < most_batches && (in_flight.empty() || in_flight_bytes < kMostInFlightBytes)) {
      auto batch = std::make_unique<TextBatch>();
      ended = !reader.next(*batch);
      if (ended) break;
      in_flight_bytes += batch->text.size();
      workers.submit(*in_flight.emplace_back(std::move(batch)));
    }
    if (in_flight.empty()) break;
    const TextBatch& oldest = *in_flight.front();
    workers.wait(oldest);
    sink.write(oldest);
    if (options.progress) options.progress(oldest.input_bytes, total_bytes);
    in_flight_bytes -= oldest.text.size();
    in_flight.pop_front();
  }

  EncodeReport report = sink.finish().report;
  report.num_images = images ? images->size() : 0;
  if (report.num_documents == 0) {
    file.remove();
    writer.restart();
  }
  note.documents = report.num_documents;
  note.tokens = report.num_tokens;
  note.text_bytes = report.text_bytes;
  note.source_files = report.num_files;
  writer.finish(to_json(note));
  sink.save(writer.mark());
  if (images) images->commit(report.num_tokens);
  writer.publish();
  file.remove();
  return report;
}

}  // namespace ms::data
