// Implements look_first of report.h: faults that were found, then other costs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>

#include "base/text.h"
#include "tracepp/report/report.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr double kLeastShare = 0.01;
constexpr std::size_t kMost = 3;
constexpr double kAsScheduled = 1.25;  // times the bubble that the schedule explains

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }
std::string rough_percent(double part) { return fmt::format("{:.{}f} %", 100 * part, part < 0.1 ? 1 : 0); }

void add_hang(std::vector<Advice>& list, const Hang& hang) {
  if (hang.state != RunState::hang && hang.state != RunState::failed && hang.state != RunState::killed) return;
  list.push_back({.cost_share = 1,
                  .sentence = hang.sentence,
                  .hint = "ms-tracepp hang shows which ranks wait for which",
                  .is = Advice::Is::fault,
                  .cause = "hang"});
}

void add_findings(std::vector<Advice>& list, const Diagnosis& diagnosis) {
  for (const Finding& finding : diagnosis.findings) {
    list.push_back({.cost_share = finding.cost_share,
                    .sentence = fmt::format("{} ({}){}{}", finding.evidence, cost_text(diagnosis, finding),
                                            finding.doubt.empty() ? "" : "; in doubt: ", finding.doubt),
                    .is = !is_fault(finding)      ? Advice::Is::design
                          : finding.doubt.empty() ? Advice::Is::fault
                                                  : Advice::Is::lost,
                    .cause = to_string(finding.code),
                    .rank = finding.ranks.empty() ? -1 : finding.ranks.front()});
  }
}

void add_lost(std::vector<Advice>& list, const Diagnosis& diagnosis) {
  if (std::string lost = lost_text(diagnosis); !lost.empty()) {
    list.push_back({.cost_share = share(diagnosis.stragglers.without_delays_s - diagnosis.stragglers.ideal_s,
                                        diagnosis.measured_s),
                    .sentence = std::move(lost),
                    .hint = "ms-tracepp stragglers shows it by rank, stage and kind of operation"});
  }
}

void add_changes(std::vector<Advice>& list, const RunTrace& trace, const ChangePoints& changes, bool explained) {
  for (const ChangePoint& point : changes.points) {
    if (point.after_s <= point.before_s) continue;
    std::string who = ", on all ranks alike";
    if (!point.ranks.empty()) {
      who = fmt::format("; {} {} more there", rank_text(trace, point.ranks.front().rank),
                        point.ranks.front().change.part == StepPart::busy ? "computes" : "waits");
    } else if (explained) {
      continue;
    }
    list.push_back(
        {.cost_share = share(point.after_s - point.before_s, point.after_s),
         .sentence = fmt::format("since about step {} a step takes {} longer ({:.4g} s, {:.4g} s before){}", point.step,
                                 rough_percent(point.after_s / point.before_s - 1), point.after_s, point.before_s, who),
         .is = Advice::Is::fault,
         .cause = "slower",
         .rank = point.ranks.empty() ? -1 : trace.ranks[point.ranks.front().rank].rank});
  }
}

void add_slow_groups(std::vector<Advice>& list, const RunTrace& trace, const Analysis& analysis) {
  const double all_s = static_cast<double>(sum_of(analysis.breakdown.steps).length_ns) * 1e-9;
  for (const std::uint32_t index : analysis.comms.suspects) {
    const CommRow& row = analysis.comms.rows[index];
    if (row.group < 0) continue;
    const ProcessGroup& group = trace.groups[static_cast<std::size_t>(row.group)];
    const CommClass& of = analysis.comms.classes[row.of_class];
    const double lost_s = static_cast<double>(row.transfer_ns) * 1e-9 * (1 - 1 / row.ratio) *
                          static_cast<double>(std::max(of.members, 1));
    list.push_back(
        {.cost_share = share(lost_s, all_s),
         .sentence = fmt::format("communication of group {} takes {:.2g} times as long as that of others like it",
                                 printable(group.name, 80), row.ratio),
         .hint = "ms-netcheck pairs tells whether it is the link",
         .is = Advice::Is::fault,
         .cause = to_string(FindingCode::slow_link)});
  }
}

void add_last_comer(std::vector<Advice>& list, const Finding& found) {
  list.push_back({.cost_share = found.cost_share,
                  .sentence = found.evidence + (found.doubt.empty() ? "" : "; in doubt: ") + found.doubt,
                  .hint = found.hint.empty() ? "ms-tracepp stragglers shows it by rank" : found.hint,
                  .is = found.doubt.empty() ? Advice::Is::fault : Advice::Is::lost,
                  .confidence = found.confidence,
                  .cause = to_string(found.code),
                  .rank = found.ranks.front(),
                  .line = found.line});
}

