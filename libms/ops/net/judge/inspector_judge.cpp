#include "net/judge/inspector_judge.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::net {
namespace {

// A wait counts where it is this share of a call's time, and longer than clocks and launches differ.
constexpr double kLeastWait = 0.2, kLeastWait_us = 20;
// Who comes last to this share of the calls with a wait, at least so many, and costs this share of the time in calls.
constexpr double kLastIn = 0.6, kCosts = 0.1;
constexpr std::int64_t kFewestCalls = 8;
// Slow is what reaches less than this share of the median of its like, of which there must be so many.
constexpr double kSlow = 0.7;
constexpr std::size_t kFewestAlike = 3;

double middle_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

struct Shape {  // of operations that are compared
  int kind = 0;
  std::int64_t size_bytes = 0;
  int ranks = 0, nodes = 0;
  bool is_gpu_time = false;  // times of one clock are not compared with those of another
  auto operator<=>(const Shape&) const = default;
};
struct Calls {                                 // of one shape
  std::map<int, std::vector<double>> bus_gbs;  // by communicator
  double time_us = 0, waiting_us = 0;
  std::int64_t calls = 0;
};
struct Presence {  // of a process in all collectives
  std::int64_t calls = 0, last = 0;
  double time_us = 0, causes_us = 0, waits_us = 0;
};

class InspectorJudge {
 public:
  explicit InspectorJudge(const InspectorLog& log) : log_(log), presences_(log.processes().size()) {}

  InspectorJudged run() {
    collectives();
    late();
    slow_groups();
    slow_pairs();
    if (incomplete_ > 0) {
      not_run_.push_back(
          fmt::format("{} of {} collectives: records of some of their ranks are missing, pass the files of all",
                      incomplete_, incomplete_ + complete_));
    }
    if (log_.bad_lines() > 0)
      not_run_.push_back(
          fmt::format("{} that are no records", plural(static_cast<std::size_t>(log_.bad_lines()), "line")));
    if (log_.is_cut()) not_run_.emplace_back("all of these files: they have more records than are kept");
    return {.judged = {.findings = std::move(findings_), .not_run = std::move(not_run_)}, .rows = rows()};
  }

 private:
  const InspectorComm& comm_of(const InspectorOp& op) const { return log_.comms()[static_cast<std::size_t>(op.comm)]; }
  const InspectorProcess& process(int index) const { return log_.processes()[static_cast<std::size_t>(index)]; }
  Shape shape_of(const InspectorOp& op) const {
    return {.kind = op.kind,
            .size_bytes = op.size_bytes,
            .ranks = comm_of(op).ranks,
            .nodes = comm_of(op).nodes,
            .is_gpu_time = op.is_gpu_time};
  }
  std::set<std::string> hosts_of(int comm) const {
    std::set<std::string> hosts;
    for (const auto& [rank, index] : log_.comms()[static_cast<std::size_t>(comm)].processes)
      hosts.insert(process(index).host);
    return hosts;
  }
  std::string what(const Shape& shape) const {
    return fmt::format("{} of {}", log_.kinds()[static_cast<std::size_t>(shape.kind)],
                       format_size(static_cast<double>(shape.size_bytes)));
  }
  void find(std::string code, std::string entity, std::string message, std::string remedy) {
    const Blame blame = code == "nccl.late" ? Blame::user : Blame::fabric;  // the program, as far as is known
    findings_.push_back({.code = std::move(code),
                         .severity = Severity::warning,
                         .blame = blame,
                         .entity = std::move(entity),
                         .message = std::move(message),
                         .remedy = std::move(remedy)});
  }

  // Walks the records call by call: those of one communicator, kind and number.
  void collectives() {
    std::vector<const InspectorOp*> ops;
    for (const InspectorOp& op : log_.ops())
      if (op.peer < 0) ops.push_back(&op);
    const auto key = [](const InspectorOp* op) { return std::tuple(op->comm, op->kind, op->number); };
    std::ranges::sort(ops, {},
                      [](const InspectorOp* op) { return std::tuple(op->comm, op->kind, op->number, op->rank); });
    for (auto from = ops.begin(); from != ops.end();) {
      const auto to = std::find_if(from, ops.end(), [&](const InspectorOp* op) { return key(op) != key(*from); });
      call({from, to});
      from = to;
    }
  }

