#include "tracepp/read/pipeline_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/number.h"
#include "tracepp/read/chrome_reader.h"

namespace ms::tracepp {
namespace {

// Whom an operation is done with.
enum class With : std::uint8_t { none, dp, stages, ends, next, previous };

struct Named {
  std::string_view name;
  Kind kind;
  Purpose purpose;
  With with;
};

constexpr std::array<Named, 23> kNames{{
    {"forward-compute", Kind::forward, Purpose::none, With::none},
    {"backward-compute", Kind::backward, Purpose::none, With::none},
    {"optimizer", Kind::optimizer, Purpose::none, With::none},
    {"gc", Kind::other, Purpose::none, With::none},
    {"forward-send", Kind::send, Purpose::forward, With::next},
    {"forward-recv", Kind::recv, Purpose::forward, With::previous},
    {"backward-send", Kind::send, Purpose::backward, With::previous},
    {"backward-recv", Kind::recv, Purpose::backward, With::next},
    {"forward-send-backward-recv", Kind::other_comm, Purpose::none, With::none},
    {"backward-send-forward-recv", Kind::other_comm, Purpose::none, With::none},
    {"cross-mesh-send", Kind::send, Purpose::none, With::none},
    {"cross-mesh-recv", Kind::recv, Purpose::none, With::none},
    {"params-all-gather", Kind::all_gather, Purpose::params, With::dp},
    {"unshard-all-gather", Kind::all_gather, Purpose::params, With::dp},
    {"grads-reduce-scatter", Kind::reduce_scatter, Purpose::grads, With::dp},
    {"grad-reduce-scatter", Kind::reduce_scatter, Purpose::grads, With::dp},
    {"grad-all-reduce", Kind::all_reduce, Purpose::grads, With::dp},
    {"separate-grads-all-reduce", Kind::all_reduce, Purpose::grads, With::dp},
    {"layernorm-grads-all-reduce", Kind::all_reduce, Purpose::layernorm, With::none},  // over tp: one of it is here
    {"embedding-grads-all-reduce", Kind::all_reduce, Purpose::embedding, With::ends},
    {"optimizer-clip-main-grad", Kind::all_reduce, Purpose::clip, With::stages},
    {"forward", Kind::forward, Purpose::none, With::none},
    {"backward", Kind::backward, Purpose::none, With::none},
}};

// The number behind `mark`; -1: none.
int number_behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return -1;
  const int number = leading_number<int>(text.substr(at + mark.size())).value_or(-1);
  return number >= 0 && number <= 100'000'000 ? number : -1;
}

struct Place {
  int rank = -1, lane = 0;
  mesh::Coord at;
};

bool by_stragglers(const ChromeThread& thread) { return thread.name.starts_with("PP rank "); }

std::optional<Place> place_of(const ChromeThread& thread) {
  const auto tid = parse_int(thread.tid), pid = parse_int(thread.pid);
  if (!tid || !pid || *tid < 0 || *tid > 1'000'000'000 || *pid < 0 || *pid > 100'000'000) return std::nullopt;
  Place place;
  place.at.dp = static_cast<int>(*pid);
  if (by_stragglers(thread)) {
    place.rank = static_cast<int>(*tid / 5);
    place.lane = static_cast<int>(*tid % 5);
    place.at.pp = number_behind(thread.name, "PP rank ");
    place.at.tp = number_behind(thread.name, "TP rank ");
  } else {
    place.rank = number_behind(thread.name, "rank[");
    place.lane = static_cast<int>(*tid % 10);
    place.at.pp = std::max(thread.pp, 0);
    place.at.tp = std::max(thread.tp, 0);
  }
  return place.rank < 0 || place.at.pp < 0 || place.at.tp < 0 ? std::nullopt : std::optional(place);
}

// The least mesh that has all these places, and in which they have these numbers; nothing where there is none such.
std::optional<mesh::Mesh> mesh_of(const std::vector<RankTrace>& ranks) {
  mesh::Mesh mesh;
  int most = 0;
  for (const RankTrace& rank : ranks) {
    mesh.dp = std::max(mesh.dp, rank.at.dp + 1);
    mesh.pp = std::max(mesh.pp, rank.at.pp + 1);
    mesh.tp = std::max(mesh.tp, rank.at.tp + 1);
    most = std::max(most, rank.rank);
  }
  constexpr std::int64_t kMostRanks = 1 << 22;  // no run is larger
  // Not every tp rank has to be there; 1,024 is more than anybody has.
  for (; mesh.tp <= 1024 && std::int64_t{mesh.dp} * mesh.pp * (mesh.tp - 1) <= most; ++mesh.tp) {
    if (std::int64_t{mesh.dp} * mesh.pp > kMostRanks / mesh.tp) break;
    if (std::ranges::all_of(ranks, [&](const RankTrace& rank) { return mesh.rank(rank.at) == rank.rank; })) return mesh;
  }
  return std::nullopt;
}

// Makes each group of the mesh once: it may have a million ranks, and a million events that are of it.
class MeshGroups {
 public:
  MeshGroups(const mesh::Mesh& mesh, Tables& tables) : mesh_(mesh), tables_(tables) {}

  std::int32_t index(With with, const mesh::Coord& at, Purpose purpose) {
    // Forwards it goes to the next stage, backwards to the one before, in both cases from a sender to a receiver.
    const bool forward = purpose == Purpose::forward;
    const int other = (at.pp + (with == With::next ? 1 : mesh_.pp - 1)) % mesh_.pp;
    const bool sends = forward == (with == With::next);
    const int from = sends ? at.pp : other, to = sends ? other : at.pp;
    ProcessGroup group;
    switch (with) {
      case With::dp: group.name = fmt::format("dp[pp {} tp {}]", at.pp, at.tp); break;
      case With::stages: group.name = fmt::format("pp[dp {} tp {}]", at.dp, at.tp); break;
      case With::ends: group.name = fmt::format("embed[dp {} tp {}]", at.dp, at.tp); break;
      case With::next:
      case With::previous:
        group.name = fmt::format("pp.{}[dp {} tp {}] {}>{}", forward ? "fwd" : "bwd", at.dp, at.tp, from, to);
        break;
      case With::none: break;
    }
    if (const auto known = known_.find(group.name); known != known_.end()) return known->second;
    const auto add = [&](int dp, int pp) { group.ranks.push_back(mesh_.rank({.dp = dp, .pp = pp, .tp = at.tp})); };
    if (with == With::dp)
      for (int dp = 0; dp < mesh_.dp; ++dp) add(dp, at.pp);
    if (with == With::stages)
      for (int pp = 0; pp < mesh_.pp; ++pp) add(at.dp, pp);
    if (with == With::ends || with == With::next || with == With::previous) {
      add(at.dp, with == With::ends ? 0 : from);
      add(at.dp, with == With::ends ? mesh_.pp - 1 : to);
    }
    group.axis = trace::axis_of(group.name);
    return known_[group.name] = tables_.group(group);
  }

 private:
  const mesh::Mesh& mesh_;
  Tables& tables_;
  std::unordered_map<std::string, std::int32_t> known_;  // by name
};

const Named* named(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name, &Named::name);
  return found == kNames.end() ? nullptr : found;
}

// Numbers of messages: what the two ends of a channel call differently is one operation.
std::uint64_t slot_of(const Named& named) {
  return trace::is_point_to_point(named.kind) ? 0 : static_cast<std::uint64_t>(&named - kNames.data());
}

}  // namespace

