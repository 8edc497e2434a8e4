#include "tracepp/steps/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "cost/mfu.h"
#include "tracepp/parallel.h"
#include "tracepp/steps/steps.h"

namespace ms::tracepp {
namespace {

constexpr std::uint32_t kNoOwner = 0xffffffff;

bool has_shape(const EventInfo& info) { return info.origin == Origin::op && (info.flops > 0 || info.size_bytes >= 0); }

class Measurement {
 public:
  Measurement(const RunTrace& trace, const RankTrace& rank) : trace_(trace), rank_(rank) {}

  RankKernels run() {
    const std::vector<StepSpan> spans = step_spans(rank_, trace_.infos);
    if (!spans.empty()) end_ns_ = spans.back().end_ns;
    for (const StepSpan& span : spans) found_.steps.push_back({.step = span.step, .length_ns = span.length_ns()});
    found_.has_device = std::ranges::any_of(rank_.events, [&](const Event& event) { return is_work(event); });
    calls_.assign(rank_.events.size(), kNoOwner);
    from_ns_.assign(256, std::numeric_limits<std::int64_t>::min());
    std::vector<bool> is_linked(from_ns_.size());
    for (const Launch& launch : rank_.launches) {
      calls_[launch.event] = launch.call;
      const Event& event = rank_.events[launch.event];  // by begin
      if (!is_linked[event.lane]) from_ns_[event.lane] = event.begin_ns;
      is_linked[event.lane] = true;
    }
    find_owners();
    add_device();
    add_ops();
    found_.launches = launch_times();
    measure_queues();
    for (auto& [name, time] : kernels_) found_.kernels.push_back(time);
    for (auto& [name, time] : copies_) found_.copies.push_back(time);
    for (auto& [name, time] : ops_) found_.ops.push_back(time);
    const auto by_time = [](const auto& a, const auto& b) {
      return a.time.ns != b.time.ns ? a.time.ns > b.time.ns : a.name < b.name;
    };
    std::ranges::sort(found_.kernels, by_time);
    std::ranges::sort(found_.copies, by_time);
    std::ranges::sort(found_.ops, [&](const OpTime& a, const OpTime& b) {
      const auto key = [&](const OpTime& op) { return found_.has_device ? op.device_ns : op.host.ns; };
      return key(a) != key(b) ? key(a) > key(b) : a.name < b.name;
    });
    return std::move(found_);
  }

 private:
  // The operators around an event: the outermost, and the innermost with a formula. Indices in RankTrace::events.
  struct Owner {
    std::uint32_t outer = kNoOwner, shaped = kNoOwner;
    bool again = false, in_backward = false;
  };
  struct Open {
    std::int64_t end_ns = 0;
    Owner owner;  // with this event
  };
  // The kernels that an operator with a formula launched.
  struct Launched {
    std::int64_t ns = 0, longest_ns = 0;
    std::uint32_t longest = kNoOwner;  // event
    bool again = false;
  };

  const EventInfo& info(std::uint32_t event) const { return trace_.info(rank_.events[event]); }
  std::string_view name(std::uint32_t event) const { return trace_.strings.text(info(event).name); }
  bool is_work(const Event& event) const {
    const EventInfo& of = trace_.info(event);
    return event.state == State::ended && (of.origin == Origin::kernel || of.origin == Origin::copy) &&
           of.kind != Kind::step;
  }
  bool is_counted(std::uint32_t event) const {
    const Event& of = rank_.events[event];
    const std::uint32_t call = calls_[event];
    return call != kNoOwner ? rank_.events[call].begin_ns <= end_ns_
                            : of.begin_ns >= from_ns_[of.lane] && of.begin_ns <= end_ns_;
  }

