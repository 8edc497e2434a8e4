#include "fabric/rank_workers.h"

#include <algorithm>

#include "fabric/collectives.h"
#include "fabric/rank_part.h"

namespace ms::fabric {
namespace {

using net::PairResult;
using net::PairSpec;
using net::Round;

Round round_in(const std::vector<int>& words) {
  Round round;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) round.emplace_back(words[i], words[i + 1]);
  return round;
}
std::vector<std::vector<int>> groups_in(const std::vector<int>& words) {
  std::vector<std::vector<int>> groups;
  for (std::size_t at = 0; at < words.size(); at += 1 + groups.back().size()) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    groups.emplace_back(begin, begin + words[at]);
  }
  return groups;
}

}  // namespace

RankWorkers::RankWorkers(comm::World& world, const RankDevices& devices)
    : is_first_(world.rank() == 0), one_gpu_a_node_(devices.data.kind() == "cuda") {
  for (int rank = 0; rank < world.size(); ++rank) {
    if (std::ranges::find(nodes_, world.node(rank)) != nodes_.end()) continue;
    nodes_.push_back(world.node(rank));
    ranks_.push_back(rank);
  }
  if (ranks_.size() == 1) {
    const std::string node = nodes_.front();
    nodes_.clear();
    ranks_.clear();
    one_gpu_a_node_ = false;
    for (int rank = 0; rank < world.size(); ++rank) {
      nodes_.push_back(fmt::format("{}:{}", node, rank));
      ranks_.push_back(rank);
    }
  }
  invited_ = nodes_.size();
  part_ = std::make_unique<RankPart>(world, devices, nodes_, ranks_);
}

RankWorkers::~RankWorkers() {
  if (!is_first_ || !works_) return;
  Order over;
  std::vector<int> none;
  try {
    part_->tell(over, none);
  } catch (const Error&) { works_ = false; }  // the others find out by themselves
}

void RankWorkers::serve() {
  while (true) {
    Order order;
    std::vector<int> words;
    part_->tell(order, words);
    switch (order.kind) {
      case Order::Kind::over: return;
      case Order::Kind::pairs: part_->run(round_in(words), order.spec); break;
      case Order::Kind::groups: part_->reduce(groups_in(words), order.spec.bytes);
    }
  }
}

std::vector<std::string> RankWorkers::not_run() const {
  std::vector<std::string> not_run{"lost datagrams and the size of packets: not over communicators"};
  if (one_gpu_a_node_) not_run.emplace_back("other GPUs of the nodes, and adapters near them: --gpu takes another one");
  return not_run;
}

std::vector<PairResult> RankWorkers::test(const Round& round, const PairSpec& spec, int /*source_port*/) {
  std::vector<PairResult> results(round.size());
  for (std::size_t i = 0; i < round.size(); ++i) {
    results[i].a = round[i].first;
    results[i].b = round[i].second;
    results[i].at_once = spec.both_at_once && spec.back;
  }
  const auto fail = [&](const std::string& why, int at_fault) {
    for (PairResult& result : results) {
      result.error = why;
      result.at_fault = result.a == at_fault || result.b == at_fault ? at_fault : -1;
      result.cut_short = result.at_fault < 0;
    }
    // Where its pair is not of this round, another one has it.
    if (at_fault >= 0 && std::ranges::all_of(results, &PairResult::cut_short)) results.front().at_fault = at_fault;
    return results;
  };
  try {
    Order order{.kind = Order::Kind::pairs, .spec = spec};
    std::vector<int> words;
    for (const auto& [a, b] : round) words.insert(words.end(), {a, b});
    part_->tell(order, words);
    const std::vector<Seen> seen = part_->run(round, spec);
    for (PairResult& result : results) {
      const Seen &a = seen[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(result.a)])],
                 &b = seen[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(result.b)])];
      result.least_us = a.least_us;
      result.p50_us = a.p50_us;
      result.p99_us = a.p99_us;
      if (a.pings > 0) result.cpu_wait_us = (a.cpu_wait_s + b.cpu_wait_s) * 1e6 / 2 / a.pings;
      result.there.gbps = b.gbps[0];
      if (spec.back) result.back.gbps = a.gbps[spec.both_at_once ? 0 : 1];
      result.seconds = a.seconds;
    }
    return results;
  } catch (const Error& error) {
    works_ = false;
    const auto node = error.rank() ? std::ranges::find(ranks_, *error.rank()) : ranks_.end();
    if (node != ranks_.end()) return fail(error.message(), static_cast<int>(node - ranks_.begin()));
    if (error.blame() != Blame::peer) throw;
    undecided_ = {.operation = error.operation(), .why = error.message()};
    return fail(error.message(), -1);
  }
}

std::vector<double> RankWorkers::time_groups(const std::vector<std::vector<int>>& groups) {
  std::vector<int> words;
  for (const std::vector<int>& group : groups) {
    words.push_back(static_cast<int>(group.size()));
    words.insert(words.end(), group.begin(), group.end());
  }
  const auto time = [&] {
    Order order{.kind = Order::Kind::groups, .spec = {}};
    order.spec.bytes = reduced_bytes_;
    std::vector<int> told = words;
    part_->tell(order, told);
    const std::vector<double> by_rank = part_->reduce(groups, reduced_bytes_);
    std::vector<double> seconds;
    for (const std::vector<int>& group : groups) {
      double slowest = 0;
      for (const int node : group)
        slowest = std::max(slowest, by_rank[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(node)])]);
      seconds.push_back(slowest / net::bus_factor(net::Collective::all_reduce, static_cast<int>(group.size())));
    }
    return seconds;
  };
  std::vector<double> seconds = time();
  if (sized_) return seconds;
  // The first time tells how much takes long enough; from then on it is the same for all.
  sized_ = true;
  const double fits = kReduction_s / std::max(std::ranges::min(seconds), 1e-9);
  reduced_bytes_ = static_cast<std::int64_t>(static_cast<double>(kLeastReduced) * std::clamp(fits, 1.0, 32.0)) / 4 * 4;
  return reduced_bytes_ == kLeastReduced ? seconds : time();
}

std::optional<net::Checked> check_ranks(const net::RanksRequest& request,
                                        const std::function<net::Checked(net::LaunchedWorkers& workers)>& check) {
  std::optional<net::Checked> checked;
  try {
    run_ranks(request, [&](comm::World& world, const RankDevices& devices) {
      RankWorkers workers(world, devices);
      if (world.rank() == 0) {
        checked = check(workers);
      } else {
        workers.serve();
      }
    });
  } catch (const Error&) {
    if (!checked) throw;  // else it is about a rank that was lost, and in the results
  }
  return checked;
}

}  // namespace ms::fabric