std::string axis_hint(GroupAxis axis, const RunTrace& trace) {
  if (trace.source != &kOwnSource) {
    switch (axis) {
      case GroupAxis::tp: return "overlap tensor-parallel communication with computing, or fewer tensor-parallel ranks";
      case GroupAxis::dp: return "overlap the reduction of gradients with computing, or more microbatches in a step";
      case GroupAxis::pp: return "overlap sends and recvs with computing, or more chunks (virtual stages) a rank";
      case GroupAxis::world:
        return "overlap it with computing (buckets of DDP, prefetching of FSDP), or communicate less often (no_sync)";
      default: return {};
    }
  }
  switch (axis) {
    case GroupAxis::tp: return "[overlap] tp, or fewer tp ranks";
    case GroupAxis::dp: return "[overlap] dp and dp_message, or more microbatches in a step";
    case GroupAxis::pp: return "[overlap] pp, or more chunks";
    default: return {};
  }
}

void add_bubble(std::vector<Advice>& list, const Bubble& bubble, double measured, double expected) {
  if (measured <= 0) return;
  if (measured <= kAsScheduled * expected) {
    list.push_back({.cost_share = measured,
                    .sentence = fmt::format("pipeline ranks are idle in {} of their time, no more than schedule {} "
                                            "with {} microbatches makes them ({})",
                                            rough_percent(measured), bubble.schedule->name, bubble.microbatches,
                                            rough_percent(expected)),
                    .hint = "more microbatches in a step, mesh.chunks, or mesh.schedule = \"zb-h1\"",
                    .is = Advice::Is::design,
                    .cause = "bubble"});
    return;
  }
  list.push_back({.cost_share = measured,
                  .sentence = fmt::format("pipeline ranks are idle in {} of their time; schedule {} with {} "
                                          "microbatches explains only {}: sections do not take equally long, or "
                                          "transfers are late",
                                          rough_percent(measured), bubble.schedule->name, bubble.microbatches,
                                          rough_percent(expected)),
                  .hint = "ms-tracepp stragglers shows whose sections are long",
                  .cause = "bubble"});
}

// The words for a cause of idle time, behind "ranks are idle in 5 % of their time", and a hint.
struct IdleWords {
  std::string_view why, hint;
  bool is_design = false;
};
constexpr std::array<IdleWords, kIdleCauses> kIdleWords{
    {{"because the host waits for the device and cannot launch ahead",
      "leave values on the device (.item(), .cpu() and printing wait for it); copy from pinned memory, non_blocking"},
     {"for the data loader", "more workers, a larger prefetch_factor, or faster storage"},
     {"for a checkpoint that is written", "save less often or asynchronously, or faster storage"},
     {"for garbage collection on the host", "gc.disable(), and gc.collect() at the same steps on all ranks"},
     {"for compilation on the host", "TORCH_LOGS=recompiles tells why something is compiled again"},
     {"because the host launches kernels late",
      "do less on the host in the function that is named; if most of it launches kernels, use fewer and larger ones "
      "(larger batches, torch.compile, CUDA graphs)"},
     {"from a launch that came late to the begin of its kernel", "fewer and larger kernels, or CUDA graphs", true},
     {"between kernels that are queued", "fewer and larger kernels, or CUDA graphs", true},
     {"because a stream waits for an event", "", true},
     {"though kernels are queued, and the trace does not show what they wait for",
      "enable_cuda_sync_events of torch.profiler's experimental configuration records waits for events", true},
     {"while the host is outside of operators", ""},
     {"and nothing in the trace says why", "too few cores for the host threads, or work that is not traced"}}};

