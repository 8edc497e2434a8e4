#include "slurm/topology.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::slurm {
namespace {

constexpr std::size_t kMaxWord = 80;    // of a word, in an error
constexpr std::size_t kMaxLevels = 64;  // of switches; fabrics have up to five
// Nodes in all lines together: scontrol repeats each node at every level above it.
constexpr std::size_t kMaxNodeNames = 16 * kMaxHosts;
constexpr double kScontrolDeadline_s = 5;  // a busy controller answers within a second or two

Error bad_topology(std::string_view source, int line, std::string_view what) {
  return user_error("slurm.topology", fmt::format("{}:{}: {}", source, line, what),
                    "topology.conf, topology.yaml and the output of scontrol show topology are understood");
}

constexpr std::string_view kOtherStyles = "[{>|&*";  // a value of YAML begins so in flow style, folded, or by name
Error other_style(std::string_view source, int line) {
  return bad_topology(source, line, "this style of YAML is not read: write one key a line, and its value behind it");
}

struct Row {
  int line = 0;
  std::string name;
  std::string nodes;  // a hostlist
  std::vector<std::string> switches;
};

// Expands hostlists of one text, which are bounded together.
class Expander {
 public:
  Expander(std::string_view source, std::size_t max_names) : source_(source), max_names_(max_names) {}
  std::vector<std::string> operator()(const std::string& list, int line) {
    auto names = expand_hostlist(list);
    if (!names) throw bad_topology(source_, line, fmt::format("'{}' is no hostlist", printable(list, kMaxWord)));
    expanded_ += names->size();
    if (expanded_ > max_names_) throw bad_topology(source_, line, fmt::format("more than {} names", max_names_));
    return std::move(*names);
  }

