// Implements info and clocks_text of report.h: ranks, hosts, steps, endings, clocks.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "tracepp/gaps.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kPathBytes = 200, kMostWhy = 400;

std::pair<std::int64_t, std::int64_t> step_range(const RunTrace& trace) {
  std::int64_t first = -1, last = -1;
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      if (event.step < 0) continue;
      first = first < 0 ? event.step : std::min<std::int64_t>(first, event.step);
      last = std::max<std::int64_t>(last, event.step);
    }
  }
  return {first, last};
}

// 0: not known.
std::size_t host_count(const RunTrace& trace) {
  std::set<std::string_view> hosts;
  for (const RankTrace& rank : trace.ranks)
    if (!rank.host.empty()) hosts.insert(rank.host);
  return hosts.size();
}

// Returns when the trace begins, and its last write, in seconds since 1970 by the wall clock; 0: not known.
std::pair<std::int64_t, std::int64_t> wall_times(const RunTrace& trace) {
  constexpr std::int64_t kSecond = 1'000'000'000;  // so that no sum can leave its range, whatever a file says
  std::int64_t began_s = 0, last_s = 0;
  for (const RankTrace& rank : trace.ranks) {
    if (rank.realtime_ns <= 0) continue;
    std::int64_t first_ns = rank.last_flush_ns;
    for (const Event& event : rank.events)
      if (event.state != State::issued) first_ns = std::min(first_ns, event.begin_ns);
    if (!rank.sums.empty()) first_ns = std::min(first_ns, rank.sums.front().begin_ns);
    const auto wall_s = [&](std::int64_t time_ns) {
      return rank.realtime_ns / kSecond + time_ns / kSecond - rank.clock_ns / kSecond;
    };
    began_s = began_s == 0 ? wall_s(first_ns) : std::min(began_s, wall_s(first_ns));
    last_s = std::max(last_s, wall_s(rank.last_flush_ns));
  }
  return {began_s, last_s};
}

std::string utc_text(std::int64_t wall_s) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(wall_s)));
}

std::string mesh_text(const RunTrace& trace) {
  std::string text = "not known";
  if (trace.has_mesh) text = fmt::format("dp {} x pp {} x tp {}", trace.mesh.dp, trace.mesh.pp, trace.mesh.tp);
  if (!trace.mesh_why.empty()) text += (trace.has_mesh ? ", " : ": ") + plain_text(trace.mesh_why, kMostWhy);
  return text;
}

std::string ending_words(Ending ending) {
  switch (ending) {
    case Ending::running: return "not ended";
    case Ending::timed_out: return "timed out";
    case Ending::stopped: return "stopped by another rank";
    case Ending::unknown: return "not known";
    default: return std::string(to_string(ending));
  }
}

std::string endings_text(const RunTrace& trace) {
  std::map<std::string, std::size_t> counts;
  for (const RankTrace& rank : trace.ranks) {
    std::string how = ending_words(rank.ending);
    if (has_error(rank.ending)) how += ": " + plain_text(rank.ending_text, 160);
    ++counts[std::move(how)];
  }
  std::string text;
  std::size_t shown = 0;
  for (const auto& [how, count] : counts) {
    if (shown++ == 4) return text + fmt::format("ended         {} more ways\n", counts.size() - 4);
    text += fmt::format("ended         {}: {}\n", plural(count, "rank"), how);
  }
  return text;
}

// Returns where the run before this one is: the writer keeps its files beside the new ones. Empty: it is not here.
std::string run_before(const RunTrace& trace) {
  const auto kept = [](const RankTrace& rank) {
    std::error_code failed;
    return !rank.file.empty() && std::filesystem::exists(rank.file + ".previous", failed);
  };
  const auto first = std::ranges::find_if(trace.ranks, kept);
  if (first == trace.ranks.end()) return "";
  const std::filesystem::path dir = std::filesystem::path(first->file).parent_path();
  return plain_text((dir / "*.previous").string(), kPathBytes);
}

// 0: not known.
std::int64_t world_of(const RunTrace& trace) { return trace.has_mesh ? trace.mesh.size() : trace.world; }

