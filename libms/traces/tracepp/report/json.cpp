#include "tracepp/report/json.h"

#include <cmath>

namespace ms::tracepp {
namespace {

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json known_or_null(double value) { return value > 0 ? finite_or_null(value) : Json(nullptr); }
Json step_or_null(std::int32_t step) { return step == kNoStep ? Json(nullptr) : Json(step); }

Json work_json(const KindOfWork& work) {
  const std::string_view purpose = to_string(work.purpose);
  return {{"kind", to_string(work.kind)}, {"purpose", purpose.empty() ? Json(nullptr) : Json(purpose)}};
}

Json both(const BeforeAfter& value) {
  return {{"before", finite_or_null(value.before)}, {"after", finite_or_null(value.after)}};
}

// Means of `count` steps.
Json step_json(const StepTime& step, std::size_t count) {
  const auto mean_s = [&](std::int64_t ns) { return count == 0 ? 0 : seconds(ns) / static_cast<double>(count); };
  Json json{{"step_s", mean_s(step.length_ns)},         {"busy_s", mean_s(step.busy_ns)},
            {"stalled_s", mean_s(step.stalled_ns)},     {"stalled_other_s", mean_s(step.stalled_other_ns)},
            {"copy_s", mean_s(step.copy_ns)},           {"save_s", mean_s(step.save_ns)},
            {"data_wait_s", mean_s(step.data_wait_ns)}, {"idle_s", mean_s(step.idle_ns)}};
  Json& axes = json["axes"] = Json::object();
  for (const GroupAxis axis : kWaitOrder) {
    const AxisTime& time = step.axis(axis);
    if (time.total_ns == 0) continue;
    axes[std::string(to_string(axis))] = {{"total_s", mean_s(time.total_ns)},
                                          {"exposed_s", mean_s(time.exposed_ns)},
                                          {"waiting_s", mean_s(time.waiting_ns)},
                                          {"overlap", time.overlap()}};
  }
  return json;
}

Json class_json(const CommClass& c) {
  Json json{{"axis", to_string(c.axis)}};
  json.update(work_json({c.kind, c.purpose}));
  json["size_bytes"] = c.size_bytes < 0 ? Json(nullptr) : Json(c.size_bytes);
  json["members"] = c.members;
  json["one_host"] = c.one_host;
  return json;
}

Json change_json(const PartChange& change) {
  return {{"part", to_string(change.part)}, {"before_s", change.before_s}, {"after_s", change.after_s}};
}

Json rank_change_json(const RunTrace& trace, const RankChange& change) {
  Json json = rank_json(trace, change.rank);
  json.update(change_json(change.change));
  return json;
}

}  // namespace

std::string dump(const Json& json) { return json.dump(2) + "\n"; }

Json rank_json(const RunTrace& trace, std::size_t rank) {
  const RankTrace& r = trace.ranks[rank];
  Json json{{"rank", r.rank}};
  json["dp"] = trace.has_mesh ? Json(r.at.dp) : Json(nullptr);
  json["pp"] = trace.has_mesh ? Json(r.at.pp) : Json(nullptr);
  json["tp"] = trace.has_mesh ? Json(r.at.tp) : Json(nullptr);
  json["host"] = r.host.empty() ? Json(nullptr) : Json(r.host);
  return json;
}

Json breakdown_json(const RunTrace& trace, const Breakdown& breakdown) {
  Json json{{"rank_steps", breakdown.steps.size()},
            {"mean", step_json(sum_of(breakdown.steps), breakdown.steps.size())}};
  Json ranks = Json::array(), kinds = Json::array();
  for (const KindOfWork& kind : breakdown.kinds) kinds.push_back(work_json(kind));
  for (std::size_t k = 0; k < breakdown.kinds.size(); ++k) {
    KindTime sum;
    for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
      sum.time_ns += breakdown.kinds_of_rank(r)[k].time_ns;
      sum.events += breakdown.kinds_of_rank(r)[k].events;
    }
    kinds[k]["events"] = sum.events;
    kinds[k]["mean_s"] =
        breakdown.steps.empty() ? 0 : seconds(sum.time_ns) / static_cast<double>(breakdown.steps.size());
  }
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const std::span<const StepTime> steps = breakdown.of_rank(r);
    Json rank = rank_json(trace, r);
    rank["steps"] = steps.size();
    rank["mean"] = step_json(sum_of(steps), steps.size());
    Json& of_kinds = rank["kinds_s"] = Json::array();  // as "kinds" above; of all steps
    for (const KindTime& time : breakdown.kinds_of_rank(r)) of_kinds.push_back(seconds(time.time_ns));
    ranks.push_back(std::move(rank));
  }
  json["ranks"] = std::move(ranks);
  json["kinds"] = std::move(kinds);
  return json;
}

