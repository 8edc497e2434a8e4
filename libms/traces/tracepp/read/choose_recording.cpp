#include "tracepp/read/choose_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;

// One profile of a job: ranks that were traced at one time, or whose files are in one directory.
struct Recording {
  std::vector<std::size_t> ranks;  // indices
  std::int64_t begin_ns = 0, end_ns = 0;
  std::string directory;  // of its first file
  bool has_twice(const RunTrace& trace) const {
    std::set<int> seen;
    return std::ranges::any_of(
        ranks, [&](std::size_t r) { return trace.ranks[r].rank >= 0 && !seen.insert(trace.ranks[r].rank).second; });
  }
};

// When a rank was traced; where its times are not since 1970, a second a step stands for it.
struct Traced {
  std::int64_t begin_ns = 0, end_ns = 0;
  bool is_since_1970 = false;
};

Traced traced(const RankTrace& rank) {
  constexpr std::int64_t kEarliestNs = 946'684'800'000'000'000, kSecondNs = 1'000'000'000;  // the year 2000
  if (rank.events.empty()) return {};
  if (rank.events.front().begin_ns >= kEarliestNs) return {rank.events.front().begin_ns, rank.last_flush_ns, true};
  std::int64_t first = kNoStep, last = kNoStep;
  for (const Event& event : rank.events) {
    if (event.step == kNoStep) continue;
    first = first == kNoStep ? event.step : std::min<std::int64_t>(first, event.step);
    last = std::max<std::int64_t>(last, event.step);
  }
  return {first * kSecondNs, last * kSecondNs};
}

std::vector<Recording> recordings_of(const RunTrace& trace) {
  std::map<std::string, Recording> by_directory;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const std::string directory = fs::path(trace.ranks[r].file).parent_path();
    by_directory[directory].ranks.push_back(r);
    by_directory[directory].directory = directory;
  }
  // Directories may be those of nodes, of profiles, or of runs; one that was profiled several times is split by time.
  std::vector<Recording> found;
  for (auto& [directory, all] : by_directory) {
    const auto span = [&](std::size_t r) { return traced(trace.ranks[r]); };
    std::ranges::stable_sort(all.ranks, {}, [&](std::size_t r) { return span(r).begin_ns; });
    const bool splits =
        all.has_twice(trace) && std::ranges::all_of(all.ranks, [&](std::size_t r) { return span(r).is_since_1970; });
    Recording* last = nullptr;
    for (const std::size_t r : all.ranks) {
      if (last == nullptr || (splits && span(r).begin_ns > last->end_ns)) {
        last = &found.emplace_back();
        *last = {.ranks = {}, .begin_ns = span(r).begin_ns, .end_ns = span(r).end_ns, .directory = directory};
      }
      last->ranks.push_back(r);
      last->end_ns = std::max(last->end_ns, span(r).end_ns);
    }
  }
  std::ranges::stable_sort(found, {}, &Recording::begin_ns);
  return found;
}

}  // namespace

void choose_recording(RunTrace& trace) {
  Recording all;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) all.ranks.push_back(r);
  if (!all.has_twice(trace)) return;
  std::vector<Recording> recordings = recordings_of(trace);
  // Joins what lies beside the newest: the directories of other nodes.
  Recording newest = std::move(recordings.back());
  recordings.pop_back();
  std::vector<Recording> others;
  while (!recordings.empty()) {
    Recording next = std::move(recordings.back());
    recordings.pop_back();
    const bool is_beside = next.end_ns >= newest.begin_ns && next.begin_ns <= newest.end_ns;
    Recording joined = newest;
    joined.ranks.insert(joined.ranks.end(), next.ranks.begin(), next.ranks.end());
    if (is_beside && !joined.has_twice(trace)) {
      joined.begin_ns = std::min(joined.begin_ns, next.begin_ns);
      newest = std::move(joined);
    } else if (is_beside && next.directory != newest.directory) {
      throw user_error("trace.run",
                       fmt::format("not of one run: {} and {} have traces of the same ranks at one time",
                                   next.directory, newest.directory),
                       "name the directory of one run only");
    } else {
      others.push_back(std::move(next));
    }
  }
  if (others.empty()) return;
  std::vector<RankTrace> kept;
  for (const std::size_t r : newest.ranks) kept.push_back(std::move(trace.ranks[r]));
  trace.recording = newest.directory;
  for (const Recording& other : others)
    trace.other_recordings.push_back(fmt::format("{}, {}", other.directory, plural(other.ranks.size(), "rank")));
  trace.ranks = std::move(kept);
}

}  // namespace ms::tracepp