// "cpu"; of unlike ranks "cpu, sim"; empty: not known.
std::string devices(const RunTrace& trace) {
  constexpr std::size_t kName = 64;
  std::set<std::string> names;
  for (const RankTrace& rank : trace.ranks)
    if (!rank.device.empty()) names.insert(plain_text(rank.device, kName));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::uint64_t dropped(const RunTrace& trace) {
  std::uint64_t sum = 0;
  for (const RankTrace& rank : trace.ranks) sum += rank.dropped;
  return sum;
}

}  // namespace

std::string unknown_device_text(const RunTrace& trace) {
  if (trace.unknown_device_ns.empty() || trace.device_ns <= 0) return "";
  constexpr std::size_t kShown = 4, kName = 40;
  std::vector<std::pair<std::int64_t, std::string>> most;
  std::int64_t sum_ns = 0;
  for (const auto& [category, ns] : trace.unknown_device_ns) {
    most.emplace_back(ns, category.empty() ? "none" : plain_text(category, kName));
    sum_ns += ns;
  }
  std::ranges::sort(most, std::ranges::greater{});
  std::string names;
  for (std::size_t i = 0; i < std::min(most.size(), kShown); ++i) names += (i > 0 ? ", " : "") + most[i].second;
  if (most.size() > kShown) names += fmt::format(" and {} more", most.size() - kShown);
  return fmt::format("{:.0f} % of device time is of categories unknown here: {}; it counts as computing",
                     100.0 * static_cast<double>(sum_ns) / static_cast<double>(trace.device_ns), names);
}

std::string info_text(const RunTrace& trace) {
  const auto [first, last] = step_range(trace);
  std::string text = fmt::format("source        {}\n", trace.source->name);
  if (!trace.run.empty()) text += fmt::format("run           {}\n", plain_text(trace.run, 100));
  text += fmt::format("mesh          {}\n", mesh_text(trace));
  const std::size_t hosts = host_count(trace);
  text += fmt::format("ranks         {} of {}, on {}\n", trace.ranks.size(),
                      world_of(trace) > 0 ? std::to_string(world_of(trace)) : "?",
                      hosts == 0 ? "hosts that are not named" : plural(hosts, "host"));
  if (const std::string gaps = gaps_text(find_gaps(trace)); !gaps.empty())
    text += fmt::format("missing       {}\n", gaps);
  if (const std::string device = devices(trace); !device.empty())
    text += fmt::format("device        {}\n", plain_text(device, 100));
  if (const auto [began_s, last_s] = wall_times(trace); began_s > 0)
    text += fmt::format("time          began {}, last written {}\n", utc_text(began_s), utc_text(last_s));
  text += fmt::format("events        {}\n", trace.event_count());
  if (const std::string unknown = unknown_device_text(trace); !unknown.empty())
    text += fmt::format("unknown       {}\n", unknown);
  for (const std::string& other : trace.other_recordings)
    text += fmt::format("also here     {}, an earlier recording than that of {}\n", plain_text(other, kPathBytes),
                        plain_text(trace.recording, kPathBytes));
  if (first >= 0) text += fmt::format("steps         {} to {}, with all their events\n", first, last);
  if (!trace.ranks.empty() && !trace.ranks.front().sums.empty()) {
    text += fmt::format("sums          of steps {} to {}\n", trace.ranks.front().sums.front().step,
                        trace.ranks.front().sums.back().step);
  }
  if (const std::string before = run_before(trace); !before.empty())
    text +=
        fmt::format("earlier       the steps of the run before this one are in {0}: ms-tracepp report {0}\n", before);
  text += endings_text(trace);
  if (dropped(trace) > 0) text += fmt::format("lost          {} events, as the buffer was full\n", dropped(trace));
  for (const auto& [problem, count] : trace.problems) {
    text += fmt::format("not used      {}: {}\n", plain_text(problem, 100), count);
  }
  return text;
}