  void call(const std::vector<const InspectorOp*>& ranks) {
    const InspectorOp& one = *ranks.front();
    const InspectorComm& comm = comm_of(one);
    const bool are_alike = std::ranges::all_of(ranks, [&](const InspectorOp* op) {
      return op->size_bytes == one.size_bytes && op->is_gpu_time == one.is_gpu_time;
    });
    const auto same_rank = [](const InspectorOp* a, const InspectorOp* b) { return a->rank == b->rank; };
    if (comm.ranks < 2) return;
    if (!are_alike || ranks.size() != static_cast<std::size_t>(comm.ranks) ||
        std::ranges::adjacent_find(ranks, same_rank) != ranks.end()) {
      ++incomplete_;
      return;
    }
    ++complete_;
    std::vector<double> times;
    for (const InspectorOp* op : ranks) times.push_back(op->time_us);
    const InspectorOp& last = **std::ranges::min_element(ranks, {}, [](const InspectorOp* op) { return op->time_us; });
    const double middle_us = middle_of(times), wait_us = middle_us - last.time_us;
    Calls& calls = shapes_[shape_of(one)];
    calls.bus_gbs[one.comm].push_back(last.bus_gbs);
    calls.time_us += middle_us;
    calls.waiting_us += wait_us;
    ++calls.calls;
    const bool is_wait = wait_us > kLeastWait_us && wait_us > kLeastWait * middle_us;
    for (const InspectorOp* op : ranks) {
      Presence& of = presences_[static_cast<std::size_t>(comm.processes.at(op->rank))];
      of.time_us += op == &last ? middle_us : op->time_us;
      if (!is_wait) continue;
      ++of.calls;
      of.last += op == &last;
      (op == &last ? of.causes_us : of.waits_us) += op == &last ? wait_us : op->time_us - last.time_us;
    }
  }

  // Processes that come last. One that waits as long itself, in another group, only passes on what it waits for.
  void late() {
    std::map<std::string, std::vector<std::size_t>> by_host;
    for (std::size_t index = 0; index < presences_.size(); ++index) {
      const Presence& of = presences_[index];
      if (of.last >= kFewestCalls && static_cast<double>(of.last) >= kLastIn * static_cast<double>(of.calls) &&
          of.causes_us >= kCosts * of.time_us && of.causes_us >= 2 * of.waits_us)
        by_host[process(static_cast<int>(index)).host].push_back(index);
    }
    for (const auto& [host, indices] : by_host) {
      std::vector<std::int64_t> pids;
      Presence all;
      for (const std::size_t index : indices) {
        pids.push_back(process(static_cast<int>(index)).pid);
        all.last += presences_[index].last;
        all.calls += presences_[index].calls;
        all.time_us += presences_[index].time_us;
        all.causes_us += presences_[index].causes_us;
      }
      find("nccl.late", host,
           fmt::format(
               "process {} comes last to {} of {} collectives with a wait, and the others wait {:.0f} % of their "
               "time in collectives for it",
               fmt::join(pids, ", "), all.last, all.calls, 100 * all.causes_us / all.time_us),
           "see what it does before the calls: data, host, its own GPU; not the network. ms-tracepp stragglers on "
           "profiler "
           "traces, then ms-diag on the host");
    }
  }

  // Groups that transfer more slowly than others of their shape. What only slow ones have in common is named.
  void slow_groups() {
    for (const auto& [shape, calls] : shapes_) {
      std::map<int, double> speeds;
      std::vector<double> all;
      for (const auto& [comm, bus_gbs] : calls.bus_gbs) {
        if (static_cast<std::int64_t>(bus_gbs.size()) < kFewestCalls) continue;
        all.push_back(speeds[comm] = middle_of(bus_gbs));
      }
      if (speeds.size() < kFewestAlike) continue;
      const double usual = middle_of(all);
      std::set<std::string> fine;
      for (const auto& [comm, speed] : speeds)
        if (speed >= kSlow * usual) fine.merge(hosts_of(comm));
      for (const auto& [comm, speed] : speeds) {
        if (speed >= kSlow * usual) continue;
        const std::set<std::string> hosts = hosts_of(comm);
        std::vector<std::string> only;
        std::ranges::set_difference(hosts, fine, std::back_inserter(only));
        if (only.empty()) only.assign(hosts.begin(), hosts.end());
        const std::string entity = slurm::fold_hostlist(only);
        if (!slow_.emplace(entity, shape.nodes > 1).second) continue;  // its first size says enough
        const InspectorComm& of = log_.comms()[static_cast<std::size_t>(comm)];
        find("nccl.slow_group", entity,
             fmt::format("{}: {:.4g} GB/s in group {} ({}), and {:.4g} GB/s in {} like it", what(shape), speed,
                         of.name.empty() || of.name == "unknown" ? of.id : of.name, plural(hosts.size(), "host"), usual,
                         plural(speeds.size() - 1, "group")),
             shape.nodes > 1 ? "measure these hosts beside others: ms-netcheck locate"
                             : "see NVLink and PCIe of the host: ms-diag fleet");
      }
    }
  }

