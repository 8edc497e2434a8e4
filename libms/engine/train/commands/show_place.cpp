#include "train/commands/show_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::train {
namespace {

constexpr std::size_t kMaxRows = 48;  // of the table of hosts; above, hosts that follow each other share one

using Counts = std::vector<std::int64_t>;  // by level

std::int64_t sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

std::string_view host_name(const Placed& placed, int host) {
  return placed.cluster.hosts[static_cast<std::size_t>(host)].name;
}
std::string_view switch_name(const Placed& placed, int host) {
  const int under = placed.cluster.hosts[static_cast<std::size_t>(host)].under;
  return under == mesh::kNoSwitch ? "-"
                                  : std::string_view(placed.cluster.switches[static_cast<std::size_t>(under)].name);
}

std::vector<int> hosts_used(const Placed& placed) {  // in the order of their first ranks
  std::vector<int> used;
  std::set<int> seen;
  for (const int host : placed.placement.order) {
    if (seen.insert(host).second) used.push_back(host);
  }
  return used;
}

// ---- the table of hosts

// Ranks in a row on one host, or on hosts in a row: whole tp groups of one stage, or a part of one tp group.
struct PlaceRow {
  int first = 0, last = 0;  // ranks
  std::vector<int> hosts;
};

bool whole_groups(const PlaceRow& row, int tp) { return row.first % tp == 0 && (row.last + 1) % tp == 0; }

std::vector<PlaceRow> host_rows(const Placed& placed) {
  const mesh::Mesh& mesh = placed.mesh;
  const mesh::Order& order = placed.placement.order;
  std::vector<PlaceRow> rows;
  for (int rank = 0; rank < mesh.size(); rank += mesh.tp) {
    for (int r = rank; r < rank + mesh.tp; ++r) {
      const int host = order[static_cast<std::size_t>(r)];
      if (r == rank || rows.back().hosts.back() != host) rows.push_back({.first = r, .last = r, .hosts = {host}});
      rows.back().last = r;
    }
    if (rows.size() < 2) continue;
    PlaceRow& before = rows[rows.size() - 2];
    const PlaceRow& here = rows.back();
    if (whole_groups(here, mesh.tp) && whole_groups(before, mesh.tp) && before.hosts == here.hosts &&
        mesh.coord(before.last).pp == mesh.coord(here.first).pp) {
      before.last = here.last;
      rows.pop_back();
    }
  }
  return rows;
}

// Joins hosts in a row that hold equally much of one stage under one switch.
std::vector<PlaceRow> fold_rows(const Placed& placed, const std::vector<PlaceRow>& rows) {
  std::vector<PlaceRow> folded;
  for (const PlaceRow& row : rows) {
    if (!folded.empty()) {
      PlaceRow& last = folded.back();
      const int each = (last.last - last.first + 1) / static_cast<int>(last.hosts.size());
      if (whole_groups(row, placed.mesh.tp) && whole_groups(last, placed.mesh.tp) && row.last - row.first + 1 == each &&
          placed.mesh.coord(row.first).pp == placed.mesh.coord(last.first).pp &&
          switch_name(placed, row.hosts.front()) == switch_name(placed, last.hosts.back())) {
        last.last = row.last;
        last.hosts.push_back(row.hosts.front());
        continue;
      }
    }
    folded.push_back(row);
  }
  return folded;
}

std::string range(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

std::string hosts_table(const Placed& placed) {
  std::vector<PlaceRow> rows = host_rows(placed);
  const bool folded = rows.size() > kMaxRows;
  if (folded) rows = fold_rows(placed, rows);
  TextTable table(columns("ranks>|host|switch|pp|dp|tp"));
  for (const PlaceRow& row : rows) {
    const mesh::Coord first = placed.mesh.coord(row.first), last = placed.mesh.coord(row.last);
    std::vector<std::string> names;
    for (const int host : row.hosts) names.emplace_back(host_name(placed, host));
    table.row({range(row.first, row.last), slurm::fold_hostlist(names),
               std::string(switch_name(placed, row.hosts.front())), std::to_string(first.pp), range(first.dp, last.dp),
               range(first.tp, last.tp)});
  }
  return table.str() + (folded ? "The hosts of a line share its ranks in the order that --order writes.\n" : "");
}

// ---- the summary of axes

std::string level_text(const Placed& placed, std::size_t level, std::size_t levels) {
  if (level == 0) return "inside a node";
  if (placed.cluster.switches.empty()) return "between nodes";
  if (level + 1 == levels) return "without a common switch";  // only the nameless switch above all is so high
  if (level == 1) return "under one leaf switch";
  return fmt::format("over {} levels of switches", level);
}

std::string counts_text(const Placed& placed, const Counts& counts) {
  std::vector<std::string> parts;
  const std::int64_t all = sum(counts);
  for (std::size_t level = 0; level < counts.size(); ++level) {
    if (counts[level] == 0) continue;
    parts.push_back(fmt::format("{} {}", counts[level] == all ? "all" : std::to_string(counts[level]),
                                level_text(placed, level, counts.size())));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

struct AxisRow {
  mesh::Axis axis;
  std::string what;
  const Counts& placed;
  const Counts& listed;
};

// Returns a row per axis with its counts: groups for tp and dp, edges for the pipeline. Axes of size 1 have no row.
std::vector<AxisRow> axis_rows(const Placed& placed) {
  std::vector<AxisRow> rows;
  const mesh::Score &now = placed.placement.score, &listed = placed.placement.listed;
  const auto groups = [&](mesh::Axis axis, const mesh::AxisScore& a, const mesh::AxisScore& b) {
    if (placed.mesh.size(axis) == 1) return;
    rows.push_back({.axis = axis,
                    .what = fmt::format("{} of {}", plural(static_cast<std::size_t>(sum(a.groups)), "group"),
                                        placed.mesh.size(axis)),
                    .placed = a.groups,
                    .listed = b.groups});
  };
  groups(mesh::Axis::tp, now.tp, listed.tp);
  groups(mesh::Axis::dp, now.dp, listed.dp);
  if (placed.mesh.pp > 1) {
    rows.push_back({.axis = mesh::Axis::pp,
                    .what = plural(static_cast<std::size_t>(sum(now.pp.pairs)), "edge"),
                    .placed = now.pp.pairs,
                    .listed = listed.pp.pairs});
  }
  return rows;
}

std::string axes_table(const Placed& placed) {
  TextTable table(columns("axis|what|in this order|in the order listed"));
  for (const AxisRow& row : axis_rows(placed)) {
    table.row(
        {std::string(to_string(row.axis)), row.what, counts_text(placed, row.placed), counts_text(placed, row.listed)});
  }
  return table.str();
}

}  // namespace

std::string order_text(const Placed& placed) {
  std::string text;
  for (const int host : placed.placement.order) text += fmt::format("{}\n", host_name(placed, host));
  return text;
}

std::string placed_text(const Placed& placed, const std::string& config, const std::string& order) {
  const mesh::Mesh& mesh = placed.mesh;
  const std::size_t used = hosts_used(placed).size();
  std::int64_t slots = 0;
  for (const mesh::Host& host : placed.cluster.hosts) slots += host.slots;
  std::string out;
  const auto line = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{:<10}{}\n", name, value);
  };
  line("mesh",
       fmt::format("{}: tp {} (fastest) x dp {} x pp {}", plural(mesh.size(), "rank"), mesh.tp, mesh.dp, mesh.pp));
  line("hosts", fmt::format("{} of {} used, {} of {} slots, from {}", used, placed.cluster.hosts.size(), mesh.size(),
                            slots, placed.hosts_source));
  line("switches", placed.cluster.switches.empty()
                       ? fmt::format("none known ({}): one flat network is assumed", placed.switches_source)
                       : fmt::format("{}, from {}", placed.cluster.switches.size(), placed.switches_source));
  line("order",
       placed.placement.changed ? "different from the order in the list" : "as in the list: nothing better was found");
  line("rule",
       "tp communicates most, in every layer: inside a node. dp reduces whole gradients: under the fewest, lowest");
  line("", "switches. The pipeline only passes activations: over the remaining links.");
  out += "\n" + axes_table(placed) + "\n" + hosts_table(placed);
  for (const std::string& note : placed.notes) {
    out += "\n";
    for (const std::string& part : wrap("note: " + note, 110)) out += part + "\n";
  }
  if (order.empty()) {
    out += "\n--order FILE writes the order for srun.\n";
  } else {
    out += fmt::format(
        "\nIn the job:\n  SLURM_HOSTFILE={} SLURM_JOB_NUM_NODES={} srun --mpi=pmix --distribution=arbitrary -n {} "
        "ms-train run {}\n",
        order, used, mesh.size(), config);
  }
  return out;
}

std::string placed_json(const Placed& placed) {
  Json json{
      {"schema", 1},
      {"mesh", {{"world", placed.mesh.size()}, {"dp", placed.mesh.dp}, {"pp", placed.mesh.pp}, {"tp", placed.mesh.tp}}},
      {"hosts_from", placed.hosts_source},
      {"switches_from", placed.switches_source},
      {"changed", placed.placement.changed}};
  Json axes = Json::object();
  for (const mesh::Axis axis : {mesh::Axis::tp, mesh::Axis::dp, mesh::Axis::pp}) {
    const auto of = [&](const mesh::Score& score) -> Json {
      const mesh::AxisScore& counts = axis == mesh::Axis::tp ? score.tp : axis == mesh::Axis::dp ? score.dp : score.pp;
      return {{"groups_by_level", counts.groups}, {"pairs_by_level", counts.pairs}};
    };
    axes[std::string(to_string(axis))] = {{"placed", of(placed.placement.score)},
                                          {"listed", of(placed.placement.listed)}};
  }
  json["axes"] = std::move(axes);
  Json hosts = Json::array();
  for (const int host : hosts_used(placed)) {
    const bool known = placed.cluster.hosts[static_cast<std::size_t>(host)].under != mesh::kNoSwitch;
    hosts.push_back({{"name", host_name(placed, host)}, {"switch", nullptr}});
    if (known) hosts.back()["switch"] = switch_name(placed, host);
  }
  json["hosts"] = std::move(hosts);
  Json order = Json::array();
  for (const int host : placed.placement.order) order.push_back(host_name(placed, host));
  json["order"] = std::move(order);
  json["notes"] = placed.notes;
  return json.dump(2) + "\n";
}

}  // namespace ms::train
