#include "tracepp/read/flight_recorder_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kCopied_ns = 60'000'000'000;  // files that were copied one after the other differ by less

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

  // Returns whether two ranks have the same number by their files' names, though no group tells theirs.
  bool names_clash() const {
    if (world_ > 0 && world_ < trace_.ranks.size()) return false;  // more files than ranks: they are of several worlds
    const auto pair = two_ranks();
    return pair && (pair->first->numbered == Numbered::by_name || pair->second->numbered == Numbered::by_name);
  }

  // Refuses dumps of two ranks with one number, and of two directories.
  void expect_one_world() const {
    const auto directory_of = [](const RankTrace& rank) {
      return std::filesystem::path(rank.file).parent_path().string();
    };
    const auto refuse = [](const std::string& one, const std::string& other, int rank) {
      throw user_error("trace.run",
                       fmt::format("not of one run: {} and {} both have a dump of rank {}", one, other, rank),
                       "they are of two worlds, such as replica groups, of two attempts, or of two times: give the "
                       "dumps of one");
    };
    std::map<int, std::string> directories;  // by number
    for (const RankTrace& rank : trace_.ranks) {
      if (rank.rank < 0) continue;
      const std::string& first = directories.try_emplace(rank.rank, directory_of(rank)).first->second;
      if (first != directory_of(rank)) refuse(first, directory_of(rank), rank.rank);
    }
    if (const auto pair = two_ranks()) refuse(pair->first->file, pair->second->file, pair->first->rank);
  }

  // Returns the dumps of two ranks that have one number.
  std::optional<std::pair<const RankTrace*, const RankTrace*>> two_ranks() const {
    std::map<int, std::vector<const RankTrace*>> of_number;
    for (const RankTrace& rank : trace_.ranks)
      if (rank.rank >= 0 && !rank.events.empty()) of_number[rank.rank].push_back(&rank);
    for (auto& [number, files] : of_number) {
      if (files.size() < 2) continue;
      std::ranges::stable_sort(files, {}, [](const RankTrace* file) { return span_ns(*file).first; });
      for (std::size_t i = 1; i < files.size(); ++i)
        if (are_two_ranks(*files[i - 1], *files[i])) return std::pair(files[i - 1], files[i]);
    }
    return std::nullopt;
  }

  // Returns whether two dumps are of two ranks. Those of one agree on when it made most of the calls that both show, or
  // the one ends, and its file was written, before the other. `a` begins first.
  static bool are_two_ranks(const RankTrace& a, const RankTrace& b) {
    if (span_ns(a).second < span_ns(b).first) return a.file_ns > b.file_ns + kCopied_ns;
    std::set<std::pair<std::int64_t, std::uint32_t>> calls;  // begin and attributes
    for (const Event& event : a.events) calls.emplace(event.begin_ns, event.info);
    std::size_t shared = 0, alike = 0;  // of the calls of b
    for (const Event& event : b.events) {
      if (event.begin_ns > calls.rbegin()->first) continue;
      ++shared;
      alike += calls.contains({event.begin_ns, event.info}) ? 1 : 0;
    }
    return alike * 2 <= shared || lacks_known_calls(a, b) || lacks_known_calls(b, a);
  }

  // Returns whether a dump lacks calls that the other shows, though its file was written long after them. Files of one
  // time tell nothing: a copy gives both its own time.
  static bool lacks_known_calls(const RankTrace& rank, const RankTrace& other) {
    if (rank.is_cut_off || !rank.is_flush_time_known || are_of_one_time(rank, other)) return false;
    const std::int64_t newest_ns = std::ranges::max(rank.events, {}, &Event::begin_ns).begin_ns;
    return std::ranges::any_of(other.events, [&](const Event& event) {
      return event.begin_ns > newest_ns && event.begin_ns + kCopied_ns < rank.file_ns;
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

bool are_of_one_time(const RankTrace& one, const RankTrace& other) {
  return one.file_ns > 0 && other.file_ns > 0 && std::abs(one.file_ns - other.file_ns) <= kCopied_ns;
}

bool shows_more(const RankTrace& one, const RankTrace& other) {
  const auto newest_ns = [](const RankTrace& rank) {
    return rank.events.empty() ? 0 : std::ranges::max(rank.events, {}, &Event::begin_ns).begin_ns;
  };
  if (one.is_cut_off != other.is_cut_off) return other.is_cut_off;
  return newest_ns(one) > newest_ns(other);
}

void number_dumps(RunTrace& trace) { DumpNumbers(trace).find(); }

}  // namespace ms::tracepp
