// Shows a compared fleet to people and programs.
#include "base/escape.h"
#include "base/json.h"
#include "base/text.h"
#include "health/commands/fleet.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

std::string folded(const std::vector<std::string>& nodes) { return slurm::fold_hostlist(nodes); }

std::string summary(const Fleet& fleet) {
  return fmt::format("{} of {} answered, of {}; differences in {}, {}, {}", fleet.answered, plural(fleet.asked, "node"),
                     plural(fleet.kinds.size(), "kind"), plural(fleet.differences.size(), "attribute"),
                     plural(fleet.suspects.size(), "suspect"),
                     fleet.tests_unknown.empty()
                         ? fmt::format("{} never tested", fleet.untested.size())
                         : fmt::format("of {} it is not known whether they were tested", fleet.tests_unknown.size()));
}

std::string words_of(const Suspect& suspect) {
  std::vector<std::string> parts;
  for (const Finding& finding : suspect.findings) parts.push_back(finding.str());
  if (suspect.drains > 0)
    parts.push_back(fmt::format("drained {} in 90 days", plural(static_cast<std::size_t>(suspect.drains), "time")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

// The sections of the report, as tables: text and HTML show the same.
struct Section {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

std::vector<Section> sections_of(const Fleet& fleet) {
  Section suspects{"Suspects, by the checks of level 1 and past drains", {"NODE", "FINDING"}, {}};
  for (const Suspect& suspect : fleet.suspects) suspects.rows.push_back({suspect.node, words_of(suspect)});
  Section differences{"Nodes that differ from their peers", {"NODES", "ATTRIBUTE", "HAVE", "PEERS HAVE", "AGREE"}, {}};
  for (const Difference& d : fleet.differences) {
    for (const auto& [value, nodes] : d.others) {
      differences.rows.push_back({folded(nodes), d.attribute, value, d.usual, fmt::format("{} of {}", d.agree, d.of)});
    }
  }
  Section undecided{"No clear majority, no node is accused", {"ATTRIBUTE", "VALUE", "NODES"}, {}};
  for (const Undecided& u : fleet.undecided)
    for (const auto& [value, nodes] : u.values) undecided.rows.push_back({u.attribute, value, folded(nodes)});
  Section silent{"No answer", {"NODE", "WHY"}, {}};
  for (const auto& [node, why] : fleet.silent) silent.rows.push_back({node, why});
  Section other{"Not compared, not tested", {"NODES", "WHY"}, {}};
  if (!fleet.without_peers.empty())
    other.rows.push_back({folded(fleet.without_peers), "fewer than three nodes of this type: not compared"});
  if (!fleet.untested.empty())
    other.rows.push_back({folded(fleet.untested), "never tested under load: ms-diag run --level 2, as root"});
  if (!fleet.tests_unknown.empty())
    other.rows.push_back({folded(fleet.tests_unknown), "not asked as root: past tests and drains are not known"});
  std::vector<Section> sections{suspects, differences, undecided, silent, other};
  std::erase_if(sections, [](const Section& section) { return section.rows.empty(); });
  return sections;
}

Json by_value(const NodesByValue& values) {
  Json list = Json::array();
  for (const auto& [value, nodes] : values) list.push_back({{"value", value}, {"nodes", nodes}});
  return list;
}

}  // namespace

std::string fleet_text(const Fleet& fleet) {
  std::string text;
  for (const Section& section : sections_of(fleet)) {
    std::vector<Column> columns;
    for (const std::string& title : section.columns) columns.push_back({title});
    TextTable table(columns);
    for (const std::vector<std::string>& row : section.rows) table.row(row);
    text += section.title + ":\n" + table.str() + "\n";
  }
  return text + summary(fleet) + "\n";
}

std::string fleet_json(const Fleet& fleet) {
  Json json{{"schema", 1}, {"asked", fleet.asked}, {"answered", fleet.answered}, {"kinds", fleet.kinds}};
  Json differences = Json::array(), undecided = Json::array(), suspects = Json::array(), silent = Json::array();
  for (const Difference& d : fleet.differences) {
    differences.push_back({{"attribute", d.attribute},
                           {"usual", d.usual},
                           {"agree", d.agree},
                           {"of", d.of},
                           {"others", by_value(d.others)}});
  }
  for (const Undecided& u : fleet.undecided)
    undecided.push_back({{"attribute", u.attribute}, {"values", by_value(u.values)}});
  for (const Suspect& suspect : fleet.suspects) {
    Json findings = Json::array();
    for (const Finding& finding : suspect.findings) {
      findings.push_back({{"code", finding.code},
                          {"severity", to_string(finding.severity)},
                          {"entity", finding.entity},
                          {"message", finding.message},
                          {"remedy", finding.remedy}});
    }
    suspects.push_back({{"node", suspect.node}, {"findings", findings}, {"drains", suspect.drains}});
  }
  for (const auto& [node, why] : fleet.silent) silent.push_back({{"node", node}, {"why", why}});
  json["differences"] = differences;
  json["undecided"] = undecided;
  json["suspects"] = suspects;
  json["silent"] = silent;
  json["untested"] = fleet.untested;
  json["tests_unknown"] = fleet.tests_unknown;
  json["without_peers"] = fleet.without_peers;
  return json.dump(2) + "\n";
}

std::string fleet_html(const Fleet& fleet) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>ms-diag fleet</title>\n"
      "<style>body{font:14px sans-serif;margin:2em} table{border-collapse:collapse} "
      "td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top}</style>\n"
      "<h1>ms-diag fleet</h1>\n";
  html += fmt::format("<p>{}</p>\n", safe_html(summary(fleet)));
  for (const Section& section : sections_of(fleet)) {
    html += fmt::format("<h2>{}</h2>\n<table><tr>", safe_html(section.title));
    for (const std::string& title : section.columns) html += fmt::format("<th>{}</th>", safe_html(title));
    html += "</tr>\n";
    for (const std::vector<std::string>& row : section.rows) {
      html += "<tr>";
      for (const std::string& cell : row) html += fmt::format("<td>{}</td>", safe_html(cell));
      html += "</tr>\n";
    }
    html += "</table>\n";
  }
  return html + "</html>\n";
}

}  // namespace ms::health
