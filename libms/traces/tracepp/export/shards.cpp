// Implements export_perfetto_shards of export.h.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/user_path.h"
#include "trace/trace_file.h"
#include "tracepp/export/perfetto.h"
#include "tracepp/report/json.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostShards = 10'000;

// The ranks of some files, by number, and their dp ranks.
struct ShardRanks {
  int first_dp = 0, last_dp = 0;
  std::vector<int> ranks;
};
struct ShardSteps {
  std::int32_t first = kNoStep, last = kNoStep;
  bool has_none = false;     // events of no step, too
  std::uint64_t events = 0;  // of all ranks
  std::int32_t begin() const { return has_none ? kNoStep : first; }
};

std::vector<ShardRanks> shards_of_ranks(const ShardedRun& run, int dp) {
  std::vector<ShardedRun::Rank> order = run.ranks;
  std::ranges::stable_sort(order, {}, &ShardedRun::Rank::dp);
  std::vector<ShardRanks> shards;
  int replicas = 0;
  for (const ShardedRun::Rank& rank : order) {
    const bool is_next = !shards.empty() && rank.dp != shards.back().last_dp;
    if (is_next) ++replicas;
    if (shards.empty() || (is_next && dp > 0 && replicas == dp)) {
      shards.push_back({.first_dp = rank.dp, .last_dp = rank.dp, .ranks = {}});
      replicas = 0;
    }
    shards.back().last_dp = rank.dp;
    shards.back().ranks.push_back(rank.rank);
  }
  for (ShardRanks& shard : shards) std::ranges::sort(shard.ranks);
  return shards;
}

std::vector<ShardSteps> shards_of_steps(const ShardedRun& run, std::int32_t steps) {
  std::vector<ShardSteps> shards;
  std::uint64_t events_of_none = 0;
  bool has_none = false;
  std::int32_t held = 0;
  for (const auto& [step, events] : run.steps) {
    if (step == kNoStep) {
      has_none = true;
      events_of_none = events;
      continue;
    }
    if (shards.empty() || (steps > 0 && held == steps)) {
      shards.push_back({.first = step});
      held = 0;
    }
    shards.back().last = step;
    shards.back().events += events;
    ++held;
  }
  if (has_none && shards.empty()) shards.emplace_back();
  if (has_none) {
    shards.front().has_none = true;
    shards.front().events += events_of_none;
  }
  return shards;
}

// The end of the shards from `from` on that are read at a time: reading the files once for each would take long.
std::size_t end_of_batch(const std::vector<ShardSteps>& shards, std::size_t from, double share_of_ranks) {
  constexpr double kEventsAtOnce = 1 << 20;
  double events = 0;
  std::size_t end = from;
  for (; end < shards.size(); ++end) {
    events += share_of_ranks * static_cast<double>(shards[end].events);
    if (end > from && events > kEventsAtOnce) break;
  }
  return end;
}

std::string shard_name(const ShardSteps& steps, const ShardRanks& ranks, int step_digits, int dp_digits,
                       std::string_view axis) {
  const std::string of_steps =
      steps.first == kNoStep ? "steps-none"
                             : fmt::format("steps-{:0{}}-{:0{}}", steps.first, step_digits, steps.last, step_digits);
  return fmt::format("{}.{}-{:0{}}-{:0{}}.perfetto", of_steps, axis, ranks.first_dp, dp_digits, ranks.last_dp,
                     dp_digits);
}

int digits_of(std::int64_t number) { return static_cast<int>(std::to_string(number).size()); }

void make_empty(const std::string& directory) {
  make_user_directories(directory);
  if (!std::filesystem::is_empty(directory))
    throw user_error("cli.value", fmt::format("{} is not empty", directory), "name a new directory for the files");
}

}  // namespace

ShardedRun sharded(const RunTrace& trace, const ExportOptions& options) {
  ShardedRun run{.run = trace.run, .has_mesh = trace.has_mesh, .origin_ns = first_begin_ns(trace)};
  for (const RankTrace& rank : trace.ranks) {
    if (!options.has_rank(rank.rank)) continue;
    run.ranks.push_back({.rank = rank.rank, .dp = trace.has_mesh ? rank.at.dp : rank.rank});
    for (const Event& event : rank.events)
      if (options.has_step(event.step)) ++run.steps[event.step];
  }
  run.read = [&trace](const std::vector<int>&, std::int32_t, std::int32_t) -> const RunTrace& { return trace; };
  return run;
}

