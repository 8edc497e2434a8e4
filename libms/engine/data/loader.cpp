#include "data/loader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/chain.h"
#include "data/facts.h"

namespace ms::data {
namespace {

// Before a run begins, kCheckedPieces pieces of kCheckedPieceTokens tokens of each file are checked: enough to catch a
// file of another tokenizer, and few enough for hundreds of files on a shared file system.
constexpr std::int64_t kCheckedPieces = 16;
constexpr std::int64_t kCheckedPieceTokens = 4096;

void require_window(const TokenFile& file, const Split& split, std::int64_t seq) {
  if (num_windows(split, seq) > 0) return;
  throw user_error("data.short", fmt::format("{}.bin has {} tokens to use, and one sample of {} tokens needs {}",
                                             file.prefix(), split.end - split.begin, seq, seq + 1));
}

// For the fingerprint; a constant weight reads as it did before there were schedules.
std::string weights_text(const DataSource& source) {
  if (source.weights.empty()) return "0";
  if (source.weights.size() == 1) return fmt::format("{}", source.weights.front().weight);
  std::string text;
  for (const SourceWeight& piece : source.weights) text += fmt::format("{}:{};", piece.step, piece.weight);
  return text;
}

}  // namespace

TokenRange last_part(const TokenFile& file, double part, std::int64_t sample) {
  const std::int64_t tokens = file.num_tokens();
  const std::int64_t begin = tokens - static_cast<std::int64_t>(static_cast<double>(tokens) * part);
  return {begin / sample * sample, tokens};
}

void check_targets(const TokenFile& file) {
  if (file.num_targets() > 0) return;
  throw user_error("data.mask", fmt::format("the loss ignores all tokens of {}", file.prefix()),
                   "encode conversations that have messages of the assistant, or encode with --train-on all");
}

void check_vocab(const TokenFile& file, std::int64_t begin, std::span<const std::int32_t> tokens,
                 std::int64_t vocab_size) {
  constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();
  // The sign bit stays where an id is negative or above the last one: the quickest test for the vector units of all
  // CPUs.
  std::uint32_t signs = 0;
  const auto last = static_cast<std::uint32_t>(std::min(vocab_size - 1, kMostTokens));
  for (const std::int32_t id : tokens)
    signs |= static_cast<std::uint32_t>(id) | (last - static_cast<std::uint32_t>(id));
  if (signs >> 31U == 0) return;
  const auto bad =
      std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t id) { return id < 0 || id >= vocab_size; });
  throw user_error("data.vocab",
                   fmt::format("{}.bin: the token at position {} is {}, and the model's vocabulary is 0 to {}",
                               file.prefix(), begin + (bad - tokens.begin()), *bad, vocab_size - 1),
                   "the model's vocabulary must be that of the tokenizer that wrote the file");
}

void document_starts(const TokenFile& file, std::int64_t begin, std::span<std::int32_t> starts) {
  const std::vector<std::int64_t> begins = file.document_begins({begin, begin + std::ssize(starts)});
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::int64_t start = std::max<std::int64_t>(begins[i] - begin, 0);
    const std::int64_t stop = i + 1 < begins.size() ? begins[i + 1] - begin : std::ssize(starts);
    std::fill(starts.begin() + start, starts.begin() + stop, static_cast<std::int32_t>(start));
  }
}

