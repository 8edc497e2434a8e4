#include "net/judge/group_search.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ms::net {
namespace {

constexpr int kReferences = 8;  // pairs, of which the fastest tells what is normal: one of them at least should be good
constexpr int kTests = 5;       // of a node or a pair, before it is accused: most of them decide

}  // namespace

GroupSearch::GroupSearch(int nodes, double times) : n_(nodes), times_(times) {}

const std::vector<GroupSearch::Nodes>& GroupSearch::next() {
  asked_.clear();
  asked_of_.clear();
  if (n_ < 2) return asked_;
  if (normal_s_ < 0) {  // pairs from all over
    const int pairs = std::min(kReferences, n_ / 2);
    for (int i = 0; i < pairs; ++i) {
      const int first = static_cast<int>(std::int64_t{i} * n_ / pairs);
      asked_.push_back({first, first + 1});
    }
    return asked_;
  }
  std::set<int> busy;
  std::vector<int> later;
  for (const int q : open_) {
    const Nodes& nodes = questions_[static_cast<std::size_t>(q)].nodes;
    const bool free = std::ranges::none_of(nodes, [&](int node) { return busy.contains(node); });
    Nodes group = nodes;
    if (free) busy.insert(nodes.begin(), nodes.end());
    if (free && nodes.size() == 1) {
      if (const std::optional<int> with = partner(busy)) {
        group.push_back(*with);
        busy.insert(*with);
      } else {
        busy.erase(nodes.front());
        group.clear();
      }
    }
    if (!free || group.empty()) {
      later.push_back(q);
      continue;
    }
    asked_.push_back(std::move(group));
    asked_of_.push_back(q);
  }
  open_ = std::move(later);
  if (asked_.empty()) {  // no good node is left to test the others with
    for (const int q : open_) {
      const Question& of = questions_[static_cast<std::size_t>(q)];
      found_.push_back({.nodes = of.nodes, .slow = of.slow, .of = of.of, .seconds = of.seconds});
    }
    open_.clear();
  }
  return asked_;
}

// A good node that is not in a test of this round; each time another one.
std::optional<int> GroupSearch::partner(const std::set<int>& busy) {
  const std::vector<int> good(good_.begin(), good_.end());
  for (std::size_t i = 0; i < good.size(); ++i) {
    const int node = good[(next_partner_ + i) % good.size()];
    if (busy.contains(node)) continue;
    next_partner_ = (next_partner_ + i + 1) % good.size();
    return node;
  }
  return std::nullopt;
}

void GroupSearch::take(const std::vector<double>& seconds) {
  MS_ASSERT(seconds.size() == asked_.size(), "{} times of {} groups", seconds.size(), asked_.size());
  tests_ += static_cast<std::int64_t>(seconds.size());
  ++rounds_;
  if (normal_s_ < 0) {
    normal_s_ = std::ranges::min(seconds);
    Nodes all;
    for (int node = 0; node < n_; ++node) all.push_back(node);
    ask(std::move(all), -1);
    return;
  }
  for (std::size_t i = 0; i < seconds.size(); ++i) answer(asked_of_[i], is_slow(seconds[i]), seconds[i]);
}

void GroupSearch::ask(Nodes nodes, int parent) {
  open_.push_back(static_cast<int>(questions_.size()));
  questions_.push_back({.nodes = std::move(nodes), .parent = parent});
}

void GroupSearch::answer(int question, bool slow, double seconds) {
  Question& of = questions_[static_cast<std::size_t>(question)];
  ++of.of;
  if (slow) {
    ++of.slow;
    of.seconds = seconds;
  }
  const int parent = of.parent;
  if (!slow && of.slow == 0) {
    good_.insert(of.nodes.begin(), of.nodes.end());
    if (parent >= 0) half_done(parent, false);
    return;
  }
  if (of.nodes.size() > 1 && of.halves == 0) return split(question);
  // A node that looked bad, or what is slow only as a whole: again, until most of the tests agree.
  if (2 * of.slow > kTests) {
    found_.push_back({.nodes = of.nodes, .slow = of.slow, .of = of.of, .seconds = of.seconds});
    if (parent >= 0) half_done(parent, true);
  } else if (2 * (of.of - of.slow) > kTests) {
    good_.insert(of.nodes.begin(), of.nodes.end());
    if (parent >= 0) half_done(parent, false);
  } else {
    open_.push_back(question);
  }
}

void GroupSearch::split(int question) {
  const Nodes nodes = questions_[static_cast<std::size_t>(question)].nodes;
  questions_[static_cast<std::size_t>(question)].halves = 2;
  const auto middle = nodes.begin() + static_cast<std::ptrdiff_t>(nodes.size() / 2);
  ask({nodes.begin(), middle}, question);
  ask({middle, nodes.end()}, question);
}

void GroupSearch::half_done(int question, bool was_slow) {
  Question& of = questions_[static_cast<std::size_t>(question)];
  --of.halves;
  if (!was_slow) ++of.good_halves;
  if (of.halves > 0) return;
  const int parent = of.parent;
  if (of.good_halves < 2) {
    if (parent >= 0) half_done(parent, true);
    return;
  }
  of.halves = -1;  // both halves are good: is it slow together, or was it a bad moment?
  open_.push_back(question);
}

}  // namespace ms::net