  void find_owners() {
    owners_.resize(rank_.events.size());
    holds_shaped_.resize(rank_.events.size());
    std::vector<std::vector<Open>> open(256);
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < rank_.events.size(); ++i) {
      const Origin origin = info(i).origin;
      if (rank_.events[i].state == State::ended && origin >= Origin::op && info(i).kind != Kind::step)
        order.push_back(i);
    }
    // The longest of events that begin together is the outer one.
    const auto earlier = [&](std::uint32_t a, std::uint32_t b) {
      const Event &x = rank_.events[a], &y = rank_.events[b];
      return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns : x.duration_ns > y.duration_ns;
    };
    if (!std::ranges::is_sorted(order, earlier)) std::ranges::stable_sort(order, earlier);
    for (const std::uint32_t i : order) {
      const Event& event = rank_.events[i];
      std::vector<Open>& stack = open[event.lane];
      while (!stack.empty() && stack.back().end_ns <= event.begin_ns) stack.pop_back();
      Owner owner = stack.empty() ? Owner{} : stack.back().owner;
      owners_[i] = owner;
      const EventInfo& of = info(i);
      if (of.origin == Origin::call) continue;
      mark_recomputation(name(i), owner);
      if (of.origin == Origin::op) {
        if (owner.outer == kNoOwner) owner.outer = i;
        // The outer one of two with a formula does not count.
        if (has_shape(of)) {
          if (owner.shaped != kNoOwner) holds_shaped_[owner.shaped] = true;
          owner.shaped = i;
        }
      }
      owners_[i] = owner;
      stack.push_back({event.end_ns(), owner});
    }
  }

  static void mark_recomputation(std::string_view name, Owner& owner) {
    if (name.starts_with("autograd::engine::evaluate_function")) {
      owner.in_backward = true;
      owner.again = false;  // of what is computed again, the backward
    } else if (name == "CheckpointFunctionBackward" ||
               (name.find("torch/utils/checkpoint.py(") != std::string_view::npos &&
                (name.ends_with(": unpack_hook") || name.ends_with(": recompute_fn")))) {
      owner.again = true;
    }
  }

  void add_device() {
    constexpr std::int64_t kNever_ns = std::numeric_limits<std::int64_t>::min() / 2;
    std::int64_t busy_until_ns = kNever_ns;
    for (std::uint32_t i = 0; i < rank_.events.size(); ++i) {
      const Event& event = rank_.events[i];
      if (!is_work(event) || !is_counted(i)) continue;
      const EventInfo& of = trace_.info(event);
      const Owner owner = calls_[i] == kNoOwner ? Owner{} : owners_[calls_[i]];
      if (owner.outer != kNoOwner) {
        OpTime& op = ops_[info(owner.outer).name];
        op.device_ns += event.duration_ns;
        op.kernels += of.origin == Origin::kernel ? 1 : 0;
      }
      if (of.origin == Origin::copy) {
        KernelTime& copy = copies_[of.name];
        copy.name = of.name;
        copy.time.add(event.duration_ns);
        if (of.size_bytes >= 0) {
          copy.achieved.bytes += static_cast<double>(of.size_bytes);
          copy.achieved.bytes_ns += event.duration_ns;
        }
      } else {
        KernelTime& kernel = kernels_[of.name];
        if (kernel.time.count == 0) {
          kernel.name = of.name;
          kernel.kind = of.kind;
          kernel.cores = tensor_cores_of(trace_.strings.text(of.name));
        }
        kernel.time.add(event.duration_ns);
        add_shape(i, owner);
        if (event.duration_ns < kShortKernel_ns) {
          ++found_.short_ones.count;
          found_.short_ones.ns += event.duration_ns;
          if (busy_until_ns != kNever_ns)
            found_.short_ones.idle_before_ns += std::max<std::int64_t>(0, event.begin_ns - busy_until_ns);
        }
      }
      busy_until_ns = std::max(busy_until_ns, event.end_ns());
    }
    if (!found_.steps.empty()) found_.overhang_ns = std::max<std::int64_t>(0, busy_until_ns - end_ns_);
  }

  void add_shape(std::uint32_t kernel, const Owner& owner) {
    const Event& event = rank_.events[kernel];
    const Kind kind = trace_.info(event).kind;
    const bool is_shaped = owner.shaped != kNoOwner && info(owner.shaped).flops > 0;
    const std::string_view of = trace_.strings.text(trace_.info(event).name);
    const bool may_hold = kind == Kind::matmul || kind == Kind::attention || of.starts_with("triton_tem_");
    if (!trace::is_comm(kind) && (is_shaped || may_hold)) {
      found_.gemm_ns += event.duration_ns;
      if (is_shaped) found_.shaped_ns += event.duration_ns;
    }
    if (owner.shaped == kNoOwner || trace::is_comm(kind)) return;
    Launched& launched = launched_[owner.shaped];
    launched.again |= owner.again;
    launched.ns += event.duration_ns;
    if (launched.longest != kNoOwner && event.duration_ns <= launched.longest_ns) return;
    launched.longest = kernel;
    launched.longest_ns = event.duration_ns;
  }

