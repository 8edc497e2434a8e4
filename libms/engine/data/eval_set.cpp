#include "data/eval_set.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "data/loader.h"
#include "data/note.h"

namespace ms::data {
namespace {

EvalSource called_by_file(const std::string& entry, double part) {
  std::string prefix = parse_source(entry).prefix;
  return {prefix.substr(prefix.rfind('/') + 1), prefix, part};
}

EvalSource source_of(const std::string& entry) {
  const std::size_t equals = entry.find('=');
  if (equals == std::string::npos) return called_by_file(entry, 1);
  if (equals == 0) throw user_error("data.source", fmt::format("'{}' is not NAME=PREFIX", entry));
  return {entry.substr(0, equals), parse_source(entry.substr(equals + 1)).prefix};
}

void refuse_same_names(const std::vector<EvalSource>& sources) {
  std::set<std::string> names;
  for (const EvalSource& source : sources) {
    if (names.insert(source.name).second) continue;
    throw user_error("data.source", fmt::format("two data sets are called '{}'", source.name),
                     "--data NAME=PREFIX gives each a name of its own");
  }
}

}  // namespace

std::vector<EvalSource> eval_sources(const std::vector<std::string>& entries, const DataConfig& config) {
  std::vector<EvalSource> sources;
  for (const std::string& entry : entries) sources.push_back(source_of(entry));
  if (entries.empty()) {
    const bool held_out = config.valid.empty();
    const double part = held_out ? config.valid_fraction : 1;
    for (const std::string& entry : held_out ? config.train : config.valid) {
      if (part > 0) sources.push_back(called_by_file(entry, part));
    }
  }
  if (sources.empty()) {
    throw user_error("data.source", "the checkpoint's configuration names no validation data",
                     "--data NAME=PREFIX names a token file, as ms-data encode writes it");
  }
  refuse_same_names(sources);
  return sources;
}

EvalSet::EvalSet(const EvalSource& source, std::int64_t seq, std::int64_t vocab_size, std::int64_t most_windows,
                 std::int64_t patch)
    : source_(source),
      file_(source.prefix),
      images_(open_images(file_, read_note(source.prefix), patch)),
      range_(last_part(file_, source.part, read_note(source.prefix).value_or(Note()).packed_to == seq ? seq : 1)),
      seq_(seq),
      vocab_size_(vocab_size),
      patch_(patch),
      all_windows_((range_.size() - 2) / seq + 1),
      windows_(most_windows > 0 ? std::min(most_windows, all_windows_) : all_windows_) {
  if (const std::optional<Note> note = read_note(source.prefix)) {
    check_vocab(*note, source.prefix, vocab_size);
    check_packing(*note, source.prefix, seq);
  }
  if (range_.size() < 2) {
    throw user_error("data.short", fmt::format("{}.bin has {} tokens to evaluate on, and a prediction needs two",
                                               source.prefix, range_.size()));
  }
  check_targets(file_);
  if (predictions() == 0) {
    throw user_error("data.mask",
                     fmt::format("the loss ignores all tokens of {} that would be evaluated", source.prefix),
                     "evaluate more of the file: raise --samples, or name the file with --data");
  }
}

std::int64_t EvalSet::begin_of(std::int64_t index) const {
  MS_ASSERT(index >= 0 && index < windows_, "window {} of {}", index, windows_);
  // index * all / windows, where index * all may overflow.
  const std::int64_t window = all_windows_ / windows_ * index + all_windows_ % windows_ * index / windows_;
  return range_.begin + window * seq_;
}

std::int64_t EvalSet::predictions() const {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < windows_; ++i) {
    const std::int64_t begin = begin_of(i);
    count += file_.count_targets({begin + 1, std::min(begin + 1 + seq_, range_.end)});
  }
  return count;
}

void EvalSet::read(std::int64_t begin, std::span<std::int32_t> row, std::span<std::int32_t> starts,
                   std::span<std::int8_t> patches) const {
  if (!patches.empty()) read_patches(images_, {begin, begin + seq_}, patches);
  const std::span<std::int32_t> tokens = row.first(static_cast<std::size_t>(row_size(begin)));
  file_.read(begin, tokens);
  check_vocab(file_, begin, tokens, vocab_size_);
  file_.mark_ignored(begin, tokens);
  std::ranges::fill(row.subspan(tokens.size()), kNoTarget);
  if (starts.empty()) return;
  std::ranges::fill(starts, 0);
  document_starts(file_, begin, starts.first(std::min(tokens.size(), starts.size())));
}

void EvalSet::prefetch(std::int64_t begin) const { file_.will_need(begin, row_size(begin)); }

}  // namespace ms::data
