#include "tracepp/read/dump_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"

namespace ms::tracepp {
namespace {

class DumpNumbers {
 public:
  explicit DumpNumbers(RunTrace& trace) : trace_(trace) {
    for (const ProcessGroup& group : trace_.groups) {
      if (group.ranks.empty()) continue;
      world_ = std::max(world_, static_cast<std::size_t>(*std::ranges::max_element(group.ranks)) + 1);
    }
  }

  void find() {
    candidates_.resize(trace_.ranks.size());
    for (std::size_t at = 0; at < trace_.ranks.size(); ++at) {
      RankTrace& rank = trace_.ranks[at];
      if (rank.numbered == Numbered::inside) continue;
      candidates_[at] = candidates(rank);
      if (candidates_[at].size() != 1) continue;
      rank.rank = candidates_[at].front();
      rank.numbered = Numbered::inside;
    }
    if (names_clash()) {
      for (RankTrace& rank : trace_.ranks)
        if (rank.numbered == Numbered::by_name) rank.rank = -1;
    }
    expect_one_world();
    make_up();
  }

 private:
  // Returns the ranks that are members of all groups in which this one issued collectives; empty: no group tells.
  std::vector<int> candidates(const RankTrace& rank) const {
    std::optional<std::vector<int>> left;
    std::set<std::int32_t> seen;
    for (const Event& event : rank.events) {
      const EventInfo& info = trace_.info(event);
      if (info.group < 0 || trace::is_point_to_point(info.kind) || !seen.insert(info.group).second) continue;
      std::vector<int> members = trace_.groups[static_cast<std::size_t>(info.group)].ranks;
      if (members.empty()) continue;
      std::ranges::sort(members);
      if (!left) {
        left = std::move(members);
        continue;
      }
      std::vector<int> both;
      std::ranges::set_intersection(*left, members, std::back_inserter(both));
      left = std::move(both);
    }
    return left.value_or(std::vector<int>{});
  }

  // Returns whether two ranks have the same number by their files' names. Of one rank, two dumps share entries, or
  // the one ends before the other begins.
  bool names_clash() const {
    if (world_ > 0 && world_ < trace_.ranks.size()) return false;  // more files than ranks: some are of other attempts
    std::map<int, std::vector<const RankTrace*>> of_number;
    for (const RankTrace& rank : trace_.ranks)
      if (rank.rank >= 0 && !rank.events.empty()) of_number[rank.rank].push_back(&rank);
    return std::ranges::any_of(of_number, [&](const auto& it) {
      const std::vector<const RankTrace*>& files = it.second;
      const bool by_name = std::ranges::any_of(files, [](auto* file) { return file->numbered == Numbered::by_name; });
      return by_name && files.size() > 1 && are_two_ranks(*files[0], *files[1]);
    });
  }

  void expect_one_world() const {
    const auto directory_of = [](const RankTrace& rank) {
      return std::filesystem::path(rank.file).parent_path().string();
    };
    std::map<int, std::string> directories;  // by number
    for (const RankTrace& rank : trace_.ranks) {
      if (rank.rank < 0) continue;
      const std::string& first = directories.try_emplace(rank.rank, directory_of(rank)).first->second;
      if (first == directory_of(rank)) continue;
      throw user_error(
          "trace.run",
          fmt::format("not of one run: {} and {} both have a dump of rank {}", first, directory_of(rank), rank.rank),
          "they are of two worlds, such as replica groups, of two attempts, or of two times: give the directories of "
          "one");
    }
  }

  static bool are_two_ranks(const RankTrace& a, const RankTrace& b) {
    const auto [a_first, a_last] = span_ns(a);
    const auto [b_first, b_last] = span_ns(b);
    if (a_last < b_first || b_last < a_first) return false;
    std::set<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>> entries;
    for (const Event& event : a.events) entries.emplace(event.begin_ns, event.detail, event.info);
    return std::ranges::none_of(b.events, [&](const Event& event) {
      return entries.contains({event.begin_ns, event.detail, event.info});
    });
  }

  static std::pair<std::int64_t, std::int64_t> span_ns(const RankTrace& rank) {
    std::int64_t first_ns = rank.events.front().begin_ns, last_ns = first_ns;
    for (const Event& event : rank.events) {
      first_ns = std::min(first_ns, event.begin_ns);
      last_ns = std::max(last_ns, event.end_ns());
    }
    return {first_ns, last_ns};
  }

  // Gives those without a number one that their groups allow and no other has, in the order of the files; those with
  // the least choice first.
  void make_up() {
    std::set<int> taken;
    std::vector<std::size_t> order;
    for (std::size_t at = 0; at < trace_.ranks.size(); ++at) {
      taken.insert(trace_.ranks[at].rank);
      if (trace_.ranks[at].rank < 0 && !candidates_[at].empty()) order.push_back(at);
    }
    std::ranges::stable_sort(order, {}, [&](std::size_t at) { return candidates_[at].size(); });
    for (const std::size_t at : order) {
      const auto free = std::ranges::find_if(candidates_[at], [&](int number) { return !taken.contains(number); });
      if (free == candidates_[at].end()) continue;
      RankTrace& rank = trace_.ranks[at];
      rank.rank = *free;
      rank.numbered = Numbered::made_up;
      taken.insert(*free);
      ++trace_.problems["rank whose number nothing tells"];
    }
  }

  RunTrace& trace_;
  std::vector<std::vector<int>> candidates_;  // by rank
  std::size_t world_ = 0;                     // 0: not known
};

}  // namespace

void number_dumps(RunTrace& trace) { DumpNumbers(trace).find(); }

}  // namespace ms::tracepp
