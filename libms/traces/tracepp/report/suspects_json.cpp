// Implements suspects_json of suspects.h. Keys are stable; new ones may come.
#include <cmath>

#include "base/json.h"
#include "tracepp/findings/suspects.h"
#include "tracepp/report/json.h"

namespace ms::tracepp {
namespace {

constexpr int kSuspectsSchema = 1;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json parts_json(const std::vector<Contribution>& parts, bool known) {
  Json json = Json::object();
  for (const Contribution& part : parts) json[part.name] = known ? number(part.slowdown) : Json();
  return json;
}

}  // namespace

Json finding_json(const Finding& finding) {
  return {{"code", to_string(finding.code)},
          {"ranks", finding.ranks},
          {"first_step", finding.first_step},
          {"last_step", finding.last_step},
          {"cost_s", number(finding.cost_s)},
          {"cost_share", number(finding.cost_share)},
          {"fault", is_fault(finding)},
          {"confidence", number(finding.confidence)},
          {"evidence", finding.evidence},
          {"doubt", finding.doubt.empty() ? Json() : Json(finding.doubt)},
          {"hint", finding.hint.empty() ? Json() : Json(finding.hint)},
          {"line", finding.line.empty() ? Json() : Json(finding.line)}};
}

std::string suspects_json(const Diagnosis& diagnosis) {
  const Stragglers& found = diagnosis.stragglers;
  const auto slowdown = [&](double value) { return diagnosis.knows_slowdown ? number(value) : Json(); };
  Json json{{"schema", kSuspectsSchema},
            {"slowdown",
             {{"S", slowdown(found.S)},
              {"M_W", slowdown(found.M_W)},
              {"M_S", slowdown(found.M_S)},
              {"launch", slowdown(found.launch_slowdown)}}}};
  json["suspects"] = Json::array();
  for (const Suspect& suspect : diagnosis.suspects) {
    json["suspects"].push_back({{"rank", suspect.rank},
                                {"dp", suspect.dp},
                                {"pp", suspect.pp},
                                {"tp", suspect.tp},
                                {"score", number(suspect.score)}});
  }
  json["findings"] = Json::array();
  for (const Finding& finding : diagnosis.findings) json["findings"].push_back(finding_json(finding));
  json["gaps"] = gaps_json(diagnosis.gaps);
  json["seen_share"] = number(diagnosis.seen_share);
  json["mesh"] = {{"dp", diagnosis.mesh.dp}, {"pp", diagnosis.mesh.pp}, {"tp", diagnosis.mesh.tp}};
  json["measured_s"] = number(diagnosis.measured_s);
  json["replayed_s"] = number(found.without_delays_s);
  json["ideal_s"] = number(found.ideal_s);
  json["unexplained_share"] = number(diagnosis.unexplained);
  json["is_contended"] = diagnosis.is_contended;
  json["quiet_confidence"] = number(diagnosis.quiet_confidence);
  json["span_s"] = number(found.measured_s);
  json["steps_left_out"] = diagnosis.left_out.size();
  json["left_out"] = Json::array();
  for (const StepLeftOut& left : diagnosis.left_out)
    json["left_out"].push_back({{"step", left.step}, {"why", left.why}});
  json["steps"] = Json::array();
  for (std::size_t i = 0; i < diagnosis.steps.size(); ++i) {
    json["steps"].push_back({{"step", diagnosis.steps[i]},
                             {"measured_s", number(diagnosis.step_s[i])},
                             {"slowdown", slowdown(found.step_slowdowns[i])}});
  }
  json["by_dp"] = parts_json(found.by_dp, diagnosis.knows_slowdown);
  json["by_stage"] = parts_json(found.by_stage, diagnosis.knows_slowdown);
  json["by_type"] = parts_json(found.by_type, diagnosis.knows_slowdown);
  return json.dump(2) + "\n";
}

}  // namespace ms::tracepp
