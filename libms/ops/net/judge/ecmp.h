// Do flows between two nodes share what they should not? Several connections, each with a source port of its own, one
// at a time and all together: what each carries says whether hashing put them on one path of several, whether a path is
// slow, or whether they merely share what there is. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ms::net {

enum class FlowVerdict {
  even,       // flows share evenly
  collision,  // alone each is as fast as the others; together some are not, and together they carry more than one path
              // does: several are hashed to one path. TCP's own unfairness on a single path is none.
  slow_path,  // some are slow even alone: the path that they are hashed to is
};
constexpr std::string_view to_string(FlowVerdict verdict) {
  return verdict == FlowVerdict::even ? "even" : verdict == FlowVerdict::collision ? "collision" : "slow path";
}

struct FlowJudgement {
  FlowVerdict verdict = FlowVerdict::even;
  std::vector<int> slow;                // indices of flows that carry less
  double fast_gbps = 0, slow_gbps = 0;  // of the two kinds, their medians; alone for a slow path, else together
  double paths = 1;  // that carry together what one carries alone: the sum over the rate of one alone
};

// The two sorts that values fall into: where the largest step from one to the next, by ratio, is at least `ratio`. The
// indices of the lower sort; empty where there is but one sort.
std::vector<int> lower_sort(const std::vector<double>& values, double ratio);

// Gbit/s by flow; the same flows in the same order.
// `link_gbps`: of the sender's interface; where that is full, unequal shares are no collision. 0: not known.
FlowJudgement judge_flows(const std::vector<double>& alone, const std::vector<double>& together, double link_gbps = 0);

// Pairs beside each other: what all flows of each carry while no other pair sends, and while all pairs do. Those that
// lose a third or more share a limit: `all` do where it is one behind the first switch (oversubscription); only `some`
// where their flows are hashed to one path.
enum class Sharing { none, some, all };
struct Crowding {
  Sharing sharing = Sharing::none;
  std::vector<int> pairs;  // that lose
};
Crowding judge_crowding(const std::vector<double>& alone, const std::vector<double>& beside_others);

}  // namespace ms::net
