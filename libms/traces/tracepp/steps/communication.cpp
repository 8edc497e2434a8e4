#include "tracepp/steps/communication.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "tracepp/parallel.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

// A row is suspect if its median transfer time exceeds the median row of its class by this ratio, the faster three
// quarters of its operations confirm it, and rows vary less among each other. Fewer operations or rows say nothing.
constexpr double kSuspectRatio = 1.25, kSuspectQuarterRatio = 1.1, kSuspectSigmas = 6;
constexpr std::size_t kFewestOperations = 5, kFewestRows = 3;

constexpr std::uint32_t kNoRow = 0xffffffff;

auto class_key(const CommClass& c) {
  return std::tuple(c.axis, c.kind, c.purpose, c.size_bytes, c.members, c.one_host);
}

struct Plan {
  std::vector<std::uint32_t> row_of_info;  // kNoRow: no message of a group
  std::vector<std::uint32_t> first_of;     // of each group, and one more: its rows
  std::vector<CommClass> class_of_row;     // members and one_host as far as the group tells
  std::vector<std::int32_t> group_of_row;
  std::vector<int> traced_of_row;    // members that were traced to the end; 0: the members are not known
  std::vector<bool> tells_lateness;  // see below
};

// Returns whether late members are at fault in this class. A receiver arrives before its sender, and the last stage
// before the first: that says nothing. In traces of other programs members of any group within a stage may do equal
// work.
bool tells_lateness(const RunTrace& trace, const ProcessGroup& group, const CommClass& of) {
  if (of.axis == GroupAxis::tp || of.axis == GroupAxis::dp) return true;
  if (trace.records_mesh() || of.axis == GroupAxis::pp || of.kind == Kind::send) return false;
  const auto stage = [&](int rank) { return trace.mesh.coord(rank).pp; };
  return !trace.has_mesh || std::ranges::all_of(group.ranks, [&](int rank) {
    return rank < trace.mesh.size() && stage(rank) == stage(group.ranks[0]);
  });
}

// Plans the rows: one for each group, kind, purpose and size.
Plan plan_rows(const RunTrace& trace) {
  using Key = std::tuple<std::int32_t, Kind, Purpose, std::int64_t>;
  const auto key_of = [](const EventInfo& info) {
    return Key(info.group, info.kind == Kind::recv ? Kind::send : info.kind, info.purpose, info.size_bytes);
  };
  const auto has_row = [&](const EventInfo& info) {
    return trace::is_comm(info.kind) && info.group >= 0 && static_cast<std::size_t>(info.group) < trace.groups.size();
  };
  std::vector<Key> keys;
  for (const EventInfo& info : trace.infos)
    if (has_row(info)) keys.push_back(key_of(info));
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());

  std::map<std::string, int> host_numbers;
  std::map<int, int> host_of;  // by rank's number
  for (const RankTrace& rank : trace.ranks) {
    if (rank.host.empty()) continue;
    const auto next = static_cast<int>(host_numbers.size());
    host_of[rank.rank] = host_numbers.try_emplace(rank.host, next).first->second;
  }
  const auto on_one_host = [&](const ProcessGroup& group) {
    int host = -1;
    for (const int rank : group.ranks) {
      const auto found = host_of.find(rank);
      if (found == host_of.end() || (host >= 0 && found->second != host)) return false;
      host = found->second;
    }
    return host >= 0;
  };

  Plan plan;
  plan.row_of_info.assign(trace.infos.size(), kNoRow);
  plan.first_of.assign(trace.groups.size() + 1, 0);
  bool one_host = false;
  for (const auto& [group, kind, purpose, size_bytes] : keys) {
    const ProcessGroup& g = trace.groups[static_cast<std::size_t>(group)];
    if (plan.group_of_row.empty() || plan.group_of_row.back() != group) one_host = on_one_host(g);
    plan.class_of_row.push_back({g.axis, kind, purpose, size_bytes, static_cast<int>(g.ranks.size()), one_host});
    plan.group_of_row.push_back(group);
    plan.traced_of_row.push_back(static_cast<int>(std::ranges::count_if(g.ranks, [&](int number) {
      const RankTrace* const rank = trace.rank(number);
      return rank != nullptr && !rank->is_cut_off;
    })));
    plan.tells_lateness.push_back(tells_lateness(trace, g, plan.class_of_row.back()));
    ++plan.first_of[static_cast<std::size_t>(group) + 1];
  }
  for (std::size_t g = 0; g < trace.groups.size(); ++g) plan.first_of[g + 1] += plan.first_of[g];
  for (std::size_t w = 0; w < trace.infos.size(); ++w) {
    if (!has_row(trace.infos[w])) continue;
    const auto found = std::ranges::lower_bound(keys, key_of(trace.infos[w]));
    plan.row_of_info[w] = static_cast<std::uint32_t>(found - keys.begin());
  }
  return plan;
}

