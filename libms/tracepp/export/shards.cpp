// Implements export_perfetto_shards of export.h.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/user_path.h"
#include "trace/trace_file.h"
#include "tracepp/export/perfetto.h"
#include "tracepp/report/json.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostShards = 10'000;

// The ranks of some files, by index, and their dp ranks.
struct ShardRanks {
  int first_dp = 0, last_dp = 0;
  std::vector<std::size_t> ranks;
};
struct ShardSteps {
  std::int32_t first = kNoStep, last = kNoStep;
  bool has_none = false;  // events of no step, too
  std::int32_t begin() const { return has_none ? kNoStep : first; }
};

// Returns the dp rank; of a trace without a mesh the rank.
int dp_of(const RunTrace& trace, std::size_t rank) {
  return trace.has_mesh ? trace.ranks[rank].at.dp : trace.ranks[rank].rank;
}

std::vector<ShardRanks> shards_of_ranks(const RunTrace& trace, const ExportOptions& options, int dp) {
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r)
    if (options.has_rank(trace.ranks[r].rank)) order.push_back(r);
  std::ranges::stable_sort(order, {}, [&](std::size_t r) { return dp_of(trace, r); });
  std::vector<ShardRanks> shards;
  int replicas = 0;
  for (const std::size_t r : order) {
    const int at = dp_of(trace, r);
    const bool is_next = !shards.empty() && at != shards.back().last_dp;
    if (is_next) ++replicas;
    if (shards.empty() || (is_next && dp > 0 && replicas == dp)) {
      shards.push_back({.first_dp = at, .last_dp = at, .ranks = {}});
      replicas = 0;
    }
    shards.back().last_dp = at;
    shards.back().ranks.push_back(r);
  }
  return shards;
}

std::vector<ShardSteps> shards_of_steps(const RunTrace& trace, const ExportOptions& options, std::int32_t steps) {
  std::set<std::int32_t> numbers;
  for (const RankTrace& rank : trace.ranks) {
    if (!options.has_rank(rank.rank)) continue;
    for (const Event& event : rank.events)
      if (options.has_step(event.step)) numbers.insert(event.step);
  }
  std::vector<ShardSteps> shards;
  const bool has_none = numbers.erase(kNoStep) > 0;
  std::int32_t held = 0;
  for (const std::int32_t step : numbers) {
    if (shards.empty() || (steps > 0 && held == steps)) {
      shards.push_back({.first = step});
      held = 0;
    }
    shards.back().last = step;
    ++held;
  }
  if (has_none && shards.empty()) shards.emplace_back();
  if (has_none) shards.front().has_none = true;
  return shards;
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

ShardsWritten export_perfetto_shards(const RunTrace& trace, const std::string& directory, const ExportOptions& options,
                                     const Sharding& sharding) {
  const std::vector<ShardRanks> of_ranks = shards_of_ranks(trace, options, sharding.dp);
  const std::vector<ShardSteps> of_steps = shards_of_steps(trace, options, sharding.steps);
  if (of_ranks.size() * of_steps.size() > kMostShards) {
    throw user_error(
        "cli.value",
        fmt::format("that would be {} files, more than {}", of_ranks.size() * of_steps.size(), kMostShards),
        "let a file hold more steps or dp ranks");
  }
  make_empty(directory);
  const std::string_view axis = trace.has_mesh ? "dp" : "rank";
  const int step_digits = of_steps.empty() ? 1 : digits_of(of_steps.back().last);
  const int dp_digits = of_ranks.empty() ? 1 : digits_of(of_ranks.back().last_dp);
  PerfettoRun run(trace);
  ShardsWritten written;
  Json list = Json::array();
  for (const ShardRanks& ranks : of_ranks) {
    // Pictures of the whole time, so that an event has the same track in whatever file it is.
    std::vector<RankPicture> pictures;
    std::vector<int> numbers;
    for (const std::size_t r : ranks.ranks) {
      pictures.push_back(picture_of(trace, trace.ranks[r], options));
      numbers.push_back(trace.ranks[r].rank);
    }
    std::ranges::sort(numbers);
    for (const ShardSteps& steps : of_steps) {
      const std::string name = shard_name(steps, ranks, step_digits, dp_digits, axis);
      const std::string path = directory + "/" + name;
      PerfettoFile file(run, path);
      for (std::size_t i = 0; i < pictures.size(); ++i)
        file.add(ranks.ranks[i], pictures[i], steps.begin(), steps.last);
      if (file.events() == 0) continue;  // these ranks left nothing of these steps
      file.commit();
      const std::uint64_t bytes = std::filesystem::file_size(path), cut = file.cut_arrows();
      written.files += 1;
      written.events += file.events();
      written.bytes += bytes;
      written.largest_bytes = std::max(written.largest_bytes, bytes);
      written.arrow_ends += cut;
      list.push_back({{"file", name},
                      {"first_step", steps.first == kNoStep ? Json() : Json(steps.first)},
                      {"last_step", steps.first == kNoStep ? Json() : Json(steps.last)},
                      {"ranks", trace::ranks_text(numbers)},
                      {"events", file.events()},
                      {"bytes", bytes},
                      {"begin_s", seconds(file.begin_ns())},
                      {"end_s", seconds(file.end_ns())},
                      {"cut_arrows", cut}});
    }
  }
  write_user_file(directory + "/index.json", dump(Json{{"schema", 1}, {"run", trace.run}, {"files", std::move(list)}}));
  return written;
}

}  // namespace ms::tracepp
