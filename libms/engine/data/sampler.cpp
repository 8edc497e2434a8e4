#include "data/sampler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "data/permutation.h"

namespace ms::data {
namespace {

// Each pool shuffles by its own key, or two pools of equal size would be visited in the same order.
constexpr std::uint64_t kShuffleKey = rng_key("data shuffle");

}  // namespace

WindowPool::WindowPool(std::vector<Split> splits, std::int64_t seq) : splits_(std::move(splits)), seq_(seq) {
  MS_ASSERT(seq >= 1, "samples of {} tokens", seq);
  std::int64_t end = 0;
  for (const Split& split : splits_) ends_.push_back(end += num_windows(split, seq));
}

Window WindowPool::operator[](std::int64_t index) const {
  MS_ASSERT(index >= 0 && index < size(), "window {} of {}", index, size());
  const auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  const std::int64_t first = at == 0 ? 0 : ends_[at - 1];
  return {splits_[at].file, splits_[at].begin + (index - first) * seq_};
}

Window WindowPool::spread(std::int64_t index, std::int64_t count) const {
  MS_ASSERT(index >= 0 && index < count, "window {} of {} spread ones", index, count);
  // index * size / count, where index * size may overflow.
  return (*this)[size() / count * index + size() % count * index / count];
}

Sampler::Sampler(std::vector<WindowPool> pools, Mixture mixture, std::uint64_t seed)
    : pools_(std::move(pools)), mixture_(std::move(mixture)), seed_(seed) {
  for (const WindowPool& pool : pools_) MS_ASSERT(pool.size() > 0, "a pool without a window");
}

Window Sampler::sample(std::int64_t global_sample) const {
  const Blend::Draw draw = mixture_.draw(global_sample);
  const WindowPool& pool = pools_[static_cast<std::size_t>(draw.source)];
  const Permutation order(static_cast<std::uint64_t>(pool.size()), seed_,
                          kShuffleKey + static_cast<std::uint64_t>(draw.source),
                          static_cast<std::uint64_t>(draw.ordinal / pool.size()));
  return pool[static_cast<std::int64_t>(order(static_cast<std::uint64_t>(draw.ordinal % pool.size())))];
}

}  // namespace ms::data