// The samples of a row, collected in the pass over its group.
struct Samples {
  std::vector<float> skews_s, transfers_s;
  int most_members = 0;
};

// Measures one group at a time.
class Meter {
 public:
  Meter(const RunTrace& trace, const Matches& matches, const Plan& plan, std::vector<CommRow>& rows,
        std::vector<CommClass>& classes, std::vector<float>& quarters_s)
      : matches_(matches),
        plan_(plan),
        rows_(rows),
        classes_(classes),
        quarters_s_(quarters_s),
        groups_(trace.groups),
        is_foreign_(!trace.records_mesh()) {
    for (const RankTrace& rank : trace.ranks) events_.push_back(rank.events.data());
  }

  void measure(std::size_t group, std::vector<Lateness>& lateness) const {
    const std::uint32_t first = plan_.first_of[group], end = plan_.first_of[group + 1];
    std::vector<Samples> samples(end - first);
    const Matches::Range range = matches_.of_group(static_cast<std::int32_t>(group));
    for (std::uint32_t o = range.first; o < range.end; ++o) {
      const std::span<const Member> members = matches_.members_of(o);
      const std::uint32_t row = plan_.row_of_info[event(members[0]).info];
      if (row < first || row >= end) continue;
      ++rows_[row].operations;
      Samples& of_row = samples[row - first];
      of_row.most_members = std::max(of_row.most_members, static_cast<int>(members.size()));
      measure(members, row, of_row, lateness);
    }
    for (std::uint32_t row = first; row < end; ++row) close(row, samples[row - first]);
  }

 private:
  const Event& event(const Member& member) const { return events_[member.rank][member.event]; }

  void measure(std::span<const Member> members, std::uint32_t row, Samples& samples,
               std::vector<Lateness>& lateness) const {
    const CommClass& of_row = plan_.class_of_row[row];
    const auto traced = static_cast<std::size_t>(plan_.traced_of_row[row]);
    const bool is_partial = members.size() < static_cast<std::size_t>(std::max(of_row.members, 1));
    if (is_partial && (!is_foreign_ || members.size() < std::max<std::size_t>(traced, 2))) return;
    if (of_row.members == 0 && members.size() < 2) return;
    std::int64_t first_ns = event(members[0]).begin_ns, last_ns = first_ns, end_ns = 0, begins_ns = 0;
    std::uint32_t last = members[0].rank;
    for (const Member& member : members) {
      const Event& e = event(member);
      if (e.state != State::ended || plan_.row_of_info[e.info] != row) return;
      first_ns = std::min(first_ns, e.begin_ns);
      if (e.begin_ns > last_ns) {
        last_ns = e.begin_ns;
        last = member.rank;
      }
      end_ns = &member == members.data() ? e.end_ns() : std::max(end_ns, e.end_ns());
      begins_ns += e.begin_ns - event(members[0]).begin_ns;
    }
    const auto n = static_cast<std::int64_t>(members.size());
    const std::int64_t waits_ns = n * (last_ns - event(members[0]).begin_ns) - begins_ns;
    if (!is_partial) {
      const std::int64_t transfer_ns = std::max<std::int64_t>(end_ns - last_ns, 0);
      CommRow& sums = rows_[row];
      ++sums.complete;
      sums.wait_ns += waits_ns;
      sums.transfer_ns += transfer_ns;
      samples.skews_s.push_back(static_cast<float>(last_ns - first_ns) * 1e-9F);
      samples.transfers_s.push_back(static_cast<float>(transfer_ns) * 1e-9F);
    }
    if (n < 2 || !plan_.tells_lateness[row]) return;
    for (const Member& member : members) {
      ++lateness[member.rank].collectives;
      lateness[member.rank].partial += is_partial ? 1 : 0;
      lateness[member.rank].guessed += groups_[static_cast<std::size_t>(plan_.group_of_row[row])].is_guessed ? 1 : 0;
      lateness[member.rank].waited_ns += last_ns - event(member).begin_ns;
    }
    ++lateness[last].last;
    lateness[last].caused_ns += waits_ns;
    if (is_foreign_) lateness[last].caused_in[event(members[0]).step] += waits_ns;
  }