// Adds the largest causes of idle time: of one rank if it has much more of it than the others.
void add_idle(std::vector<Advice>& list, const RunTrace& trace, const std::vector<RankIdle>& idle) {
  constexpr std::size_t kMostCauses = 2;
  constexpr double kUneven = 2, kUnevenShare = 0.02, kNearlyAll = 0.9, kMostOnce = 0.7;
  constexpr std::size_t kFewSteps = 3;
  std::vector<Advice> found;
  for (std::size_t c = 0; c < kIdleCauses; ++c) {
    const auto cause = static_cast<IdleCause>(c);
    std::vector<double> shares;
    double part_ns = 0, whole_ns = 0;
    for (const RankIdle& rank : idle) {
      shares.push_back(share(static_cast<double>(rank.of(cause)), static_cast<double>(rank.length_ns())));
      part_ns += static_cast<double>(rank.of(cause));
      whole_ns += static_cast<double>(rank.length_ns());
    }
    const auto most = static_cast<std::size_t>(std::ranges::max_element(shares) - shares.begin());
    std::vector<double> others = shares;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(most));
    std::ranges::sort(others);
    const double of_others = others.empty() ? 0 : others[others.size() / 2];
    const bool is_uneven = !others.empty() && shares[most] >= kUneven * of_others + kUnevenShare;
    Advice advice{.cost_share = is_uneven ? shares[most] - of_others : share(part_ns, whole_ns),
                  .sentence = {},
                  .hint = std::string(kIdleWords[c].hint),
                  .is = kIdleWords[c].is_design ? Advice::Is::design : Advice::Is::lost,
                  .cause = to_string(cause),
                  .rank = is_uneven ? trace.ranks[most].rank : -1};
    const RankIdle& worst = idle[most];
    advice.sentence =
        is_uneven
            ? fmt::format("{} is idle in {} of its time {}; other ranks in {}", rank_text(trace, most),
                          rough_percent(shares[most]), kIdleWords[c].why, rough_percent(of_others))
            : fmt::format("{} idle in {} of {} time {}",
                          idle.size() == 1   ? worst.has_device ? "the device is" : "the rank is"
                          : worst.has_device ? "devices are"
                                             : "ranks are",
                          rough_percent(advice.cost_share), idle.size() == 1 ? "its" : "their", kIdleWords[c].why);
    std::map<std::uint32_t, std::int64_t> lines;  // a line may be in many places
    for (const IdleTime& time : worst.places)
      if (time.place.cause == cause) lines[time.place.line] += time.ns;
    const auto line = std::ranges::max_element(lines, {}, [](const auto& of) { return of.second; });
    const auto place = std::ranges::find_if(worst.places, [&](const IdleTime& time) {
      return time.place.cause == cause && time.place.line == line->first;
    });
    const std::string where = place == worst.places.end() ? "" : place_text(trace, place->place);
    advice.confidence =
        confidence_of(is_uneven || place == worst.places.end() ? IdlePlace{.cause = cause} : place->place);
    const double of_place =
        where.empty() ? 0 : share(static_cast<double>(line->second), static_cast<double>(worst.length_ns()));
    if (of_place > 0) advice.line = trace.strings.text(place->place.line);
    if (of_place > 0)
      advice.sentence +=
          fmt::format("; most {}{}: {}", place->place.before != 0 ? "" : "in ", where, rough_percent(of_place));
    if (of_place > 0 && place->place.before != 0) {
      advice.hint = "the trace shows nothing of the host then: record with_stack=True";
    }
    // One rank alone may have it by chance in few steps, or in one.
    const auto longest = std::ranges::max_element(worst.steps, {}, [&](const IdleStep& step) { return step.ns[c]; });
    const bool is_once = worst.steps.size() >= kFewSteps &&
                         static_cast<double>(longest->ns[c]) > kNearlyAll * static_cast<double>(worst.of(cause));
    if (is_once) advice.sentence += fmt::format("; nearly all of it in step {}", longest->step);
    if (is_once || (is_uneven && worst.steps.size() < kFewSteps))
      advice.confidence = std::min(advice.confidence, kMostOnce);
    if (cause == IdleCause::unknown && !worst.doubt.empty()) advice.hint = worst.doubt;
    found.push_back(std::move(advice));
  }
  std::ranges::stable_sort(found, std::greater<>{}, &Advice::cost_share);
  found.resize(kMostCauses);
  std::ranges::move(found, std::back_inserter(list));
}

