#include "data/balance.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace ms::data {
namespace {

constexpr int kMostExchanges = 1000;
constexpr double kEven = 1e-3;  // of a bin's work: what is as even as that stays

struct Bin {
  double work = 0;
  std::vector<std::int64_t> items;
};

// Exchanges an item of the fullest bin for one of the emptiest while that lowers the fullest: the best pair is that
// whose difference is nearest to half the gap.
void exchange(std::span<const double> work, std::vector<Bin>& bins) {
  const auto of = [&](std::int64_t item) { return work[static_cast<std::size_t>(item)]; };
  for (int i = 0; i < kMostExchanges; ++i) {
    const auto [least, most] = std::ranges::minmax_element(bins, {}, &Bin::work);
    const double gap = most->work - least->work;
    if (gap <= kEven * most->work) return;
    std::ranges::sort(least->items, {}, of);
    double best = 0;  // by how much the gap shrinks on both sides
    std::int64_t* from = nullptr;
    std::int64_t* to = nullptr;
    for (std::int64_t& a : most->items) {
      const auto above = std::ranges::lower_bound(least->items, of(a) - gap / 2, {}, of);
      for (auto b = above == least->items.begin() ? above : above - 1; b != least->items.end() && b <= above; ++b) {
        const double moved = of(a) - of(*b), gain = std::min(moved, gap - moved);
        if (gain > best) std::tie(best, from, to) = std::tuple(gain, &a, &*b);
      }
    }
    if (best <= gap * 1e-6) return;
    const double moved = of(*from) - of(*to);
    std::swap(*from, *to);
    most->work -= moved;
    least->work += moved;
  }
}

// Divides items among `count` bins, as many for each.
std::vector<Bin> divide(std::span<const double> work, std::size_t count) {
  std::vector<std::int64_t> longest(work.size());
  std::iota(longest.begin(), longest.end(), 0);
  std::ranges::stable_sort(longest, std::ranges::greater{},
                           [&](std::int64_t item) { return work[static_cast<std::size_t>(item)]; });
  std::vector<Bin> bins(count);
  using Entry = std::pair<double, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> emptiest;
  for (std::size_t bin = 0; bin < count; ++bin) emptiest.emplace(0, bin);
  for (const std::int64_t item : longest) {
    const std::size_t at = emptiest.top().second;
    emptiest.pop();
    Bin& bin = bins[at];
    bin.items.push_back(item);
    bin.work += work[static_cast<std::size_t>(item)];
    if (bin.items.size() < work.size() / count) emptiest.emplace(bin.work, at);
  }
  exchange(work, bins);
  // In the order of the items: what is long must not always come first.
  for (Bin& bin : bins) std::ranges::sort(bin.items);
  return bins;
}

}  // namespace

double attention_work(const TokenFile& file, std::int64_t begin, std::int64_t seq) {
  const std::vector<std::int64_t> begins = file.document_begins({begin, begin + seq});
  double work = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::int64_t stop = i + 1 < begins.size() ? begins[i + 1] : begin + seq;
    const auto length = static_cast<double>(stop - std::max(begins[i], begin));
    work += length * length;
  }
  return work;
}

std::vector<std::int64_t> balance(std::span<const double> work, const Division& division) {
  const std::size_t microbatches = work.size() / static_cast<std::size_t>(division.microbatch);
  MS_ASSERT(microbatches * static_cast<std::size_t>(division.microbatch) == work.size() &&
                microbatches % static_cast<std::size_t>(division.dp) == 0,
            "{} samples, microbatches of {}, dp {}", work.size(), division.microbatch, division.dp);
  const std::vector<Bin> bins = divide(work, microbatches);
  std::vector<double> work_of;
  for (const Bin& bin : bins) work_of.push_back(bin.work);
  std::vector<std::int64_t> rows;
  for (const Bin& rank : divide(work_of, static_cast<std::size_t>(division.dp))) {
    for (const std::int64_t bin : rank.items) {
      const std::vector<std::int64_t>& samples = bins[static_cast<std::size_t>(bin)].items;
      rows.insert(rows.end(), samples.begin(), samples.end());
    }
  }
  return rows;
}

double imbalance(std::span<const double> work, std::span<const std::int64_t> rows, int dp) {
  const std::size_t of_rank = rows.size() / static_cast<std::size_t>(dp);
  double all = 0, most = 0;
  for (int rank = 0; rank < dp; ++rank) {
    double sum = 0;
    for (const std::int64_t sample : rows.subspan(static_cast<std::size_t>(rank) * of_rank, of_rank))
      sum += work[static_cast<std::size_t>(sample)];
    all += sum;
    most = std::max(most, sum);
  }
  return all > 0 ? most * dp / all : 1;
}

}  // namespace ms::data