Loader::Loader(const DataConfig& config, BatchShape shape, std::int64_t vocab_size, std::uint64_t seed)
    : shape_(std::move(shape)),
      vocab_size_(vocab_size),
      has_starts_(config.reset_attention),
      is_balanced_(config.reset_attention && config.balance) {
  MS_ASSERT(shape_.seq >= 1 && shape_.global_batch >= 1 && vocab_size >= 1, "seq {}, global batch {}, vocabulary {}",
            shape_.seq, shape_.global_batch, vocab_size);
  if (config.train.empty()) {
    throw user_error("data.train", "data.train names no token file",
                     "write one with ms-data encode, and name its prefix");
  }
  const bool hold_out = config.valid.empty() && config.valid_fraction > 0;
  std::vector<Split> train;
  std::vector<Split> valid;
  std::vector<DataSource> sources;
  std::int64_t num_weighted = 0;
  std::optional<std::pair<std::string, Note>> first_note;
  std::string identity = fmt::format("seq {}\n", shape_.seq);
  for (const std::string& entry : config.train) {
    const DataSource& source = sources.emplace_back(parse_source(entry));
    const std::int64_t packed = open(source.prefix, first_note);
    const int index = static_cast<int>(files_.size()) - 1;
    const TokenFile& file = files_.back();
    const std::int64_t held_out = last_part(file, config.valid_fraction, packed).begin;
    // The last target of a packed sample is the first token of the next one, which the loss ignores.
    const std::int64_t end = hold_out ? held_out + (packed > 1 ? 1 : 0) : file.num_tokens();
    identity += fmt::format("{} {} {} {} {}\n", source.prefix.substr(source.prefix.rfind('/') + 1), file.num_tokens(),
                            file.num_documents(), end, weights_text(source));
    if (images_.back()) identity += fmt::format("images {}\n", images_.back()->size());
    if (file.has_mask()) identity += fmt::format("targets {}\n", file.num_targets());
    train.push_back({index, 0, end});
    require_window(file, train.back(), shape_.seq);
    if (hold_out) valid.push_back({index, held_out, file.num_tokens()});
    num_weighted += source.weights.empty() ? 0 : 1;
  }
  for (const std::string& entry : config.valid) {
    open(parse_source(entry).prefix, first_note);
    valid.push_back({static_cast<int>(files_.size()) - 1, 0, files_.back().num_tokens()});
    require_window(files_.back(), valid.back(), shape_.seq);
  }

  std::vector<WindowPool> pools;
  if (num_weighted == 0) {
    pools.emplace_back(train, shape_.seq);
    stages_ = {{.step = 0, .weights = {1}}};
  } else if (num_weighted == std::ssize(train)) {
    for (const Split& split : train) pools.emplace_back(std::vector<Split>{split}, shape_.seq);
    stages_ = weight_stages(sources);
  } else {
    throw user_error("data.weight", fmt::format("{} of {} entries of data.train have a weight, expected all or none",
                                                num_weighted, train.size()));
  }
  if (stages_.size() > 1) {  // the batch decides at which sample a step's weights begin
    identity += fmt::format("batch {}", shape_.global_batch);
    for (const RampStage& stage : shape_.ramp) identity += fmt::format(" {}x{}", stage.steps, stage.batch);
  }
  fingerprint_ = hash_hex(xxh64(identity));
  train_.emplace(std::move(pools), Mixture(stages_, shape_), seed);
  valid_.emplace(std::move(valid), shape_.seq);
  if (hold_out && valid_->size() == 0) {
    throw user_error("data.short",
                     fmt::format("the part of data.train that is held out for validation ({} of the tokens) is shorter "
                                 "than one sample of {} tokens",
                                 config.valid_fraction, shape_.seq),
                     "raise data.valid_fraction, or set it to 0 to train without validation");
  }
}

void Loader::start_at(std::int64_t step, std::int64_t sample, std::vector<Skip> skips) {
  shape_.origin_step = step;
  shape_.origin_sample = sample;
  shape_.skips = std::move(skips);
  if (stages_.size() > 1) train_->set_mixture(Mixture(stages_, shape_));
}

std::int64_t Loader::open(const std::string& prefix, std::optional<std::pair<std::string, Note>>& first_note) {
  const std::optional<Note> note = read_note(prefix);
  if (note) {
    check_vocab(*note, prefix, vocab_size_);
    check_packing(*note, prefix);
    if (!first_note) first_note.emplace(prefix, *note);
    if (!first_note->second.same_tokenizer(*note)) {
      log::warn("data",
                "{} and {} were written with different tokenizers, {} and {}: the same id is a different token in "
                "each; encode both with one tokenizer",
                first_note->first, prefix, first_note->second.tokenizer, note->tokenizer);
    }
  }
  const TokenFile& file = files_.emplace_back(prefix);
  images_.push_back(open_images(file, note, shape_.patch));
  check_vocab_of(file);
  check_targets(file);
  return note && note->packed_to > 0 ? note->packed_to : 1;
}

void Loader::check_packing(const Note& note, const std::string& prefix) const {
  data::check_packing(note, prefix, shape_.seq);
  if (note.packed_to > 0 && !has_starts_) {
    log::warn("data",
              "the documents that share a sample of {} attend to each other: set data.reset_attention = true, or, if "
              "ms_loader reads it, pass reset_attention=True to ms_loader.Loader (ms-data serve --reset-attention) and "
              "mask attention by Batch.starts",
              prefix);
  }
}

void Loader::check_vocab_of(const TokenFile& file) const {
  const std::int64_t size = std::min(kCheckedPieceTokens, file.num_tokens()), last_begin = file.num_tokens() - size;
  std::vector<std::int64_t> begins;
  for (std::int64_t piece = 0; piece < kCheckedPieces && (piece == 0 || last_begin > 0); ++piece) {
    begins.push_back(last_begin / (kCheckedPieces - 1) * piece +
                     last_begin % (kCheckedPieces - 1) * piece / (kCheckedPieces - 1));
    // Not of objects: the process that checks them forks the loader, and a fork leaves threads behind.
    if (!is_object(file.prefix())) file.will_need(begins.back(), size);
  }
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(size));
  for (const std::int64_t begin : begins) {
    file.read(begin, tokens);
    check_vocab(file, begin, tokens, vocab_size_);
  }
}

Window Loader::window(std::int64_t step, std::int64_t sample) const {
  MS_ASSERT(step >= shape_.origin_step && sample >= 0 && sample < shape_.batch(step),
            "sample {} of step {} with a global batch of {}", sample, step, shape_.batch(step));
  return train_->sample(shape_.first_sample(step) + sample);
}

Window Loader::validation_window(std::int64_t index, std::int64_t total) const {
  MS_ASSERT(num_validation_samples() > 0 && index >= 0 && index < total, "validation sample {} of {}", index, total);
  return valid_->spread(index, total);
}

