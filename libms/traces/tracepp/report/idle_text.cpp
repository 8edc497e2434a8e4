// Implements idle_text and place_text of text.h, and idle_json of json.h.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "tracepp/report/json.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostPlaces = 12;

// "torch/nn/utils/clip_grad.py(31): clip_grad_norm_", "nn.Module: Linear_3" -> what stands behind the last ": ".
std::string_view short_name(std::string_view name) {
  const std::size_t at = name.rfind(": ");
  return at == std::string_view::npos ? name : name.substr(at + 2);
}

double share_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

struct PlaceOfRank {
  std::size_t rank = 0;
  const IdleTime* time = nullptr;
  double share = 0;  // of the rank's steps
};

std::vector<PlaceOfRank> worst_places(const std::vector<RankIdle>& idle) {
  std::vector<PlaceOfRank> places;
  for (std::size_t r = 0; r < idle.size(); ++r) {
    const std::size_t shown = std::min(idle[r].places.size(), kMostPlaces);
    for (std::size_t i = 0; i < shown; ++i) {
      places.push_back({r, &idle[r].places[i], share_of(idle[r].places[i].ns, idle[r].length_ns())});
    }
  }
  std::ranges::stable_sort(places, std::greater<>{}, &PlaceOfRank::share);
  return places;
}

}  // namespace

std::string place_text(const RunTrace& trace, const IdlePlace& place) {
  constexpr std::size_t kBytes = 80;
  const auto text = [&](std::uint32_t id) { return plain_text(trace.strings.text(id), kBytes); };
  std::string where;
  if (place.op != 0) where = text(place.op);
  const bool adds = place.cause != IdleCause::synchronises && place.cause != IdleCause::launch;
  if (place.call != 0 && (where.empty() || adds)) where = text(place.call) + (where.empty() ? "" : " in " + where);
  if (place.below != 0) {
    where += (where.empty() ? "" : " below ") + plain_text(short_name(trace.strings.text(place.below)), kBytes);
  }
  if (place.line != 0) where += where.empty() ? text(place.line) : fmt::format(" ({})", text(place.line));
  if (where.empty() && place.before != 0) where = "before " + text(place.before);
  return where;
}

std::string idle_text(const RunTrace& trace, const std::vector<RankIdle>& idle, bool all) {
  std::int64_t length_ns = 0, steps = 0;
  for (const RankIdle& rank : idle) {
    length_ns += rank.length_ns();
    steps += std::ssize(rank.steps);
  }
  if (steps == 0) return {};
  const auto ms = [](double ns) { return fmt::format("{:.3f}", 1e-6 * ns); };
  const auto percent = [](double part) { return fmt::format("{:.1f}%", 100 * part); };
  TextTable causes(columns("idle|ms a step>|share>|most>|rank>"));
  for (std::size_t c = 0; c < kIdleCauses; ++c) {
    const auto cause = static_cast<IdleCause>(c);
    std::int64_t sum = 0;
    std::size_t most = 0;
    const auto mean_ns = [&](std::size_t r) { return share_of(idle[r].of(cause), std::ssize(idle[r].steps)); };
    for (std::size_t r = 0; r < idle.size(); ++r) {
      sum += idle[r].of(cause);
      if (mean_ns(r) > mean_ns(most)) most = r;
    }
    if (sum == 0) continue;
    causes.row({std::string(to_string(cause)), ms(share_of(sum, steps)), percent(share_of(sum, length_ns)),
                ms(mean_ns(most)), std::to_string(trace.ranks[most].rank)});
  }
  TextTable places(columns("idle|where the host was|rank>|share>|times>"));
  constexpr double kLeast = 0.005;
  const std::vector<PlaceOfRank> worst = worst_places(idle);
  std::size_t shown = 0;
  for (const PlaceOfRank& place : worst) {
    const std::string where = place_text(trace, place.time->place);
    if (where.empty() || (!all && (place.share < kLeast || shown == 6))) continue;
    places.row({std::string(to_string(place.time->place.cause)), where, std::to_string(trace.ranks[place.rank].rank),
                percent(place.share), std::to_string(place.time->times)});
    ++shown;
  }
  StreamIdle hta;
  TextTable streams(columns("rank>|stream|host wait us>|kernel wait>|other>"));
  for (std::size_t r = 0; r < idle.size(); ++r) {
    for (const StreamIdle& stream : idle[r].streams) {
      hta.host_wait_us += stream.host_wait_us;
      hta.kernel_wait_us += stream.kernel_wait_us;
      hta.other_us += stream.other_us;
      streams.row({std::to_string(trace.ranks[r].rank),
                   plain_text(trace.strings.text(trace.ranks[r].lanes[stream.lane]), 32),
                   std::to_string(stream.host_wait_us), std::to_string(stream.kernel_wait_us),
                   std::to_string(stream.other_us)});
    }
  }
  std::string text = causes.str();
  if (shown > 0) text += "\n" + places.str();
  const std::int64_t hta_us = hta.host_wait_us + hta.kernel_wait_us + hta.other_us;
  if (hta_us > 0) {
    text += fmt::format("\nidle time of streams as HTA counts it: host wait {}, kernel wait {}, other {}\n",
                        percent(share_of(hta.host_wait_us, hta_us)), percent(share_of(hta.kernel_wait_us, hta_us)),
                        percent(share_of(hta.other_us, hta_us)));
    if (all) text += streams.str();
  }
  return text;
}

