#include "net/report/report.h"

#include "base/json.h"
#include "net/measure/workers.h"

namespace ms::net {
namespace {

std::string_view kind_word(Kind kind) {
  switch (kind) {
    case Kind::node: return "node";
    case Kind::sending:
    case Kind::receiving:
    case Kind::direction: return "direction";
    case Kind::group: return "switch";
    case Kind::link: return "link";
  }
  return "node";
}

Json number(double value) { return value < 0 ? Json(nullptr) : Json(value); }

Json way_json(const Way& way) {
  Json json{{"gbps", number(way.gbps)}};
  if (way.gbps >= 0) json["cpu_wait"] = way.cpu_wait;
  if (way.sent > 0) json.update({{"datagrams", way.sent}, {"lost", way.lost}, {"dropped_by_receiver", way.dropped}});
  if (way.mtu > 0) json.update({{"mtu", way.mtu}, {"mtu_passes", way.large_pass}});
  return json;
}

}  // namespace

std::string as_json(const Checked& checked) {
  Json faults = Json::array(), found = Json::array(), healthy = Json::array(), pairs = Json::array();
  for (const std::string& node : checked.missing) {
    if (!crowd_at(checked, {kCoordinator}).empty()) continue;
    faults.push_back({{"kind", "node"},
                      {"who", node},
                      {"nodes", {node}},
                      {"symptoms", {"silent"}},
                      {"evidence", why_absent(checked)},
                      {"confidence", 1.0}});
  }
  for (const Fault& fault : checked.faults) {
    if (!crowd_around(checked, fault).empty()) continue;
    Json symptoms = Json::array();
    for (const Symptom symptom : fault.symptoms) symptoms.push_back(to_string(symptom));
    faults.push_back({{"kind", kind_word(fault.culprit.kind)},
                      {"who", who(checked, fault.culprit)},
                      {"nodes", nodes_of(checked, fault.culprit)},
                      {"symptoms", symptoms},
                      {"evidence", evidence(checked, fault)},
                      {"confidence", fault.confidence}});
  }
  for (const Finding& finding : findings(checked)) {
    found.push_back({{"code", finding.code},
                     {"severity", to_string(finding.severity)},
                     {"blame", to_string(finding.blame)},
                     {"entity", finding.entity},
                     {"message", finding.message}});
  }
  for (const int node : checked.healthy) healthy.push_back(checked.nodes[static_cast<std::size_t>(node)]);
  for (const PairResult& r : checked.results) {
    Json pair{{"a", checked.nodes[static_cast<std::size_t>(r.a)]}, {"b", checked.nodes[static_cast<std::size_t>(r.b)]}};
    if (checked.layout.known()) pair["distance"] = checked.layout.distance(r.a, r.b);
    if (!r.error.empty()) pair["error"] = r.error;
    if (r.least_us >= 0)
      pair["latency_us"] = {{"min", r.least_us}, {"p50", r.p50_us}, {"p99", r.p99_us}, {"cpu_wait", r.cpu_wait_us}};
    pair["there"] = way_json(r.there);
    pair["back"] = way_json(r.back);
    pair["retransmits"] = {r.counts_a.retransmits, r.counts_b.retransmits};
    pair["seconds"] = r.seconds;
    pairs.push_back(std::move(pair));
  }
  Json unauthenticated = Json::object();
  for (const auto& [at, of] : checked.unauthenticated)
    unauthenticated[at] = {{"connections", of.connections}, {"evicted", of.evicted}};
  const Json json{{"schema", 1},
                  {"command", checked.command},
                  {"nodes", checked.nodes},
                  {"verdict", faults},
                  {"healthy", healthy},
                  {"findings", found},
                  {"not_run", checked.not_run},
                  {"remarks", checked.remarks},
                  {"unauthenticated", unauthenticated},
                  {"untested_pairs", checked.untested_pairs},
                  {"not_judged", checked.not_judged},
                  {"rounds", checked.rounds},
                  {"seconds", checked.seconds},
                  {"pairs", pairs}};
  return json.dump(2) + "\n";
}

std::string findings_json(const std::string& command, const std::vector<Finding>& findings,
                          const std::vector<std::string>& not_run) {
  Json found = Json::array();
  for (const Finding& f : findings) {
    Json json{{"code", f.code},
              {"severity", to_string(f.severity)},
              {"blame", to_string(f.blame)},
              {"entity", f.entity},
              {"message", f.message}};
    if (f.measured) json["measured"] = *f.measured;
    if (f.limit) json["limit"] = *f.limit;
    if (!f.remedy.empty()) json["remedy"] = f.remedy;
    found.push_back(std::move(json));
  }
  return Json{{"schema", 1}, {"command", command}, {"findings", found}, {"not_run", not_run}}.dump(2) + "\n";
}

std::string not_run(const std::string& command, const std::string& why, bool json) {
  return json ? findings_json(command, {}, {why}) : fmt::format("not run: {}\n", why);
}

}  // namespace ms::net
