#include "train/commands/show_tune.h"

#include "base/json.h"
#include "base/text.h"

namespace ms::train {
namespace {

Json json_of(const Layout& layout) {
  const Settings& s = layout.settings;
  const cost::FlopsPerToken& mfu = layout.simulation.mfu;
  return {{"dp", s.mesh.dp},
          {"pp", s.mesh.pp},
          {"tp", s.mesh.tp},
          {"cp", s.mesh.cp},
          {"ep", s.mesh.ep},
          {"expert_tp", s.mesh.expert_shards()},
          {"zero", s.optim.zero},
          {"shard_group", s.optim.shard_group},
          {"chunks", s.mesh.chunks},
          {"first_layers", s.mesh.first_layers},
          {"last_layers", s.mesh.last_layers},
          {"schedule", s.mesh.schedule},
          {"microbatch", s.train.microbatch},
          {"recompute", s.train.recompute},
          {"overlap_tp", s.overlap.tp},
          {"iteration_s", layout.simulation.iteration_s},
          {"tokens_per_s", layout.simulation.tokens_per_s},
          {"mfu", {{"gemm", mfu.gemm}, {"causal", mfu.causal}, {"full", mfu.full}, {"reported", mfu.reported}}},
          {"memory_bytes", layout.memory_bytes}};
}

std::string given_text(const Tuning& tuning) {
  return tuning.keeps_given() ? "kept: nothing faster was found" : why_slower(*tuning.given, tuning.fastest());
}

}  // namespace

std::string tuning_text(const Tuning& tuning, const cost::Cluster& cluster) {
  TextTable table(columns(
      ">|tp>|pp>|cp>|dp>|ep>|expert tp>|zero>|shard group>|chunks>|end layers>|microbatch>|schedule|recompute|tp "
      "overlap|seconds>|MFU>|"
      "memory>"));
  const auto row = [&](const std::string& name, const Layout& layout) {
    const Settings& s = layout.settings;
    const auto bytes = static_cast<double>(layout.memory_bytes);
    table.row({name, std::to_string(s.mesh.tp), std::to_string(s.mesh.pp), std::to_string(s.mesh.cp),
               std::to_string(s.mesh.dp), std::to_string(s.mesh.ep),
               s.model.experts == 0 ? "-" : std::to_string(s.mesh.expert_shards()), std::to_string(s.optim.zero),
               s.optim.shard_group == 0 ? "-" : std::to_string(s.optim.shard_group), std::to_string(s.mesh.chunks),
               s.mesh.last_layers == 0 ? "-" : fmt::format("{}, {}", s.mesh.first_layers, s.mesh.last_layers),
               std::to_string(s.train.microbatch), s.mesh.schedule, s.train.recompute,
               s.mesh.tp == 1 ? "-"
               : s.overlap.tp ? "on"
                              : "off",
               fmt::format("{:.4g}", layout.simulation.iteration_s),
               fmt::format("{:.1f} %", 100 * layout.simulation.mfu.reported),
               fmt::format("{:.0f} %", 100 * bytes / static_cast<double>(cluster.device.memory_bytes))});
  };
  for (std::size_t i = 0; i < tuning.best.size(); ++i) row(std::to_string(i + 1), tuning.best[i]);
  if (tuning.given) row("given", *tuning.given);
  std::string out = table.str() + '\n';
  for (std::size_t i = tuning.keeps_given() ? 0 : 1; i < tuning.best.size(); ++i)
    out += fmt::format("{:>5}  {}\n", i + 1, why_slower(tuning.best[i], tuning.fastest()));
  if (tuning.given) out += fmt::format("given  {}\n", given_text(tuning));
  out += fmt::format("\n{} considered: {} simulated and slower than these", tuning.considered, tuning.slower);
  if (tuning.too_large > 0)
    out += fmt::format(", {} too large for {}", tuning.too_large,
                       format_size(static_cast<double>(cluster.device.memory_bytes)));
  for (const auto& [rule, count] : tuning.impossible) out += fmt::format(", {} against {}", count, rule);
  if (tuning.not_reached > 0) out += fmt::format(", {} less promising ones not reached in time", tuning.not_reached);
  return out + '\n';
}

std::string tuning_json(const Tuning& tuning) {
  Json json{{"schema", 1}, {"best", Json::array()}};
  for (const Layout& layout : tuning.best) {
    json["best"].push_back(json_of(layout));
    if (&layout != &tuning.fastest()) json["best"].back()["why"] = why_slower(layout, tuning.fastest());
  }
  if (tuning.given) {
    json["given"] = json_of(*tuning.given);
    json["given"]["why"] = given_text(tuning);
  }
  json["keeps_given"] = tuning.keeps_given();
  json["considered"] = tuning.considered;
  json["slower"] = tuning.slower;
  json["too_large"] = tuning.too_large;
  json["not_reached"] = tuning.not_reached;
  for (const auto& [rule, count] : tuning.impossible) json["impossible"][rule] = count;
  return json.dump(2) + "\n";
}

}  // namespace ms::train
