// Implements the JSON documents of report.h.
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "ckpt/report.h"
#include "ckpt/reshard.h"

namespace ms::ckpt {
namespace {

constexpr int kSchema = 1;

// Paths and configurations may hold bytes that are no UTF-8: those are replaced.
std::string dump(const Json& json) { return json.dump(2) + "\n"; }

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json path_or_null(const Found* found) { return found == nullptr ? Json(nullptr) : Json(found->path); }

Json mesh_json(const Manifest& manifest) {
  const std::optional<int> cp = context_ranks(manifest);
  return {{"dp", manifest.dp / cp.value_or(1)},
          {"cp", cp ? Json(*cp) : Json(nullptr)},
          {"pp", manifest.pp},
          {"tp", manifest.tp},
          {"chunks", manifest.chunks},
          {"zero", manifest.zero}};
}

// Returns the fields that ls and show print of any checkpoint; those that come from the manifest are null without one.
Json found_json(const Found& found) {
  Json json{{"step", found.step},
            {"path", found.path},
            {"name", found.name},
            {"complete", found.condition == Condition::complete},
            {"condition", to_string(found.condition)},
            {"problem", text_or_null(why(found))},
            {"pinned", found.pinned}};
  const Manifest* m = found.manifest ? &*found.manifest : nullptr;
  json["created"] = m ? Json(m->created) : Json(nullptr);
  json["run"] = m ? Json(m->run) : Json(nullptr);
  json["size_bytes"] = m ? Json(m->size_bytes()) : Json(nullptr);
  json["num_files"] = m ? Json(m->files.size()) : Json(nullptr);
  json["mesh"] = m ? mesh_json(*m) : Json(nullptr);
  return json;
}

Json keys_json(const std::vector<KeyDiff>& rows) {
  Json json = Json::array();
  for (const KeyDiff& row : rows) {
    json.push_back({{"key", row.key}, {"a", text_or_null(row.a)}, {"b", text_or_null(row.b)}});
  }
  return json;
}

Json parameters_json(const Manifest& manifest) {
  const PieceIndex index(manifest);
  Json json = Json::array();
  for (const std::string& name : index.parameters()) {
    Json states = Json::array(), parameter{{"name", name}};
    for (int s = 0; s < kStates; ++s) {
      const Piece* piece = index.find(static_cast<State>(s), name);
      if (piece == nullptr) continue;
      parameter["rows"] = piece->slice.global_rows;
      parameter["cols"] = piece->slice.global_cols;
      states.push_back({{"state", to_string(piece->state)}, {"dtype", tensor::to_string(piece->dtype)}});
    }
    parameter["states"] = std::move(states);
    json.push_back(std::move(parameter));
  }
  return json;
}

}  // namespace

std::string list_json(const std::string& dir, const std::vector<Found>& found) {
  Json checkpoints = Json::array();
  for (const Found& one : found) checkpoints.push_back(found_json(one));
  return dump({{"schema", kSchema},
               {"dir", dir},
               {"checkpoints", std::move(checkpoints)},
               {"resume_from", path_or_null(resume_point(found))}});
}

std::string show_json(const Found& found) {
  const Manifest& m = *found.manifest;
  Json json{{"schema", kSchema}};
  json.update(found_json(found));
  json["version"] = m.version;
  json["format"] = kFormatVersion;
  json["dtype"] = m.dtype;
  json["has_optimizer"] = m.has_optimizer;
  json["data"] = {{"samples", m.data.samples},
                  {"seed", m.data.seed},
                  {"source", text_or_null(m.data.source)},
                  {"chain", text_or_null(m.data.chain)},
                  {"rollbacks", m.data.rollbacks}};
  json["rng"] = m.rng;
  json["matmul_choices"] = text_or_null(m.matmul_choices);
  json["instruction_set"] = text_or_null(m.instruction_set);
  json["config"] = m.config;
  json["files"] = Json::array();
  for (const FileEntry& file : m.files) {
    json["files"].push_back({{"name", file.name}, {"size_bytes", file.size_bytes}, {"pieces", file.pieces.size()}});
  }
  json["parameters"] = parameters_json(m);
  return dump(json);
}

std::string verify_json(const std::vector<Verified>& verified) {
  Json checkpoints = Json::array();
  bool sound = true;
  for (const Verified& one : verified) {
    sound = sound && one.problems.empty();
    checkpoints.push_back({{"step", one.step},
                           {"path", one.path},
                           {"sound", one.problems.empty()},
                           {"unreadable", one.unreadable},
                           {"size_bytes", one.size_bytes},
                           {"problems", one.problems}});
  }
  return dump({{"schema", kSchema}, {"sound", sound}, {"checkpoints", std::move(checkpoints)}});
}

std::string diff_json(const std::string& a, const std::string& b, const Diff& diff) {
  Json states = Json::array();
  for (const StateDiff& row : diff.states) {
    states.push_back({{"name", row.name},
                      {"state", to_string(row.state)},
                      {"equal", row.values.differing == 0},
                      {"elements", row.values.elements},
                      {"differing", row.values.differing},
                      {"max_abs", finite_or_null(row.values.max_abs)},
                      {"relative_l2", finite_or_null(row.values.relative_l2)}});
  }
  return dump({{"schema", kSchema},
               {"a", a},
               {"b", b},
               {"equal", diff.equal()},
               {"config", keys_json(diff.config)},
               {"written_by", keys_json(diff.place)},
               {"position", keys_json(diff.position)},
               {"unmatched", keys_json(diff.unmatched)},
               {"states", std::move(states)}});
}

std::string prune_json(const Pruned& pruned) {
  Json gone = Json::array();
  std::int64_t freed_bytes = 0;
  for (const Found& one : pruned.gone) {
    freed_bytes += one.manifest->size_bytes();
    gone.push_back({{"step", one.step}, {"path", one.path}, {"size_bytes", one.manifest->size_bytes()}});
  }
  return dump({{"schema", kSchema},
               {"dir", pruned.dir},
               {"dry_run", pruned.dry_run},
               {"removed", std::move(gone)},
               {"freed_bytes", freed_bytes},
               {"kept", pruned.kept}});
}

std::string repair_json(const std::string& dir, const RepairReport& report) {
  Json repairs = Json::array();
  for (const Repair& repair : report.repairs) {
    repairs.push_back({{"path", repair.path},
                       {"remedy", to_string(repair.remedy)},
                       {"reasons", repair.reasons},
                       {"now", text_or_null(repair.now)}});
  }
  Json unreadable = Json::array();
  for (const Unreadable& one : report.unreadable) {
    unreadable.push_back({{"path", one.path}, {"reasons", one.reasons}});
  }
  return dump({{"schema", kSchema},
               {"dir", dir},
               {"dry_run", report.dry_run},
               {"repairs", std::move(repairs)},
               {"unreadable", std::move(unreadable)},
               {"verified", report.verified},
               {"resume_from", path_or_null(report.resume_from ? &*report.resume_from : nullptr)}});
}

std::string bench_json(const BenchReport& report) {
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) {
    Json json{{"name", row.name}, {"bytes_per_s", row.bytes_per_s}, {"cpu_per_s", row.cpu_per_s}};
    json["against"] = row.against.empty() ? Json(nullptr) : Json(row.against);
    json["ratio"] = row.against.empty() ? Json(nullptr) : Json(row.ratio);
    rows.push_back(std::move(json));
  }
  return dump({{"schema", kSchema},
               {"dir", report.dir},
               {"size_bytes", report.size_bytes},
               {"rounds", report.rounds},
               {"threads", report.threads},
               {"direct", report.direct},
               {"rows", std::move(rows)}});
}

}  // namespace ms::ckpt