Json bubble_json(const Bubble& bubble) {
  if (!bubble.unknown.empty()) return {{"known", false}, {"why", bubble.unknown}};
  Json json{{"known", true},
            {"schedule", bubble.schedule->name},
            {"stages", bubble.stages},
            {"chunks", bubble.chunks},
            {"microbatches", bubble.microbatches},
            {"forward_s", bubble.forward_s},
            {"backward_s", bubble.backward_s},
            {"backward_weight_s", bubble.backward_weight_s},
            {"measured_s", bubble.measured_s},
            {"expected_s", bubble.expected_s},
            {"measured_of_computing", bubble.measured_of_computing},
            {"expected_of_computing", bubble.expected_of_computing}};
  Json& stages = json["by_stage"] = Json::array();
  for (const StageBubble& stage : bubble.by_stage) {
    stages.push_back({{"stage", stage.stage},
                      {"rank_steps", stage.rank_steps},
                      {"window_s", stage.window_s},
                      {"computing_s", stage.computing_s},
                      {"communication_s", stage.communication_s},
                      {"bubble_s", stage.bubble_s}});
  }
  return json;
}

Json effective_json(const RunTrace& trace, const Effective& e) {
  return {{"told_by_rank", e.steps == 0 ? Json(nullptr) : Json(trace.ranks[e.rank].rank)},
          {"steps", e.steps},
          {"missing_steps", e.missing_steps},
          {"median_step_s", e.median_step_s},
          {"wall_s", e.wall_s},
          {"in_steps_s", e.in_steps_s},
          {"save_s", e.save_s},
          {"data_wait_s", e.data_wait_s},
          {"other_gaps_s", e.other_gaps_s},
          {"effective", e.effective},
          {"mfu", known_or_null(e.mfu)},
          {"mfu_of_wall", known_or_null(e.mfu_of_wall)}};
}

Json communication_json(const RunTrace& trace, const CommReport& report) {
  Json json{{"classes", Json::array()}, {"sizes", Json::array()},    {"edges", Json::array()},
            {"groups", Json::array()},  {"suspects", Json::array()}, {"ranks", Json::array()}};
  for (std::size_t c = 0; c < report.classes.size(); ++c) {
    const ClassSummary& s = report.summaries[c];
    Json row = class_json(report.classes[c]);
    row.update({{"groups", s.groups},
                {"operations", s.operations},
                {"complete", s.complete},
                {"skew_p50_s", s.skew_p50_s},
                {"transfer_p50_s", s.transfer_p50_s},
                {"transfer_p99_s", s.transfer_p99_s},
                {"bus_bytes_per_s", known_or_null(s.bus_bandwidth)}});
    json["classes"].push_back(std::move(row));
  }
  for (const SizeBucket& of : size_buckets(report)) {
    json["sizes"].push_back({{"axis", to_string(of.axis)},
                             {"kind", to_string(of.kind)},
                             {"members", of.members},
                             {"from_bytes", of.least_bytes},
                             {"operations", of.operations},
                             {"bus_bytes_per_s", of.bus_bandwidth}});
  }
  for (const EdgeSummary& edge : report.edges) {
    json["edges"].push_back({{"from_stage", edge.from_stage},
                             {"to_stage", edge.to_stage},
                             {"purpose", to_string(edge.purpose)},
                             {"channels", edge.channels},
                             {"complete", edge.complete},
                             {"transfer_p50_s", edge.transfer_p50_s},
                             {"transfer_p99_s", edge.transfer_p99_s},
                             {"bus_bytes_per_s", known_or_null(edge.bus_bandwidth)},
                             {"ratio", edge.ratio}});
  }
  for (const CommRow& row : report.rows) {
    const ProcessGroup& group = trace.groups[static_cast<std::size_t>(row.group)];
    Json of_group{{"group", group.name}, {"class", row.of_class}};  // in "classes"
    of_group.update({{"operations", row.operations},
                     {"complete", row.complete},
                     {"skew_p50_s", row.skew_p50_s},
                     {"skew_p99_s", row.skew_p99_s},
                     {"wait_s", seconds(row.wait_ns)},
                     {"transfer_p50_s", row.transfer_p50_s},
                     {"transfer_p99_s", row.transfer_p99_s},
                     {"transfer_s", seconds(row.transfer_ns)},
                     {"algorithm_bytes_per_s", known_or_null(row.algorithm_bandwidth)},
                     {"bus_bytes_per_s", known_or_null(row.bus_bandwidth)},
                     {"ratio", row.ratio},
                     {"suspect", row.is_suspect}});
    json["groups"].push_back(std::move(of_group));
  }
  for (const std::uint32_t suspect : report.suspects) {
    const CommRow& row = report.rows[suspect];
    const ProcessGroup& group = trace.groups[static_cast<std::size_t>(row.group)];
    Json of_group = class_json(report.classes[row.of_class]);
    of_group.update({{"group", group.name}, {"ranks", group.ranks}, {"ratio", row.ratio}});
    json["suspects"].push_back(std::move(of_group));
  }
  for (std::size_t r = 0; r < report.by_rank.size(); ++r) {
    const Lateness& late = report.by_rank[r];
    Json rank{{"rank", trace.ranks[r].rank}, {"collectives", late.collectives}, {"last", late.last}};
    rank.update({{"others_waited_s", seconds(late.caused_ns)}, {"waited_s", seconds(late.waited_ns)}});
    json["ranks"].push_back(std::move(rank));
  }
  return json;
}