  void add_ops() {
    std::unordered_map<std::int32_t, std::size_t> steps;
    for (std::size_t s = 0; s < found_.steps.size(); ++s) steps.emplace(found_.steps[s].step, s);
    for (std::uint32_t i = 0; i < rank_.events.size(); ++i) {
      const Event& event = rank_.events[i];
      const EventInfo& of = info(i);
      if (of.origin != Origin::op || event.state != State::ended || event.begin_ns > end_ns_) continue;
      OpTime& outer = ops_[info(owners_[i].outer).name];
      outer.name = info(owners_[i].outer).name;
      if (owners_[i].outer == i) outer.host.add(event.duration_ns);
      if (!has_shape(of)) continue;
      const auto launched = launched_.find(i);
      if (found_.has_device ? launched == launched_.end() : holds_shaped_[i]) continue;
      if (found_.has_device) add_achieved(of, launched->second);
      if (of.flops <= 0) continue;
      outer.flops += of.flops;
      const bool again = owners_[i].again || (owners_[i].in_backward && is_forward_attention(name(i)));
      if (again) {
        found_.recomputed_flops += of.flops;
        // Only a name as that of attention tells: GEMMs beside it are not told apart.
        found_.may_recompute |= !owners_[i].again;
        continue;
      }
      const auto step = steps.find(event.step);
      if (step == steps.end()) continue;
      found_.steps[step->second].flops += of.flops;
      found_.flops_by_type[of.type] += of.flops;
    }
  }
  static bool is_forward_attention(std::string_view name) {
    return name.starts_with("aten::_scaled_dot_product") && !name.ends_with("_backward");
  }

  // Adds what an operator computed and moved to its longest kernel.
  void add_achieved(const EventInfo& op, const Launched& launched) {
    Achieved& achieved = kernels_[info(launched.longest).name].achieved;
    if (op.flops > 0) {
      achieved.flops += op.flops;
      achieved.flops_ns += launched.ns;
    }
    if (op.size_bytes >= 0) {
      achieved.bytes += static_cast<double>(op.size_bytes);
      achieved.bytes_ns += launched.ns;
    }
  }

  LaunchTimes launch_times() const {
    constexpr std::int64_t kLate_ns = 100'000;
    LaunchTimes times;
    std::vector<std::int64_t> delays;
    for (const Launch& launch : rank_.launches) {
      if (info(launch.event).origin != Origin::kernel || !is_counted(launch.event)) continue;
      const Event& call = rank_.events[launch.call];
      delays.push_back(std::max<std::int64_t>(0, rank_.events[launch.event].begin_ns - call.end_ns()));
      times.calls_ns += call.duration_ns;
      times.late += delays.back() > kLate_ns ? 1 : 0;
    }
    times.count = delays.size();
    if (delays.empty()) return times;
    std::ranges::sort(delays);
    times.median_ns = delays[delays.size() / 2];
    times.p90_ns = delays[delays.size() * 9 / 10];
    times.most_ns = delays.back();
    return times;
  }

  void measure_queues() {
    struct Change {
      std::int64_t at_ns;
      int by;
    };
    std::map<std::uint8_t, std::vector<Change>> streams;
    for (const Launch& launch : rank_.launches) {
      if (!is_counted(launch.event)) continue;
      const Event& event = rank_.events[launch.event];
      const std::int64_t launched_ns = rank_.events[launch.call].begin_ns;
      streams[event.lane].push_back({launched_ns, 1});
      streams[event.lane].push_back({std::max(launched_ns, event.begin_ns), -1});
    }
    for (auto& [lane, changes] : streams) {
      std::ranges::stable_sort(changes, [](const Change& a, const Change& b) {
        return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.by > b.by;
      });
      QueueLength queue{.lane = lane};
      std::int64_t length = 0;
      double area = 0;
      for (std::size_t i = 0; i < changes.size(); ++i) {
        if (i > 0) area += static_cast<double>(length) * static_cast<double>(changes[i].at_ns - changes[i - 1].at_ns);
        length += changes[i].by;
        queue.most = std::max(queue.most, static_cast<std::uint32_t>(std::max<std::int64_t>(0, length)));
      }
      const std::int64_t span_ns = changes.back().at_ns - changes.front().at_ns;
      queue.mean = span_ns > 0 ? area / static_cast<double>(span_ns) : 0;
      found_.queues.push_back(queue);
    }
  }