 private:
  std::string_view source_;
  std::size_t max_names_, expanded_ = 0;
};

// nullopt: a line that says nothing about switches.
std::optional<Row> parse_row(const ConfLine& words, std::string_view source, Expander& expand) {
  const int line = words.number;
  constexpr std::string_view kIgnored[] = {"level", "linkspeed", "blockindex", "blocksize"};
  Row row;
  row.line = line;
  for (const std::string& word : words.words) {
    const std::size_t equals = word.find('=');
    const std::string key = lower_case(std::string_view(word).substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (row.name.empty()) {
      if (key == "blocksizes" || key == "aggregatedblock") return std::nullopt;
      if ((key != "switchname" && key != "blockname") || value.empty()) {
        throw bad_topology(source, line,
                           fmt::format("SwitchName=NAME was expected, not '{}'", printable(word, kMaxWord)));
      }
      row.name = value;
    } else if (key == "nodes") {
      row.nodes = value;
    } else if (key == "switches") {
      row.switches = expand(value, line);
    } else if (std::find(std::begin(kIgnored), std::end(kIgnored), key) == std::end(kIgnored)) {
      throw bad_topology(source, line, fmt::format("'{}' is not understood", printable(word, kMaxWord)));
    }
  }
  return row;
}

// topology.yaml (Slurm 25.05) as lines of topology.conf. Of several topologies it is the cluster's default, else the
// first. Only the shape that Slurm documents is read: one key a line. The options of a flat topology and the shape of a
// torus say nothing about switches.
std::vector<ConfLine> yaml_lines(std::string_view text, std::string_view source) {
  constexpr std::string_view kContainers[] = {"tree", "switches", "blocks", "block", "block_sizes", "ring", "rings"};
  struct One {
    bool is_default = false;
    std::vector<ConfLine> lines = {};
  };
  std::vector<One> topologies;
  int line = 0;
  std::size_t skipped_above = std::string_view::npos;  // columns of keys under one without switches
  for (; !text.empty(); text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1)) {
    ++line;
    const std::string_view whole = text.substr(0, text.find('\n'));
    std::string_view rest = trim(whole.substr(0, whole.find('#')));
    const std::size_t column = whole.find_first_not_of(' ');
    if (rest.empty() || (skipped_above != std::string_view::npos && column > skipped_above)) continue;
    skipped_above = std::string_view::npos;
    while (rest.starts_with("- ")) rest = trim(rest.substr(2));
    if (rest.starts_with('{')) throw other_style(source, line);
    const std::size_t colon = rest.find(':');
    if (colon == std::string_view::npos) continue;  // "---", or an item of block_sizes
    const std::string_view key = trim(rest.substr(0, colon));
    std::string_view value = trim(rest.substr(colon + 1));
    if (value.size() > 1 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    if (key == "topology") topologies.emplace_back();
    if (topologies.empty()) throw bad_topology(source, line, "'- topology: NAME' was expected");
    One& topology = topologies.back();
    if (key == "topology") continue;
    if (key == "flat" || key == "torus3d") {
      skipped_above = column;
      continue;
    }
    if (key != "block_sizes" && !value.empty() && kOtherStyles.find(value.front()) != std::string_view::npos)
      throw other_style(source, line);
    if (key == "cluster_default") {
      topology.is_default = lower_case(value) == "true" || lower_case(value) == "yes";
    } else if ((key == "switch" || key == "block" || key == "ring") && !value.empty()) {
      topology.lines.push_back({line, {fmt::format("SwitchName={}", value)}});
    } else if ((key == "children" || key == "nodes") && !value.empty() && !topology.lines.empty()) {
      topology.lines.back().words.push_back(fmt::format("{}={}", key == "nodes" ? "Nodes" : "Switches", value));
    } else if (std::ranges::find(kContainers, key) == std::end(kContainers)) {
      throw bad_topology(source, line, fmt::format("'{}' is not understood", printable(key, kMaxWord)));
    }
  }
  auto chosen = std::ranges::find_if(topologies, &One::is_default);
  if (chosen == topologies.end()) chosen = topologies.begin();
  return topologies.empty() ? std::vector<ConfLine>{} : std::move(chosen->lines);
}

std::vector<Row> parse_rows(std::string_view text, std::string_view source, const ReadIncluded& read,
                            Expander& expand) {
  std::vector<ConfLine> lines = conf_lines(text, read);
  const bool is_yaml = !lines.empty() && lines[0].words[0].starts_with('-');
  if (is_yaml) lines = yaml_lines(text, source);
  std::vector<Row> rows;
  for (const ConfLine& line : lines) {
    if (auto row = parse_row(line, source, expand)) rows.push_back(std::move(*row));
    if (rows.size() > kMaxHosts)
      throw bad_topology(source, line.number, fmt::format("more than {} switches", kMaxHosts));
  }
  return rows;
}

bool is_above(const Topology& topology, int upper, int s) {
  for (; s != Topology::kNone; s = topology.switches[static_cast<std::size_t>(s)].above) {
    if (s == upper) return true;
  }
  return false;
}

// Levels from a switch to its root; stops counting above kMaxLevels.
std::size_t levels_from(const Topology& topology, int s) {
  std::size_t levels = 0;
  for (; s != Topology::kNone && levels <= kMaxLevels; ++levels)
    s = topology.switches[static_cast<std::size_t>(s)].above;
  return levels;
}

void join_switches(const std::vector<Row>& rows, std::string_view source, Topology& topology) {
  const auto too_deep = [&](const Row& row) {
    return bad_topology(source, row.line, fmt::format("more than {} levels of switches", kMaxLevels));
  };
  std::map<std::string, int, std::less<>> index;
  for (const Row& row : rows) {
    const int next = static_cast<int>(topology.switches.size());
    if (!index.emplace(row.name, next).second) {
      throw bad_topology(source, row.line, fmt::format("switch {} is there twice", printable(row.name, kMaxWord)));
    }
    topology.switches.push_back({.name = row.name});
  }
  for (std::size_t s = 0; s < rows.size(); ++s) {
    for (const std::string& name : rows[s].switches) {
      const auto child = index.find(name);
      if (child == index.end())
        throw bad_topology(source, rows[s].line, fmt::format("switch {} is not described", name));
      int& above = topology.switches[static_cast<std::size_t>(child->second)].above;
      if (above != Topology::kNone)
        throw bad_topology(source, rows[s].line, fmt::format("switch {} is under two", name));
      if (levels_from(topology, static_cast<int>(s)) > kMaxLevels) throw too_deep(rows[s]);
      if (is_above(topology, child->second, static_cast<int>(s))) {
        throw bad_topology(source, rows[s].line, fmt::format("switch {} is above and under {}", name, rows[s].name));
      }
      above = static_cast<int>(s);
    }
  }
  for (std::size_t s = 0; s < rows.size(); ++s)
    if (levels_from(topology, static_cast<int>(s)) > kMaxLevels) throw too_deep(rows[s]);
}

}  // namespace

int Topology::depth() const {
  int depth = 0;
  for (int s = 0; s < std::ssize(switches); ++s) depth = std::max(depth, static_cast<int>(levels_from(*this, s)));
  return depth;
}

Topology parse_topology(std::string_view text, std::string_view source, const ReadIncluded& read) {
  Expander expand_switches(source, kMaxHosts), expand_nodes(source, kMaxNodeNames);
  const std::vector<Row> rows = parse_rows(text, source, read, expand_switches);
  Topology topology;
  join_switches(rows, source, topology);
  for (std::size_t s = 0; s < rows.size(); ++s) {
    const int here = static_cast<int>(s);
    for (const std::string& node : expand_nodes(rows[s].nodes, rows[s].line)) {
      int& leaf = topology.leaf_of.emplace(node, here).first->second;
      if (is_above(topology, leaf, here)) {
        leaf = here;
      } else if (!is_above(topology, here, leaf)) {
        throw bad_topology(source, rows[s].line,
                           fmt::format("node {} is under {} and under {}", node,
                                       topology.switches[static_cast<std::size_t>(leaf)].name, rows[s].name));
      }
    }
    if (topology.leaf_of.size() > kMaxHosts)
      throw bad_topology(source, rows[s].line, fmt::format("more than {} nodes", kMaxHosts));
  }
  return topology;
}

ToldTopology ask_topology(const Getenv& getenv) {
  const char* const path = getenv("PATH");
  const std::vector<std::string> folders = split(path == nullptr ? "" : path, ':');
  const auto has = [](const std::string& folder) { return ::access((folder + "/scontrol").c_str(), X_OK) == 0; };
  const auto folder = std::find_if(folders.begin(), folders.end(), has);
  if (folder == folders.end()) return {.text = {}, .why_not = "there is no scontrol here"};
  const SubprocessResult result =
      run_subprocess({*folder + "/scontrol", "show", "topology"}, {.deadline_s = kScontrolDeadline_s});
  if (result.timed_out) {
    return {.text = {}, .why_not = fmt::format("scontrol show topology: no answer within {} s", kScontrolDeadline_s)};
  }
  const std::string words = plain_text(result.err, kMaxWord);
  if (!result.ok()) {
    return {.text = {},
            .why_not = fmt::format("scontrol show topology: {}", words.empty() ? result.describe() : words)};
  }
  // Without a topology plugin scontrol says so on standard error, and that it did well.
  if (trim(result.out).empty()) return {.text = {}, .why_not = words.empty() ? "Slurm knows no switches" : words};
  return {.text = result.out, .why_not = {}};
}

}  // namespace ms::slurm