namespace {

// Writes the shards one by one.
class ShardWriter {
 public:
  ShardWriter(const ShardedRun& of, const std::string& directory, const std::vector<ShardRanks>& ranks,
              const std::vector<ShardSteps>& steps)
      : of_(of),
        directory_(directory),
        axis_(of.has_mesh ? "dp" : "rank"),
        step_digits_(steps.empty() ? 1 : digits_of(steps.back().last)),
        dp_digits_(ranks.empty() ? 1 : digits_of(ranks.back().last_dp)) {
    run_.origin_ns = of.origin_ns;
  }

  // The events of these ranks and steps in `trace`, on the tracks that the ranks had so far.
  void write(const RunTrace& trace, const ShardRanks& ranks, const ShardSteps& steps,
             std::map<int, RankTracks>& tracks) {
    const std::string name = shard_name(steps, ranks, step_digits_, dp_digits_, axis_);
    const std::string path = directory_ + "/" + name;
    const ExportOptions shown{.ranks = {}, .first_step = steps.begin(), .last_step = steps.last};
    PerfettoFile file(run_, trace, nullptr, path);
    for (const int rank : ranks.ranks) {
      const RankTrace* const found = trace.rank(rank);
      if (found == nullptr) continue;  // it is gone since
      file.add(static_cast<std::size_t>(found - trace.ranks.data()), picture_of(trace, *found, shown, tracks[rank]),
               shown.first_step, shown.last_step);
    }
    if (file.events() == 0) return;  // these ranks left nothing of these steps
    file.commit();
    const std::uint64_t bytes = std::filesystem::file_size(path), cut = file.cut_arrows();
    written_.files += 1;
    written_.events += file.events();
    written_.bytes += bytes;
    written_.largest_bytes = std::max(written_.largest_bytes, bytes);
    written_.arrow_ends += cut;
    list_.push_back({{"file", name},
                     {"first_step", steps.first == kNoStep ? Json() : Json(steps.first)},
                     {"last_step", steps.first == kNoStep ? Json() : Json(steps.last)},
                     {"ranks", trace::ranks_text(ranks.ranks)},
                     {"events", file.events()},
                     {"bytes", bytes},
                     {"begin_s", seconds(file.begin_ns())},
                     {"end_s", seconds(file.end_ns())},
                     {"cut_arrows", cut}});
  }

  ShardsWritten end() {
    write_user_file(directory_ + "/index.json",
                    dump(Json{{"schema", 1}, {"run", of_.run}, {"files", std::move(list_)}}));
    return written_;
  }

 private:
  const ShardedRun& of_;
  const std::string& directory_;
  std::string_view axis_;
  int step_digits_, dp_digits_;
  PerfettoRun run_;
  ShardsWritten written_;
  Json list_ = Json::array();
};

}  // namespace

ShardsWritten export_perfetto_shards(const ShardedRun& run, const std::string& directory, const Sharding& sharding) {
  const std::vector<ShardRanks> of_ranks = shards_of_ranks(run, sharding.dp);
  const std::vector<ShardSteps> of_steps = shards_of_steps(run, sharding.steps);
  if (of_ranks.size() * of_steps.size() > kMostShards) {
    throw user_error(
        "cli.value",
        fmt::format("that would be {} files, more than {}", of_ranks.size() * of_steps.size(), kMostShards),
        "let a file hold more steps or dp ranks");
  }
  make_empty(directory);
  ShardWriter writer(run, directory, of_ranks, of_steps);
  for (const ShardRanks& ranks : of_ranks) {
    std::map<int, RankTracks> tracks;
    const double share = static_cast<double>(ranks.ranks.size()) / static_cast<double>(run.ranks.size());
    for (std::size_t from = 0; from < of_steps.size();) {
      const std::size_t end = end_of_batch(of_steps, from, share);
      const RunTrace& trace = run.read(ranks.ranks, of_steps[from].begin(), of_steps[end - 1].last);
      for (; from < end; ++from) writer.write(trace, ranks, of_steps[from], tracks);
    }
  }
  return writer.end();
}

}  // namespace ms::tracepp