  const RunTrace& trace_;
  const RankTrace& rank_;
  std::int64_t end_ns_ = std::numeric_limits<std::int64_t>::max();  // of the last step
  std::vector<std::int64_t> from_ns_;  // by lane: the first begin of one whose launch is in the trace
  std::vector<std::uint32_t> calls_;   // by event: what launched it
  std::vector<Owner> owners_;          // by event, of operators and calls
  std::vector<bool> holds_shaped_;     // by event: operators with a formula around another one
  std::unordered_map<std::uint32_t, Launched> launched_;
  std::unordered_map<std::uint32_t, KernelTime> kernels_, copies_;  // by name
  std::unordered_map<std::uint32_t, OpTime> ops_;
  RankKernels found_;
};

bool is_fp8(std::string_view type) { return type.find("Float8") != std::string_view::npos; }

}  // namespace

void Lengths::add(std::int64_t one_ns) { add({.count = 1, .ns = one_ns, .least_ns = one_ns, .most_ns = one_ns}); }

void Lengths::add(const Lengths& other) {
  if (other.count == 0) return;
  least_ns = count == 0 ? other.least_ns : std::min(least_ns, other.least_ns);
  most_ns = std::max(most_ns, other.most_ns);
  count += other.count;
  ns += other.ns;
}

void Achieved::add(const Achieved& other) {
  flops += other.flops;
  bytes += other.bytes;
  flops_ns += other.flops_ns;
  bytes_ns += other.bytes_ns;
}

std::vector<RankKernels> measure_kernels(const RunTrace& trace) {
  if (std::ranges::none_of(trace.infos, [](const EventInfo& info) { return info.origin != Origin::unknown; }))
    return {};
  std::vector<RankKernels> found(trace.ranks.size());
  in_blocks(trace.ranks.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) found[r] = Measurement(trace, trace.ranks[r]).run();
  });
  return found;
}

Mfu mfu_of(const RunTrace& trace, std::size_t rank, const RankKernels& kernels) {
  Mfu found;
  double ideal_s = 0;
  std::int64_t length_ns = kernels.overhang_ns;  // the host may be ahead of the device
  for (const StepFlops& step : kernels.steps) length_ns += step.length_ns;
  if (kernels.flops_by_type.empty() || length_ns <= 0) {
    found.why = "no shapes of GEMMs are in the trace: record with record_shapes=True";
    return found;
  }
  if (kernels.has_device && kernels.shaped_share() < kLeastShaped) {
    found.why =
        fmt::format("shapes are recorded for only {:.0f} % of the time of GEMM, convolution and attention kernels",
                    100 * kernels.shaped_share());
    return found;
  }
  const auto known = cost::known_ceilings(trace.ranks[rank].device);
  found.peak = trace.peak_flops > 0 ? trace.peak_flops : known ? known->bf16_flops : 0;
  found.fp8_peak = trace.peak_flops > 0 ? trace.peak_flops : known ? known->fp8_flops : 0;
  if (found.peak <= 0) {
    found.why = "the peak of this device is not known: --peak-tflops";
    return found;
  }
  for (const auto& [type, flops] : kernels.flops_by_type)
    ideal_s += flops / (is_fp8(trace.strings.text(type)) ? found.fp8_peak : found.peak);
  found.mfu = ideal_s / seconds(length_ns);
  if (found.mfu > 1) {
    found.mfu = 0;
    found.why = "the recorded shapes need more than the peak: it is not this device's, or not all time is in the trace";
    return found;
  }
  found.is_lower_bound = kernels.has_device && kernels.shaped_share() < kMostlyShaped;
  return found;
}

}  // namespace ms::tracepp