bool is_pipeline_timeline(const ChromeFile& file) {
  return std::ranges::any_of(file.threads, [](const ChromeThread& thread) {
    return (by_stragglers(thread) || thread.name.starts_with("rank[")) && place_of(thread).has_value();
  });
}

void add_pipeline_timeline(ChromeFile& file, RunTrace& trace, Tables& tables, const std::string& path) {
  std::vector<RankTrace> ranks;
  std::map<int, std::size_t> index_of;
  std::vector<std::optional<std::size_t>> rank_of_thread;
  std::vector<int> lane_of_thread;
  bool stragglers = false;
  for (const ChromeThread& thread : file.threads) {
    const std::optional<Place> place = place_of(thread);
    rank_of_thread.emplace_back();
    lane_of_thread.push_back(place ? place->lane : 0);
    if (!place) continue;
    stragglers = stragglers || by_stragglers(thread);
    const auto [at, is_new] = index_of.try_emplace(place->rank, ranks.size());
    if (is_new) {
      RankTrace& rank = ranks.emplace_back();
      rank.rank = place->rank;
      rank.at = place->at;
      rank.file = path;
    }
    RankTrace& rank = ranks[at->second];
    rank.at.pp = std::max(rank.at.pp, place->at.pp);  // threads without events do not know
    rank.at.tp = std::max(rank.at.tp, place->at.tp);
    const auto lane = static_cast<std::size_t>(place->lane);
    if (rank.lanes.size() <= lane) rank.lanes.resize(lane + 1);
    rank.lanes[lane] = trace.strings.id(thread.name);
    rank_of_thread.back() = at->second;
  }

  std::vector<std::uint32_t> info_of;
  for (const ChromeInfo& info : file.infos) {
    const std::string name = unescaped(file.texts.text(info.name));
    EventInfo made{.chunk = info.chunk, .name = trace.strings.id(name)};
    if (const Named* const known = named(name)) {
      made.kind = known->kind;
      made.purpose = known->purpose;
    }
    info_of.push_back(tables.info(made));
  }
  sort_by_begin(file.events);
  for (Event& event : file.events) {
    const ChromeInfo& info = file.infos[event.info];
    const auto& rank = rank_of_thread[info.thread];
    if (!rank) {
      ++trace.problems["event of a thread of no rank"];
      continue;
    }
    event.info = info_of[event.info];
    event.detail = kNoDetail;
    event.lane = static_cast<std::uint8_t>(lane_of_thread[info.thread]);
    ranks[*rank].last_flush_ns = std::max(ranks[*rank].last_flush_ns, event.end_ns());
    ranks[*rank].events.push_back(event);
  }
  for (RankTrace& rank : ranks) {
    if (stragglers) rank.host = "one clock";  // the file tells aligned times, and no hosts
    if (!rank.events.empty()) trace.ranks.push_back(std::move(rank));
  }
  trace.source = stragglers ? &kStragglerAnalysis : &kNdtimeline;
}