  // Sends and receives by their two hosts; a time holds the wait for the peer, so the fastest tenth is compared.
  void slow_pairs() {
    using Pair = std::pair<std::string, std::string>;
    // By size, whether both are one host, and the clock of the times.
    std::map<std::tuple<std::int64_t, bool, bool>, std::map<Pair, std::vector<double>>> sizes;
    for (const InspectorOp& op : log_.ops()) {
      if (op.peer < 0) continue;
      const auto& processes = comm_of(op).processes;
      const auto own = processes.find(op.rank), peer = processes.find(op.peer);
      if (peer == processes.end()) continue;
      Pair pair(process(own->second).host, process(peer->second).host);
      if (log_.kinds()[static_cast<std::size_t>(op.kind)] == "Recv") std::swap(pair.first, pair.second);
      sizes[{op.size_bytes, pair.first == pair.second, op.is_gpu_time}][pair].push_back(op.bus_gbs);
    }
    for (auto& [size, pairs] : sizes) {
      std::map<Pair, double> speeds;
      std::vector<double> all;
      for (auto& [pair, bus_gbs] : pairs) {
        if (static_cast<std::int64_t>(bus_gbs.size()) < kFewestCalls) continue;
        std::ranges::sort(bus_gbs);
        all.push_back(speeds[pair] = bus_gbs[bus_gbs.size() * 9 / 10]);
      }
      if (speeds.size() <= kFewestAlike) continue;
      const double usual = middle_of(all);
      for (const auto& [pair, speed] : speeds) {
        if (speed >= kSlow * usual) continue;
        const std::string entity = fmt::format("{} -> {}", pair.first, pair.second);
        if (!slow_.emplace(entity, true).second) continue;
        find("nccl.slow_pair", entity,
             fmt::format("transfers of {}: {:.4g} GB/s, and {:.4g} GB/s between {} like it",
                         format_size(static_cast<double>(std::get<0>(size))), speed, usual,
                         plural(speeds.size() - 1, "pair")),
             "measure this pair beside others: ms-netcheck pairs");
      }
    }
  }

  std::vector<InspectorRow> rows() const {
    std::vector<std::pair<double, InspectorRow>> timed;
    for (const auto& [shape, calls] : shapes_) {
      std::vector<double> speeds;
      for (const auto& [comm, bus_gbs] : calls.bus_gbs) speeds.push_back(middle_of(bus_gbs));
      timed.emplace_back(calls.time_us,
                         InspectorRow{.kind = log_.kinds()[static_cast<std::size_t>(shape.kind)],
                                      .size_bytes = shape.size_bytes,
                                      .ranks = shape.ranks,
                                      .nodes = shape.nodes,
                                      .groups = static_cast<std::int64_t>(speeds.size()),
                                      .calls = calls.calls,
                                      .bus_gbs = middle_of(speeds),
                                      .slowest_gbs = std::ranges::min(speeds),
                                      .waiting = calls.time_us > 0 ? calls.waiting_us / calls.time_us : 0});
    }
    std::ranges::stable_sort(timed, std::greater<>(), [](const auto& row) { return row.first; });
    std::vector<InspectorRow> rows;
    for (auto& [time_us, row] : timed) rows.push_back(std::move(row));
    return rows;
  }

  const InspectorLog& log_;
  std::map<Shape, Calls> shapes_;
  std::vector<Presence> presences_;  // by process
  std::set<std::pair<std::string, bool>> slow_;
  std::int64_t complete_ = 0, incomplete_ = 0;
  std::vector<Finding> findings_;
  std::vector<std::string> not_run_;
};

}  // namespace

const std::vector<NcclChoiceCode>& inspector_codes() {
  static const std::vector<NcclChoiceCode> kCodes{
      {"nccl.late",
       "A process comes last to most collectives, and the others wait for it. The network is not the cause."},
      {"nccl.slow_group",
       "A group transfers with less than 70 % of the bus bandwidth of most groups of its shape, for the same operation "
       "and "
       "size. The entity is the hosts that only slow groups have, or else all hosts of the group."},
      {"nccl.slow_pair", "Transfers between two hosts reach less than 70 % of the bandwidth of most other pairs."}};
  return kCodes;
}

InspectorJudged judge_inspector(const InspectorLog& log) { return InspectorJudge(log).run(); }

}  // namespace ms::net