Json critical_path_json(const RunTrace& trace, const CriticalPaths& paths) {
  if (!paths.unknown.empty()) return {{"known", false}, {"why", paths.unknown}};
  const auto share = [&](std::int64_t ns) {
    return paths.time_ns == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(paths.time_ns);
  };
  Json json{{"known", true}, {"steps", paths.steps.size()}, {"time_s", seconds(paths.time_ns)}};
  Json& kinds = json["by_kind"] = Json::array();
  for (const PathShare& kind : paths.by_kind) {
    Json row{{"of", to_string(kind.of)}};
    if (kind.of != PieceOf::delay) row.update(work_json(kind.work));
    if (kind.of == PieceOf::transfer) row["axis"] = to_string(kind.axis);
    row.update({{"time_s", seconds(kind.time_ns)}, {"share", share(kind.time_ns)}});
    kinds.push_back(std::move(row));
  }
  Json& ranks = json["by_rank"] = Json::array();
  for (const RankShare& rank : paths.by_rank) {
    Json row = rank_json(trace, rank.rank);
    row.update({{"time_s", seconds(rank.time_ns)},
                {"computing_s", seconds(rank.computing_ns)},
                {"share", share(rank.time_ns)}});
    ranks.push_back(std::move(row));
  }
  return json;
}

Json change_points_json(const RunTrace& trace, const ChangePoints& found) {
  Json json{{"steps", found.steps.size()},
            {"long_enough", found.long_enough},
            {"points", Json::array()},
            {"pauses", Json::array()},
            {"rank_shifts", Json::array()}};
  for (const ChangePoint& point : found.points) {
    Json row{{"step", step_or_null(point.step)}, {"before_s", point.before_s}, {"after_s", point.after_s}};
    Json& ranks = row["ranks"] = Json::array();
    for (const RankChange& rank : point.ranks) ranks.push_back(rank_change_json(trace, rank));
    row["usual"] = change_json(point.usual);
    json["points"].push_back(std::move(row));
  }
  for (const Pause& pause : found.pauses) {
    Json row{{"step", step_or_null(pause.step)}, {"step_s", pause.step_s}, {"usual_s", pause.usual_s}};
    row["rank"] = pause.has_rank ? rank_change_json(trace, pause.at) : Json(nullptr);
    json["pauses"].push_back(std::move(row));
  }
  for (const RankShift& shift : found.rank_shifts) {
    Json row = rank_json(trace, shift.rank);
    row.update({{"step", step_or_null(shift.step)}, {"before", shift.before}, {"after", shift.after}});
    json["rank_shifts"].push_back(std::move(row));
  }
  return json;
}

Json diff_json(const Diff& diff) {
  Json json{{"schema", 1},
            {"not_comparable", diff.not_comparable},
            {"median_step_s", both(diff.median_step_s)},
            {"mean_step_s", both(diff.mean_step_s)},
            {"parts", Json::array()},
            {"axes", Json::array()},
            {"kinds", Json::array()},
            {"messages", Json::array()},
            {"ranks", Json::array()}};
  for (const PartDiff& part : diff.parts) json["parts"].push_back({{"part", part.part}, {"mean_s", both(part.s)}});
  for (const AxisDiff& axis : diff.axes) {
    json["axes"].push_back(
        {{"axis", to_string(axis.axis)}, {"total_s", both(axis.total_s)}, {"exposed_s", both(axis.exposed_s)}});
  }
  for (const KindDiff& kind : diff.kinds) {
    Json row = work_json(kind.work);
    row["mean_s"] = both(kind.s);
    json["kinds"].push_back(std::move(row));
  }
  for (const CommDiff& comm : diff.comms) {
    Json row = class_json(comm.of_class);
    row.update({{"transfer_p50_s", both(comm.transfer_s)}, {"bus_bytes_per_s", both(comm.bus_bandwidth)}});
    json["messages"].push_back(std::move(row));
  }
  for (const RankDiff& rank : diff.ranks)
    json["ranks"].push_back({{"rank", rank.rank}, {"busy_s", both(rank.busy_s)}, {"ratio", rank.ratio}});
  return json;
}

}  // namespace ms::tracepp