void add_symptoms(std::vector<Advice>& list, const RunTrace& trace, const Analysis& analysis) {
  const StepTime sum = sum_of(analysis.breakdown.steps);
  const auto part = [&](std::int64_t ns) { return share(static_cast<double>(ns), static_cast<double>(sum.length_ns)); };
  const Bubble& bubble = analysis.bubble;
  const Effective& effective = analysis.effective;
  const double step_s = share(effective.in_steps_s, static_cast<double>(effective.steps));  // mean, as of the bubble
  const double bubble_share = bubble.unknown.empty() ? share(bubble.measured_s, step_s) : 0.0;
  double bubble_left = bubble_share;
  double late_left = analysis.last_comer ? analysis.last_comer->cost_share : 0.0;  // listed already, with its rank
  const std::int64_t world = trace.has_mesh ? trace.mesh.size() : trace.world;
  const bool lacks_ranks = std::ssize(trace.ranks) > 1 && std::ssize(trace.ranks) < world;
  for (const GroupAxis axis : kWaitOrder) {
    const AxisTime& time = sum.axis(axis);
    double cost = part(time.waiting_ns);
    // The bubble as seen by a rank: waiting for transfers of the pipeline, and at its end for the reduction over all.
    if (axis == GroupAxis::pp || axis == GroupAxis::world) {
      const double of_bubble = std::min(cost, bubble_left);
      cost -= of_bubble;
      bubble_left -= of_bubble;
    }
    const double of_late = std::min(cost, late_left);
    cost -= of_late;
    late_left -= of_late;
    list.push_back(
        {.cost_share = cost,
         .sentence = fmt::format("ranks wait for {} communication in {} of their time; {} of it is hidden "
                                 "under computing",
                                 to_string(axis), rough_percent(cost), rough_percent(time.overlap())),
         .hint = lacks_ranks ? "some ranks have no trace: the others may wait for one of them" : axis_hint(axis, trace),
         .is = Advice::Is::design,
         .cause = "communication"});
  }
  add_bubble(list, bubble, bubble_share, share(bubble.expected_s, step_s));
  list.push_back(
      {.cost_share = part(sum.copy_ns),
       .sentence = fmt::format("devices only copy or set memory in {} of their time", rough_percent(part(sum.copy_ns))),
       .hint = "copy from pinned memory with non_blocking=True while the device computes",
       .is = Advice::Is::design,
       .cause = "copies"});
  if (!analysis.idle.empty()) add_idle(list, trace, analysis.idle);
  const bool knows_why = !analysis.idle.empty();
  list.push_back(
      {.cost_share = knows_why ? 0 : part(sum.data_wait_ns),
       .sentence = fmt::format("ranks wait for data in {} of their time", rough_percent(part(sum.data_wait_ns))),
       .hint = "faster storage, or copies of the token files on the nodes"});
  list.push_back(
      {.cost_share = knows_why ? 0 : part(sum.save_ns),
       .sentence = fmt::format("checkpoints hold ranks up in {} of their time", rough_percent(part(sum.save_ns))),
       .hint = "checkpoint.every, or faster storage"});
  if (!knows_why && trace.source->knows_idle && sum.busy_ns > 0) {
    list.push_back({.cost_share = part(sum.idle_ns),
                    .sentence = fmt::format("ranks are idle in {} of their time, and nothing in the trace says why",
                                            rough_percent(part(sum.idle_ns))),
                    .hint = "too few cores for the host threads, or work that is not traced"});
  }
  list.push_back({.cost_share = effective.wall_s > 0 ? 1 - effective.effective : 0.0,
                  .sentence = fmt::format("{} of the time from the first step to the last was not spent in steps",
                                          rough_percent(1 - effective.effective))});
}

}  // namespace

std::string_view to_string(Advice::Is is) {
  return is == Advice::Is::fault ? "fault" : is == Advice::Is::lost ? "lost" : "design";
}

std::vector<Advice> look_first(const RunTrace& trace, const Analysis& analysis) {
  struct Ranked {
    int order;  // faults; what was found to be uneven; costs that have no one cause
    Advice advice;
  };
  std::vector<Advice> found, list;
  add_hang(found, analysis.hang);
  if (analysis.diagnosis) add_findings(found, *analysis.diagnosis);
  const bool explained = !found.empty();
  add_changes(list, trace, analysis.changes, explained);
  if (!explained) add_slow_groups(list, trace, analysis);
  if (analysis.diagnosis) {
    add_lost(list, *analysis.diagnosis);
  } else if (analysis.last_comer) {
    add_last_comer(list, *analysis.last_comer);
  }
  add_symptoms(list, trace, analysis);
  // A fault is reported whatever it costs: it costs more where nothing hides it.
  const auto costly = [](const Advice& advice) { return advice.cost_share >= kLeastShare; };
  std::vector<Ranked> ranked;
  for (Advice& advice : found) {
    const bool is_fault = advice.is == Advice::Is::fault;
    if (is_fault || costly(advice)) ranked.push_back({is_fault ? 0 : 1, std::move(advice)});
  }
  for (Advice& advice : list) {
    if (costly(advice)) ranked.push_back({advice.is == Advice::Is::fault ? 0 : 2, std::move(advice)});
  }
  std::ranges::stable_sort(ranked, [](const Ranked& a, const Ranked& b) {
    return a.order != b.order ? a.order < b.order : a.advice.cost_share > b.advice.cost_share;
  });
  list.clear();
  for (Ranked& each : ranked) list.push_back(std::move(each.advice));
  if (list.size() > kMost) list.resize(kMost);
  return list;
}

}  // namespace ms::tracepp