std::string info_json(const RunTrace& trace) {
  const auto [first, last] = step_range(trace);
  const auto [began_s, last_s] = wall_times(trace);
  const auto or_null = [](bool known, Json value) { return known ? std::move(value) : Json(); };
  const StepSum* sums[2] = {nullptr, nullptr};  // the first and the last one
  if (!trace.ranks.empty() && !trace.ranks.front().sums.empty()) {
    sums[0] = &trace.ranks.front().sums.front();
    sums[1] = &trace.ranks.front().sums.back();
  }
  Json json{{"schema", 1},
            {"source", trace.source->name},
            {"run", trace.run},
            {"mesh", or_null(trace.has_mesh, {{"dp", trace.mesh.dp}, {"pp", trace.mesh.pp}, {"tp", trace.mesh.tp}})},
            {"mesh_why", or_null(!trace.mesh_why.empty(), trace.mesh_why)},
            {"world", or_null(world_of(trace) > 0, world_of(trace))},
            {"ranks", trace.ranks.size()},
            {"hosts", host_count(trace)},
            {"device", or_null(!devices(trace).empty(), devices(trace))},
            {"began", or_null(began_s > 0, utc_text(began_s))},
            {"last_written", or_null(began_s > 0, utc_text(last_s))},
            {"events", trace.event_count()},
            {"recording", or_null(!trace.recording.empty(), trace.recording)},
            {"other_recordings", trace.other_recordings},
            {"first_step", first},
            {"last_step", last},
            {"first_summed_step", sums[0] == nullptr ? Json() : Json(sums[0]->step)},
            {"last_summed_step", sums[1] == nullptr ? Json() : Json(sums[1]->step)},
            {"ended", Json::object()},
            {"errors", Json::array()},
            {"run_before", or_null(!run_before(trace).empty(), run_before(trace))},
            {"dropped", dropped(trace)},
            {"device_s", seconds(trace.device_ns)},
            {"unknown_device_s", Json::object()},
            {"gaps", gaps_json(find_gaps(trace))},
            {"problems", Json::object()}};
  constexpr std::size_t kMostErrors = 8;
  for (const RankTrace& rank : trace.ranks) {
    Json& count = json["ended"][std::string(to_string(rank.ending))];
    count = (count.is_null() ? 0 : count.get<std::int64_t>()) + 1;
    if (has_error(rank.ending) && json["errors"].size() < kMostErrors)
      json["errors"].push_back({{"rank", rank.rank}, {"error", rank.ending_text}});
  }
  for (const auto& [category, ns] : trace.unknown_device_ns) json["unknown_device_s"][category] = seconds(ns);
  for (const auto& [problem, count] : trace.problems) json["problems"][problem] = count;
  return dump(json);
}

std::string clocks_text(const Alignment& clocks) {
  if (clocks.hosts.size() < 2) return "clocks        one host, one clock\n";
  std::map<std::string_view, std::size_t> sources;
  for (const HostClock& clock : clocks.hosts) ++sources[to_string(clock.source)];
  std::string text = fmt::format("clocks        {}, compared by", clocks.hosts.size());
  for (const auto& [source, count] : sources) {
    if (source == to_string(ClockSource::root)) continue;
    text += source == to_string(ClockSource::none) ? fmt::format(" nothing ({})", count)
                                                   : fmt::format(" {} ({})", source, count);
  }
  text += fmt::format(
      "\nends          of one operation lie {:.1f} us apart (p99 {:.1f} us); before {:.1f} us (p99 {:.1f} us)\n",
      static_cast<double>(clocks.after.p50_ns) * 1e-3, static_cast<double>(clocks.after.p99_ns) * 1e-3,
      static_cast<double>(clocks.before.p50_ns) * 1e-3, static_cast<double>(clocks.before.p99_ns) * 1e-3);
  if (clocks.bad_probes > 0)
    text += fmt::format("left out      {} of clocks that cannot be\n", plural(clocks.bad_probes, "probe"));
  if (!clocks.trusted)
    text +=
        fmt::format("beware        times of different hosts cannot be compared: {}\n", plain_text(clocks.doubt, 300));
  return text;
}

}  // namespace ms::tracepp