void connect_pipeline(RunTrace& trace) {
  const std::optional<mesh::Mesh> mesh = mesh_of(trace.ranks);
  if (!mesh) {
    ++trace.problems["places in the mesh that do not fit the ranks' numbers"];
    return;
  }
  trace.mesh = *mesh;
  trace.has_mesh = true;
  const std::vector<EventInfo> old = std::exchange(trace.infos, {});
  std::vector<const Named*> named_of;
  for (const EventInfo& info : old) named_of.push_back(named(trace.strings.text(info.name)));
  Tables tables(trace);
  MeshGroups groups(*mesh, tables);

  // Numbers within a step first: how many there may be of one name tells how far apart steps are.
  std::uint64_t most = 0;
  std::int32_t first_step = std::numeric_limits<std::int32_t>::max();
  for (RankTrace& rank : trace.ranks) {
    std::map<std::pair<const Named*, std::int32_t>, std::uint32_t> counts;  // by name and step
    for (Event& event : rank.events) {
      const Named* const known = named_of[event.info];
      if (known == nullptr || known->with == With::none || event.step == kNoStep) continue;
      event.detail = counts[{known, event.step}]++;
      most = std::max<std::uint64_t>(most, event.detail);
      first_step = std::min(first_step, event.step);
    }
  }
  for (RankTrace& rank : trace.ranks) {
    std::vector<std::uint32_t> new_of(old.size(), kNoDetail);
    for (Event& event : rank.events) {
      const Named* const known = named_of[event.info];
      if (event.detail != kNoDetail) {
        const std::uint64_t step = static_cast<std::uint64_t>(event.step - first_step);
        const std::uint64_t number = (step * kNames.size() + slot_of(*known)) * (most + 1) + event.detail;
        event.detail = number < kNoDetail ? static_cast<std::uint32_t>(number) : kNoDetail;
      }
      std::uint32_t& info = new_of[event.info];
      if (info == kNoDetail) {
        EventInfo made = old[event.info];
        if (known != nullptr && known->with != With::none) {
          made.group = groups.index(known->with, rank.at, made.purpose);
        }
        info = tables.info(made);
      }
      event.info = info;
    }
  }
}

}  // namespace ms::tracepp