  void close(std::uint32_t row, Samples& samples) const {
    CommRow& r = rows_[row];
    CommClass& c = classes_[row];
    r.group = plan_.group_of_row[row];
    c = plan_.class_of_row[row];
    if (c.members == 0) c.members = samples.most_members;
    if (r.complete == 0) return;
    r.skew_p50_s = quantile(samples.skews_s, 0.5);
    r.skew_p99_s = quantile(samples.skews_s, 0.99);
    quarters_s_[row] = quantile(samples.transfers_s, 0.25);
    r.transfer_p50_s = quantile(samples.transfers_s, 0.5);
    r.transfer_p99_s = quantile(samples.transfers_s, 0.99);
    if (c.size_bytes < 0 || r.transfer_p50_s <= 0) return;
    r.algorithm_bandwidth = static_cast<double>(c.size_bytes) / r.transfer_p50_s;
    r.bus_bandwidth = r.algorithm_bandwidth * bus_factor(c.kind, c.members);
  }

  const Matches& matches_;
  const Plan& plan_;
  std::vector<CommRow>& rows_;
  std::vector<CommClass>& classes_;
  std::vector<float>& quarters_s_;
  const std::vector<ProcessGroup>& groups_;
  bool is_foreign_;
  std::vector<const Event*> events_;  // [rank's index]
};

// Compares the rows of one class and marks those that are suspect.
void compare(std::span<CommRow> rows, std::span<const float> quarters_s) {
  std::vector<double> transfers_s;
  for (const CommRow& row : rows)
    if (row.complete >= kFewestOperations) transfers_s.push_back(row.transfer_p50_s);
  if (transfers_s.size() < kFewestRows) return;
  const Spread spread = robust_spread(transfers_s);
  if (spread.median <= 0) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CommRow& row = rows[i];
    if (row.complete < kFewestOperations) continue;
    row.ratio = row.transfer_p50_s / spread.median;
    row.is_suspect = row.ratio >= kSuspectRatio && quarters_s[i] >= kSuspectQuarterRatio * spread.median &&
                     row.transfer_p50_s - spread.median > kSuspectSigmas * spread.sigma;
  }
}

// The sums of several rows that are reported as one.
struct Together {
  std::uint64_t rows = 0, operations = 0, complete = 0;
  std::vector<double> skews_s, transfers_s, bandwidths;
  double transfer_p99_s = 0;

  void add(const CommRow& row) {
    ++rows;
    operations += row.operations;
    complete += row.complete;
    if (row.complete == 0) return;
    skews_s.push_back(row.skew_p50_s);
    transfers_s.push_back(row.transfer_p50_s);
    bandwidths.push_back(row.bus_bandwidth);
    transfer_p99_s = std::max(transfer_p99_s, row.transfer_p99_s);
  }
};

void sum_up_classes(CommReport& report) {
  std::vector<Together> classes(report.classes.size());
  for (const CommRow& row : report.rows) classes[row.of_class].add(row);
  for (Together& c : classes) {
    report.summaries.push_back({c.rows, c.operations, c.complete, median(c.skews_s), median(c.transfers_s),
                                c.transfer_p99_s, median(c.bandwidths)});
  }
}

void sum_up_edges(const RunTrace& trace, CommReport& report) {
  if (!trace.has_mesh) return;
  std::map<std::tuple<Purpose, int, int>, Together> edges;
  for (const CommRow& row : report.rows) {
    const CommClass& c = report.classes[row.of_class];
    const std::vector<int>& ranks = trace.groups[static_cast<std::size_t>(row.group)].ranks;
    if (c.axis != GroupAxis::pp || c.kind != Kind::send || ranks.size() != 2) continue;
    edges[{c.purpose, trace.mesh.coord(ranks[0]).pp, trace.mesh.coord(ranks[1]).pp}].add(row);
  }
  std::vector<double> transfers_s;
  for (auto& [key, e] : edges) {
    const auto& [purpose, from, to] = key;
    report.edges.push_back(
        {from, to, purpose, e.rows, e.complete, median(e.transfers_s), e.transfer_p99_s, median(e.bandwidths), 1});
    if (e.complete > 0) transfers_s.push_back(report.edges.back().transfer_p50_s);
  }
  const double usual = median(transfers_s);
  for (EdgeSummary& edge : report.edges)
    if (edge.complete > 0 && usual > 0) edge.ratio = edge.transfer_p50_s / usual;
}

}  // namespace

