#include "net/report/flows_report.h"

#include "base/json.h"
#include "base/text.h"

namespace ms::net {
namespace {

std::string pair_text(const FlowsChecked& checked, const PairFlows& pair) {
  const auto name = [&](int node) { return checked.base.nodes[static_cast<std::size_t>(node)]; };
  return name(pair.a) + " -> " + name(pair.b);
}

std::string ports_text(const PairFlows::Roll& roll) {
  std::string text;
  for (const int flow : roll.judgement.slow)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", roll.first_port + flow);
  return text;
}

}  // namespace

FlowVerdict PairFlows::verdict() const {
  FlowVerdict worst = FlowVerdict::even;
  for (const Roll& roll : rolls) worst = std::max(worst, roll.judgement.verdict);
  return worst;
}

std::vector<Finding> findings(const FlowsChecked& checked) {
  std::vector<Finding> found = findings(checked.base);
  for (const PairFlows& pair : checked.pairs) {
    const std::string entity = pair_text(checked, pair);
    if (!pair.error.empty()) {
      found.push_back({.code = "net.silent", .blame = Blame::fabric, .entity = entity, .message = pair.error});
      continue;
    }
    const FlowVerdict verdict = pair.verdict();
    for (const PairFlows::Roll& roll : pair.rolls) {
      const FlowJudgement& j = roll.judgement;
      if (verdict == FlowVerdict::even || j.verdict != verdict) continue;
      const std::string numbers =
          fmt::format("{} of {} flows carry {:.3g} Gbit/s, the others {:.3g} (source ports {})", j.slow.size(),
                      roll.together.size(), j.slow_gbps, j.fast_gbps, ports_text(roll));
      found.push_back(
          {.code = verdict == FlowVerdict::slow_path ? "net.slow_path" : "net.collision",
           .severity = verdict == FlowVerdict::slow_path ? Severity::critical : Severity::warning,
           .blame = Blame::fabric,
           .entity = entity,
           .message = verdict == FlowVerdict::slow_path
                          ? "even alone " + numbers + ": the path that they are hashed to is slow"
                          : "together " + numbers + ": several are hashed to one path",
           .remedy = verdict == FlowVerdict::slow_path ? "" : "more queue pairs or other source ports spread them"});
      break;  // one roll says it
    }
  }
  std::vector<double> alone, beside;
  std::vector<const PairFlows*> measured;
  for (const PairFlows& pair : checked.pairs) {
    if (!pair.error.empty()) continue;
    measured.push_back(&pair);
    alone.push_back(pair.together_gbps);
    beside.push_back(pair.beside_others_gbps);
  }
  const Crowding crowding = judge_crowding(alone, beside);
  for (const int i : crowding.pairs) {
    const PairFlows& pair = *measured[static_cast<std::size_t>(i)];
    const bool all = crowding.sharing == Sharing::all;
    found.push_back({.code = all ? "net.shared" : "net.collision",
                     .severity = Severity::warning,
                     .blame = Blame::fabric,
                     .entity = pair_text(checked, pair),
                     .message = fmt::format("{:.3g} Gbit/s alone, {:.3g} while all pairs send: {}", pair.together_gbps,
                                            pair.beside_others_gbps,
                                            all ? "all pairs share a limit behind their switches"
                                                : "it shares a path with another pair, and others do not")});
  }
  return found;
}

std::string as_text(const FlowsChecked& checked) {
  TextTable table(columns("PAIR|VERDICT|ALONE>|TOGETHER>|BESIDE OTHERS>|PATHS>"));
  for (const PairFlows& pair : checked.pairs) {
    double alone = 0, paths = 1;
    for (const PairFlows::Roll& roll : pair.rolls) {
      for (const double gbps : roll.alone) alone = std::max(alone, gbps);
      paths = std::max(paths, roll.judgement.paths);
    }
    table.row({pair_text(checked, pair), pair.error.empty() ? std::string(to_string(pair.verdict())) : "not measured",
               fmt::format("{:.3g}", alone), fmt::format("{:.3g}", pair.together_gbps),
               fmt::format("{:.3g}", pair.beside_others_gbps), fmt::format("{:.1f}", paths)});
  }
  std::string text = table.str() + "\n";
  for (const Finding& finding : findings(checked)) text += finding.str() + "\n";
  for (const std::string& remark : checked.base.remarks) text += fmt::format("note: {}\n", remark);
  return text + fmt::format("{} in {:.1f} s; Gbit/s\n", plural(checked.pairs.size(), "pair"), checked.base.seconds);
}

std::string as_json(const FlowsChecked& checked) {
  Json pairs = Json::array(), found = Json::array();
  for (const PairFlows& pair : checked.pairs) {
    Json rolls = Json::array();
    for (const PairFlows::Roll& roll : pair.rolls) {
      rolls.push_back({{"first_port", roll.first_port},
                       {"alone_gbps", roll.alone},
                       {"together_gbps", roll.together},
                       {"verdict", to_string(roll.judgement.verdict)},
                       {"slow_flows", roll.judgement.slow},
                       {"paths", roll.judgement.paths}});
    }
    Json json{{"from", checked.base.nodes[static_cast<std::size_t>(pair.a)]},
              {"to", checked.base.nodes[static_cast<std::size_t>(pair.b)]},
              {"verdict", to_string(pair.verdict())},
              {"together_gbps", pair.together_gbps},
              {"beside_others_gbps", pair.beside_others_gbps},
              {"rolls", rolls}};
    if (!pair.error.empty()) json["error"] = pair.error;
    pairs.push_back(std::move(json));
  }
  for (const Finding& finding : findings(checked)) {
    found.push_back({{"code", finding.code},
                     {"severity", to_string(finding.severity)},
                     {"entity", finding.entity},
                     {"message", finding.message}});
  }
  const Json json{{"schema", 1},    {"command", "ecmp"}, {"nodes", checked.base.nodes},
                  {"pairs", pairs}, {"findings", found}, {"seconds", checked.base.seconds}};
  return json.dump(2) + "\n";
}

}  // namespace ms::net