void Loader::prefetch(std::span<const Window> windows) const {
  for (const Window& window : windows) {
    const auto file = static_cast<std::size_t>(window.file);
    files_[file].will_need(window.begin, shape_.seq + 1);
    if (images_[file]) images_[file]->will_need({window.begin, window.begin + shape_.seq});
  }
}

void Loader::read(const Window& window, const RowMemory& to) const {
  const TokenFile& file = files_[static_cast<std::size_t>(window.file)];
  if (to.starts != nullptr) document_starts(file, window.begin, {to.starts, static_cast<std::size_t>(shape_.seq)});
  if (to.patches != nullptr) {
    read_patches(images_[static_cast<std::size_t>(window.file)], {window.begin, window.begin + shape_.seq},
                 {to.patches, static_cast<std::size_t>(shape_.seq * image::patch_size(shape_.patch))});
  }
  const std::span<std::int32_t> tokens(to.tokens, static_cast<std::size_t>(shape_.seq + 1));
  file.read(window.begin, tokens);
  check_vocab(file, window.begin, tokens, vocab_size_);
  file.mark_ignored(window.begin, tokens);
}

std::int64_t Loader::count_targets(std::int64_t samples, const std::function<Window(std::int64_t)>& window_of) const {
  if (!has_mask()) return samples * shape_.seq;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const Window at = window_of(i);
    const TokenRange targets{at.begin + 1, at.begin + 1 + shape_.seq};
    count += files_[static_cast<std::size_t>(at.file)].count_targets(targets);
  }
  return count;
}

void Loader::fill(std::int64_t step, std::int64_t first_sample, std::int64_t count, std::int32_t* rows,
                  std::int32_t* starts) const {
  for (std::int64_t i = 0; i < count; ++i) {
    read(window(step, first_sample + i),
         {rows + i * (shape_.seq + 1), starts == nullptr ? nullptr : starts + i * shape_.seq});
  }
}

std::vector<std::int64_t> Loader::rows(std::int64_t step, const Division& division) const {
  if (is_balanced_) return balance(attention_work(step), division);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(shape_.batch(step)));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<double> Loader::attention_work(std::int64_t step) const {
  std::vector<double> work;
  for (std::int64_t i = 0; i < shape_.batch(step); ++i) {
    const Window at = window(step, i);
    work.push_back(data::attention_work(files_[static_cast<std::size_t>(at.file)], at.begin, shape_.seq));
  }
  return work;
}

std::uint64_t Loader::digest(std::int64_t step) const {
  std::vector<Window> windows;
  for (std::int64_t i = 0; i < shape_.batch(step); ++i) windows.push_back(window(step, i));
  return digest_of(windows);
}

SampleOrigin Loader::origin(std::int64_t step, std::int64_t sample) const {
  const Window at = window(step, sample);
  const TokenFile& file = files_[static_cast<std::size_t>(at.file)];
  return {.prefix = file.prefix(),
          .token = at.begin,
          .begins_document = file.document(file.document_of(at.begin)).begin == at.begin};
}

void Loader::fill_validation(std::int64_t first, std::int64_t count, std::int64_t total, std::int32_t* rows,
                             std::int32_t* starts) const {
  for (std::int64_t i = 0; i < count; ++i) {
    read(validation_window(first + i, total),
         {rows + i * (shape_.seq + 1), starts == nullptr ? nullptr : starts + i * shape_.seq});
  }
}

std::string Loader::facts() const { return facts_of(*this).text(); }

void Loader::begin(const LoaderTask& task) { start_at(task.order.begin, task.first_sample, task.skips); }

BatchPlan Loader::plan(const LoaderTask& task, const BatchId& id) const {
  const std::int64_t batch = id.round ? shape_.global_batch : shape_.batch(id.step);
  BatchPlan plan{.id = id, .rows = batch / task.division.dp, .windows = {}};
  const std::int64_t of_validation = task.order.rounds * batch;
  plan.num_targets = id.round ? num_validation_targets(of_validation)
                              : count_targets(batch, [&](std::int64_t i) { return window(id.step, i); });
  std::vector<Window> all;  // in the run's order
  if (task.has_digests && !id.round) {
    for (std::int64_t sample = 0; sample < batch; ++sample) all.push_back(window(id.step, sample));
    plan.digest = digest_of(all);
  }
  const std::vector<std::int64_t> samples = id.round ? std::vector<std::int64_t>() : rows(id.step, task.division);
  const auto window_of = [&](std::int64_t row) {
    if (id.round) return validation_window(*id.round * batch + row, of_validation);
    const std::int64_t sample = samples[static_cast<std::size_t>(row)];
    return all.empty() ? window(id.step, sample) : all[static_cast<std::size_t>(sample)];
  };
  for (const int dp_rank : task.dp_ranks) {
    for (std::int64_t row = plan.rows * dp_rank; row < plan.rows * (dp_rank + 1); ++row) {
      plan.windows.push_back(window_of(row));
    }
  }
  return plan;
}

}  // namespace ms::data