double bus_factor(Kind kind, int members) {
  const double part = members > 0 ? static_cast<double>(members - 1) / members : 0;
  switch (kind) {
    case Kind::all_reduce: return 2 * part;
    case Kind::all_gather:
    case Kind::reduce_scatter:
    case Kind::all_to_all: return part;
    default: return 1;
  }
}

std::vector<SizeBucket> size_buckets(const CommReport& report) {
  struct Sum {
    std::uint64_t operations = 0;
    double bytes = 0, transfer_s = 0;
  };
  std::map<std::tuple<GroupAxis, Kind, int, std::int64_t>, Sum> sums;
  for (const CommRow& row : report.rows) {
    const CommClass& of = report.classes[row.of_class];
    if (of.size_bytes <= 0 || row.transfer_ns <= 0) continue;
    const auto least = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(of.size_bytes)));
    Sum& sum = sums[{of.axis, of.kind, of.members, least}];
    sum.operations += row.complete;
    sum.bytes += static_cast<double>(of.size_bytes) * static_cast<double>(row.complete);
    sum.transfer_s += seconds(row.transfer_ns);
  }
  std::vector<SizeBucket> buckets;
  for (const auto& [key, sum] : sums) {
    const auto& [axis, kind, members, least] = key;
    buckets.push_back(
        {axis, kind, members, least, sum.operations, sum.bytes / sum.transfer_s * bus_factor(kind, members)});
  }
  return buckets;
}

CommReport measure_communication(const RunTrace& trace, const Matches& matches) {
  const Plan plan = plan_rows(trace);
  const std::size_t count = plan.group_of_row.size();
  std::vector<CommRow> rows(count);
  std::vector<CommClass> classes(count);
  std::vector<float> quarters_s(count);
  CommReport report;
  report.by_rank.resize(trace.ranks.size());
  const Meter meter(trace, matches, plan, rows, classes, quarters_s);
  std::mutex mutex;  // guards report.by_rank
  in_blocks(trace.groups.size(), [&](std::size_t begin, std::size_t end) {
    std::vector<Lateness> lateness(trace.ranks.size());
    for (std::size_t group = begin; group < end; ++group) meter.measure(group, lateness);
    const std::lock_guard lock(mutex);
    for (std::size_t r = 0; r < lateness.size(); ++r) {
      report.by_rank[r].collectives += lateness[r].collectives;
      report.by_rank[r].last += lateness[r].last;
      report.by_rank[r].partial += lateness[r].partial;
      report.by_rank[r].guessed += lateness[r].guessed;
      report.by_rank[r].caused_ns += lateness[r].caused_ns;
      report.by_rank[r].waited_ns += lateness[r].waited_ns;
      for (const auto& [step, ns] : lateness[r].caused_in) report.by_rank[r].caused_in[step] += ns;
    }
  });

  std::vector<std::uint32_t> order;
  for (std::uint32_t row = 0; row < count; ++row)
    if (rows[row].operations > 0) order.push_back(row);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t row) { return class_key(classes[row]); });
  std::vector<float> ordered_quarters_s;
  for (const std::uint32_t row : order) {
    if (report.classes.empty() || !(report.classes.back() == classes[row])) report.classes.push_back(classes[row]);
    report.rows.push_back(rows[row]);
    report.rows.back().of_class = static_cast<std::uint32_t>(report.classes.size() - 1);
    ordered_quarters_s.push_back(quarters_s[row]);
  }
  for (std::size_t first = 0, end = 0; first < report.rows.size(); first = end) {
    while (end < report.rows.size() && report.rows[end].of_class == report.rows[first].of_class) ++end;
    compare(std::span(report.rows).subspan(first, end - first),
            std::span<const float>(ordered_quarters_s).subspan(first, end - first));
  }
  for (std::uint32_t row = 0; row < report.rows.size(); ++row)
    if (report.rows[row].is_suspect) report.suspects.push_back(row);
  std::ranges::stable_sort(report.suspects, std::greater<>{},
                           [&](std::uint32_t row) { return report.rows[row].ratio; });
  sum_up_classes(report);
  sum_up_edges(trace, report);
  return report;
}

}  // namespace ms::tracepp