Json idle_json(const RunTrace& trace, const std::vector<RankIdle>& idle) {
  Json ranks = Json::array();
  for (std::size_t r = 0; r < idle.size(); ++r) {
    const RankIdle& of = idle[r];
    Json rank = rank_json(trace, r);
    rank["has_device"] = of.has_device;
    rank["doubt"] = of.doubt.empty() ? Json(nullptr) : Json(of.doubt);
    const auto causes = [](const auto& ns_of) {
      Json json = Json::object();
      for (std::size_t c = 0; c < kIdleCauses; ++c) {
        const auto cause = static_cast<IdleCause>(c);
        if (const std::int64_t ns = ns_of(cause); ns > 0)
          json[std::string(to_string(cause))] = 1e-6 * static_cast<double>(ns);
      }
      return json;
    };
    rank["ms"] = causes([&](IdleCause cause) { return of.of(cause); });
    Json& steps = rank["steps"] = Json::array();
    for (const IdleStep& step : of.steps) {
      steps.push_back({{"step", step.step == kNoStep ? Json(nullptr) : Json(step.step)},
                       {"step_ms", 1e-6 * static_cast<double>(step.length_ns)},
                       {"idle_ms", causes([&](IdleCause c) { return step.ns[static_cast<std::size_t>(c)]; })}});
    }
    Json& places = rank["places"] = Json::array();
    for (std::size_t i = 0; i < std::min(of.places.size(), kMostPlaces); ++i) {
      const auto& [place, ns, times] = of.places[i];
      const auto text = [&](std::uint32_t id) { return id == 0 ? Json(nullptr) : Json(trace.strings.text(id)); };
      places.push_back({{"cause", to_string(place.cause)},
                        {"op", text(place.op)},
                        {"call", text(place.call)},
                        {"below", text(place.below)},
                        {"line", text(place.line)},
                        {"before", text(place.before)},
                        {"ms", 1e-6 * static_cast<double>(ns)},
                        {"share", share_of(ns, of.length_ns())},
                        {"times", times},
                        {"confidence", confidence_of(place)}});
    }
    Json& streams = rank["hta_us"] = Json::array();
    for (const StreamIdle& stream : of.streams) {
      streams.push_back({{"stream", trace.strings.text(trace.ranks[r].lanes[stream.lane])},
                         {"host_wait", stream.host_wait_us},
                         {"kernel_wait", stream.kernel_wait_us},
                         {"other", stream.other_us}});
    }
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

}  // namespace ms::tracepp
