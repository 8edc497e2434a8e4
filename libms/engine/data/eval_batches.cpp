#include "data/eval_batches.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace ms::data {
namespace {

constexpr std::int64_t kNoToken = -1;

}  // namespace

std::string EvalFacts::text() const {
  std::string text;
  for (const Set& set : sets) text += fmt::format("{}{} {}", text.empty() ? "" : " ", set.windows, set.predictions);
  return text;
}

EvalFacts EvalFacts::parse(std::string_view text) {
  const std::vector<std::string> words = split(text, ' ');
  MS_ASSERT(words.size() % 2 == 0, "facts '{}'", text);
  EvalFacts facts;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    facts.sets.push_back({.windows = std::stoll(words[i]), .predictions = std::stoll(words[i + 1])});
  }
  return facts;
}

EvalBatches::EvalBatches(std::vector<EvalSet> sets, std::int64_t global_batch)
    : sets_(std::move(sets)), global_batch_(global_batch) {
  for (const EvalSet& set : sets_) facts_.sets.push_back({set.windows(), set.predictions()});
}

BatchPlan EvalBatches::plan(const LoaderTask& task, const BatchId& id) const {
  std::size_t set = 0;
  std::int64_t batch = id.step;
  while (batch >= facts_.sets[set].batches(global_batch_)) batch -= facts_.sets[set++].batches(global_batch_);
  BatchPlan plan{.id = id, .rows = global_batch_ / task.division.dp, .windows = {}};
  for (const int dp_rank : task.dp_ranks) {
    const std::int64_t first = batch * global_batch_ + plan.rows * dp_rank;
    for (std::int64_t index = first; index < first + plan.rows; ++index) {
      const std::int64_t begin = index < sets_[set].windows() ? sets_[set].begin_of(index) : kNoToken;
      plan.windows.push_back({static_cast<int>(set), begin});
    }
  }
  return plan;
}

void EvalBatches::prefetch(std::span<const Window> windows) const {
  for (const auto& [set, begin] : windows) {
    if (begin != kNoToken) sets_[static_cast<std::size_t>(set)].prefetch(begin);
  }
}

void EvalBatches::read(const Window& window, const RowMemory& to) const {
  const EvalSet& set = sets_[static_cast<std::size_t>(window.file)];
  const auto seq = static_cast<std::size_t>(set.seq());
  const std::span<std::int32_t> tokens(to.tokens, seq + 1), begins(to.starts, to.starts == nullptr ? 0 : seq);
  const std::span<std::int8_t> patches(to.patches, to.patches == nullptr ? 0 : seq * set.patch_size());
  if (window.begin != kNoToken) return set.read(window.begin, tokens, begins, patches);
  std::ranges::fill(patches, 0);
  std::ranges::fill(tokens, EvalSet::kNoTarget);
  std::ranges::fill(begins, 0);
}

}  // namespace ms::data
