#include "net/report/report.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/escape.h"
#include "base/text.h"
#include "net/measure/workers.h"

namespace ms::net {
namespace {

std::string rate_text(double gbps) {
  if (gbps >= 1) return fmt::format("{:.3g} Gbit/s", gbps);
  return gbps * 1e3 >= 1 ? fmt::format("{:.3g} Mbit/s", gbps * 1e3) : fmt::format("{:.3g} kbit/s", gbps * 1e6);
}

const std::string& name_of(const Checked& checked, int node) { return checked.nodes[static_cast<std::size_t>(node)]; }

const std::string& switch_name(const Checked& checked, int number) {
  return checked.layout.names[static_cast<std::size_t>(number)];
}

std::string code_of(Symptom symptom) {
  switch (symptom) {
    case Symptom::silent: return "net.silent";
    case Symptom::bandwidth: return "net.slow";
    case Symptom::loss: return "net.loss";
    case Symptom::size: return "net.mtu";
    case Symptom::latency: return "net.latency";
    case Symptom::flap: return "net.flap";
  }
  return "net.slow";
}

std::string symptom_text(const Fault& fault, Symptom symptom) {
  switch (symptom) {
    case Symptom::silent: return fault.words.empty() ? "no answer" : fault.words;
    case Symptom::bandwidth:
      if (fault.times > 0) return fmt::format("reductions with it take {:.1f} times as long as others", fault.times);
      return fmt::format("{}, where {} is normal", rate_text(fault.gbps), rate_text(fault.normal.gbps));
    case Symptom::loss: return fmt::format("{:.2g} % of datagrams lost", 100 * fault.lost);
    case Symptom::size: return "packets as large as the sender's MTU do not arrive";
    case Symptom::latency:
      return fmt::format("{:.0f} us, where {:.0f} us is normal", fault.latency_us, fault.normal.latency_us);
    case Symptom::flap: return "its interface lost its carrier while it was tested";
  }
  return {};
}

}  // namespace

const std::vector<Code>& codes() {
  static const std::vector<Code> kCodes{
      {"net.silent", "A node did not connect, or did not respond to other nodes."},
      {"net.unauthenticated",
       "The node did not connect or respond, and unauthenticated connections took all slots there, so it is not "
       "judged."},
      {"net.undecided", "Ranks waited for each other, or made progress too late. The node at fault is unknown."},
      {"net.slow", "A path is below the threshold (--slow) relative to other paths."},
      {"net.loss", "Datagrams sent at a low rate were lost in the network, not at the receiver."},
      {"net.mtu", "Packets of the sender's full MTU do not arrive."},
      {"net.latency", "The shortest round trip is longer than on other paths."},
      {"net.flap", "A link or interface went down, even briefly."},
      {"net.down", "A link that was up is down."},
      {"net.gone", "A port disappeared."},
      {"net.counter", "An error counter of a port grew faster than its limit."},
      {"net.slow_path", "Flows with some source ports are slow even alone."},
      {"net.wrong", "A collective returned wrong results."},
      {"net.collision", "Flows that are fast alone are slow together, because they share a path."},
      {"net.shared", "A pair is slower while others send, because they share a bottleneck."},
      {"net.retry", "Retries end before a flapping link recovers, or cannot be set long enough."},
      {"net.interface", "NCCL is configured to use interfaces that are missing or down."},
      {"net.hca", "An adapter is missing, inactive or unused, or its rate differs from that on other nodes."},
      {"net.gid", "The selected GID is not RoCE v2 over IPv4."},
      {"net.qos", "Traffic classes and ECN settings are inconsistent."},
      {"net.differs", "A setting differs between nodes."},
      {"net.plan", "A setting or a port is not as the fabric file describes it (--fabric)."}};
  return kCodes;
}

std::string who(const Checked& checked, const Culprit& c) {
  switch (c.kind) {
    case Kind::node: return name_of(checked, c.a);
    case Kind::sending: return name_of(checked, c.a) + " -> *";
    case Kind::receiving: return "* -> " + name_of(checked, c.a);
    case Kind::group:
      return c.other < 0 ? "switch " + switch_name(checked, c.a)
                         : fmt::format("switch {} or {}", switch_name(checked, c.a), switch_name(checked, c.other));
    case Kind::link: return name_of(checked, c.a) + " - " + name_of(checked, c.b);
    case Kind::direction: return name_of(checked, c.a) + " -> " + name_of(checked, c.b);
  }
  return {};
}

std::string evidence(const Checked& checked, const Fault& fault) {
  std::string text;
  for (const Symptom symptom : fault.symptoms) text += (text.empty() ? "" : "; ") + symptom_text(fault, symptom);
  if (fault.culprit.of > 1) text += fmt::format(" ({} of {} measurements)", fault.culprit.bad, fault.culprit.of);
  if (checked.nodes.size() == 2 && fault.culprit.kind != Kind::node)
    text += "; with two nodes a link cannot be told from its ends";
  return text;
}

std::string why_absent(const Checked& checked) {
  return "did not take part" + (checked.why_missing.empty() ? "" : ": " + checked.why_missing);
}

std::string unauthenticated_text(const std::string& at, const link::Unauthenticated& unauthenticated) {
  return fmt::format("{} to {} without the secret of this check",
                     plural(static_cast<std::size_t>(unauthenticated.connections), "connection"), at);
}

std::vector<std::string> nodes_of(const Checked& checked, const Culprit& culprit) {
  if (culprit.kind == Kind::group) {
    std::vector<std::string> nodes;
    for (std::size_t node = 0; node < checked.nodes.size(); ++node)
      if (checked.layout.below(static_cast<int>(node), culprit.a)) nodes.push_back(checked.nodes[node]);
    return nodes;
  }
  std::vector<std::string> nodes{name_of(checked, culprit.a)};
  if (culprit.b >= 0) nodes.push_back(name_of(checked, culprit.b));
  return nodes;
}

std::string crowd_at(const Checked& checked, const std::vector<std::string>& places) {
  for (const std::string& place : places) {
    const auto at = checked.unauthenticated.find(place);
    if (at != checked.unauthenticated.end() && at->second.evicted > 0) return unauthenticated_text(place, at->second);
  }
  return {};
}

std::string crowd_around(const Checked& checked, const Fault& fault) {
  const bool silent = std::ranges::find(fault.symptoms, Symptom::silent) != fault.symptoms.end();
  return silent ? crowd_at(checked, nodes_of(checked, fault.culprit)) : "";
}

std::vector<Finding> findings(const Checked& checked) {
  std::vector<Finding> found;
  // Who could not be heard for unauthenticated is not judged.
  const auto found_unless = [&](const std::string& crowd, Finding finding) {
    if (!crowd.empty()) {
      finding.code = "net.unauthenticated";
      finding.severity = Severity::warning;
      finding.blame = Blame::fabric;
      finding.message += fmt::format("; not judged: {} may be why", crowd);
    }
    found.push_back(std::move(finding));
  };
  for (const std::string& node : checked.missing) {
    found_unless(crowd_at(checked, {kCoordinator}), {.code = "net.silent",
                                                     .severity = Severity::critical,
                                                     .blame = Blame::node,
                                                     .entity = node,
                                                     .message = why_absent(checked)});
  }
  if (checked.command == "pairs") {  // judges no node, but reports what could not be measured
    for (const PairResult& result : checked.results) {
      if (result.error.empty() || (result.cut_short && result.at_fault < 0)) continue;
      const std::string &a = name_of(checked, result.a), &b = name_of(checked, result.b);
      found_unless(crowd_at(checked, {a, b}),
                   {.code = "net.silent",
                    .severity = Severity::critical,
                    .blame = Blame::fabric,
                    .entity = result.cut_short ? name_of(checked, result.at_fault) : a + " - " + b,
                    .message = result.error});
    }
  }
  for (const Fault& fault : checked.faults) {
    const bool only_flaps = fault.symptoms == std::vector{Symptom::flap};
    found_unless(crowd_around(checked, fault), {.code = code_of(fault.symptoms.front()),
                                                .severity = only_flaps ? Severity::warning : Severity::critical,
                                                .blame = Blame::fabric,
                                                .entity = who(checked, fault.culprit),
                                                .message = evidence(checked, fault)});
  }
  if (checked.undecided) {
    found.push_back({.code = "net.undecided",
                     .severity = Severity::critical,
                     .blame = Blame::fabric,
                     .entity = checked.undecided->operation,
                     .message = checked.undecided->why});
  }
  return found;
}

int worst_status(const std::vector<Finding>& findings) {
  int status = 0;
  for (const Finding& finding : findings)
    status = std::max(status, finding.severity == Severity::critical  ? 2
                              : finding.severity == Severity::warning ? 1
                                                                      : 0);
  return status;
}

std::string findings_text(const std::vector<Finding>& findings, const std::string& what,
                          const std::vector<std::string>& not_run) {
  std::string text;
  for (const Finding& finding : findings) text += finding.str() + "\n";
  for (const std::string& missed : not_run) text += fmt::format("not run: {}\n", safe_line(missed));
  return text + fmt::format("{}: {}\n", what,
                            !findings.empty() ? plural(findings.size(), "finding")
                            : not_run.empty() ? "nothing to object to"
                                              : "nothing to object to in what was looked at");
}

int nagios_status(const Checked& checked) {
  if (const int status = worst_status(findings(checked)); status > 0) return status;
  const bool measured = !checked.healthy.empty() || std::ranges::any_of(checked.results, [](const PairResult& result) {
    return result.error.empty();
  });
  return measured ? 0 : 3;
}

std::string matrix_text(const Checked& checked) {
  const std::size_t n = checked.nodes.size();
  if (n == 0 || n > kMostInTable) return {};
  std::vector<std::vector<std::string>> cells(n, std::vector<std::string>(n, "-"));
  const auto put = [&](int from, int to, const Way& way) {
    if (way.gbps >= 0)
      cells[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = fmt::format("{:.3g}", way.gbps);
  };
  for (const PairResult& result : checked.results) {
    put(result.a, result.b, result.there);
    put(result.b, result.a, result.back);
  }
  std::vector<Column> columns{{"Gbit/s from"}};
  for (const std::string& node : checked.nodes) columns.push_back({node, Align::right});
  TextTable table(columns);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<std::string> row{checked.nodes[i]};
    row.insert(row.end(), cells[i].begin(), cells[i].end());
    table.row(std::move(row));
  }
  return table.str();
}

namespace {

// Returns a table of bandwidth and latency by distance. The layout must be known.
std::string distances_text(const Checked& checked) {
  struct Of {
    std::vector<double> gbps, us;
  };
  std::map<int, Of> by_distance;
  for (const PairResult& result : checked.results) {
    Of& of = by_distance[checked.layout.distance(result.a, result.b)];
    for (const Way* way : {&result.there, &result.back})
      if (way->gbps >= 0) of.gbps.push_back(way->gbps);
    if (result.least_us >= 0) of.us.push_back(result.least_us);
  }
  TextTable table(columns("nodes|ways>|least Gbit/s>|middle>|middle us>"));
  for (auto& [distance, of] : by_distance) {
    std::ranges::sort(of.gbps);
    std::ranges::sort(of.us);
    const auto number = [](const std::vector<double>& values, std::size_t at) {
      return values.empty() ? std::string("-") : fmt::format("{:.3g}", values[at]);
    };
    table.row({distance_text(distance), std::to_string(of.gbps.size()), number(of.gbps, 0),
               number(of.gbps, of.gbps.size() / 2), number(of.us, of.us.size() / 2)});
  }
  return table.str();
}

}  // namespace

std::string as_text(const Checked& checked) {
  std::string text;
  const bool judges = checked.command != "pairs";
  if (!judges && !checked.results.empty()) text += matrix_text(checked) + "\n";
  if (!judges && !checked.results.empty() && checked.layout.known()) text += distances_text(checked) + "\n";
  for (const Finding& finding : findings(checked)) text += finding.str() + "\n";
  for (const std::string& what : checked.not_run) text += fmt::format("not run: {}\n", safe_line(what));
  for (const std::string& remark : checked.remarks) text += fmt::format("note: {}\n", safe_line(remark));
  for (const auto& [at, unauthenticated] : checked.unauthenticated)
    text += fmt::format("note: {}\n", safe_line(unauthenticated_text(at, unauthenticated)));
  if (checked.untested_pairs > 0) {
    text += fmt::format("note: {} were not tested: a link between two of them may be bad all the same\n",
                        plural(static_cast<std::size_t>(checked.untested_pairs), "pair"));
  }
  std::vector<std::string> good;
  for (const int node : checked.healthy) good.push_back(name_of(checked, node));
  if (checked.nodes.empty() && checked.missing.empty()) return text;
  text += fmt::format("{} of {} {}, {} in {:.1f} s\n", good.size(),
                      plural(checked.nodes.size() + checked.missing.size(), "node"),
                      judges ? "without a finding" : "measured",
                      plural(static_cast<std::size_t>(checked.rounds), "round"), checked.seconds);
  return text;
}

std::string as_nagios(const Checked& checked) {
  const int status = nagios_status(checked);
  static constexpr std::array<std::string_view, 4> kWords{"OK", "WARNING", "CRITICAL", "UNKNOWN"};
  std::string text;
  for (const Finding& finding : findings(checked))
    text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ", finding.code, finding.entity, finding.message);
  if (text.empty()) text = fmt::format("{} without a finding", plural(checked.healthy.size(), "node"));
  text = safe_line(text);
  std::ranges::replace(text, '|', '/');
  return fmt::format("{} - {} | findings={};;0 nodes={} seconds={:.1f}s\n", kWords[static_cast<std::size_t>(status)],
                     text, findings(checked).size(), checked.nodes.size(), checked.seconds);
}

std::string as_prometheus(const Checked& checked) {
  std::string text =
      "# HELP ms_netcheck_findings Findings of the last check of the fabric.\n"
      "# TYPE ms_netcheck_findings gauge\n";
  text += fmt::format("ms_netcheck_findings {}\n", findings(checked).size());
  text +=
      "# HELP ms_netcheck_finding What the last check found at fault.\n"
      "# TYPE ms_netcheck_finding gauge\n";
  for (const Finding& finding : findings(checked))
    text += fmt::format("ms_netcheck_finding{{code=\"{}\",who=\"{}\"}} 1\n", finding.code, safe_label(finding.entity));
  text +=
      "# HELP ms_netcheck_nodes Nodes that took part in the last check.\n"
      "# TYPE ms_netcheck_nodes gauge\n";
  text += fmt::format("ms_netcheck_nodes {}\n", checked.nodes.size());
  return text;
}

}  // namespace ms::net
