#include "tracepp/steps/steps.h"

#include <algorithm>

namespace ms::tracepp {
namespace {

// By the host's own account: from the issue of a step to its end. A step that was done again counts as it was last.
std::vector<StepSpan> by_step_events(const RankTrace& rank, const std::vector<EventInfo>& infos) {
  std::vector<StepSpan> spans;
  for (const Event& event : rank.events) {
    if (event.state != State::ended || infos[event.info].kind != Kind::step) continue;
    spans.push_back({event.step, event.begin_ns, event.end_ns()});
  }
  return spans;
}

std::vector<StepSpan> by_numbers(const RankTrace& rank) {
  std::vector<StepSpan> spans;
  bool has_numbers = false;
  for (const Event& event : rank.events) {
    if (event.state != State::ended) continue;
    if (event.step != kNoStep && !has_numbers) {
      has_numbers = true;
      spans.clear();
    }
    if (has_numbers && event.step == kNoStep) continue;
    // Events come in order, so theirs is nearly always the newest step.
    if (spans.empty() || spans.back().step != event.step) spans.push_back({event.step, event.begin_ns, event.end_ns()});
    spans.back().begin_ns = std::min(spans.back().begin_ns, event.begin_ns);
    spans.back().end_ns = std::max(spans.back().end_ns, event.end_ns());
  }
  std::ranges::stable_sort(spans, {}, &StepSpan::step);
  std::size_t kept = 0;
  for (const StepSpan& span : spans) {
    if (kept > 0 && spans[kept - 1].step == span.step) {
      spans[kept - 1].begin_ns = std::min(spans[kept - 1].begin_ns, span.begin_ns);
      spans[kept - 1].end_ns = std::max(spans[kept - 1].end_ns, span.end_ns);
    } else {
      spans[kept++] = span;
    }
  }
  spans.resize(kept);
  return spans;
}

}  // namespace

std::vector<StepSpan> step_spans(const RankTrace& rank, const std::vector<EventInfo>& infos) {
  std::vector<StepSpan> spans = by_step_events(rank, infos);
  if (spans.empty()) spans = by_numbers(rank);
  std::ranges::stable_sort(spans, {}, &StepSpan::end_ns);
  // After a restart numbers go back: what had been done before is no step of the run any more.
  std::vector<StepSpan> kept;
  for (const StepSpan& span : spans) {
    while (!kept.empty() && kept.back().step >= span.step) kept.pop_back();
    kept.push_back(span);
  }
  const auto before_first = std::ranges::find_if(
      rank.sums, [&](const StepSum& sum) { return !kept.empty() && sum.step + 1 == kept.front().step; });
  for (std::size_t i = 0; i < kept.size(); ++i) {
    StepSpan& span = kept[i];
    if (i > 0) {
      const StepSpan& before = kept[i - 1];
      span.begin_ns = before.step + 1 == span.step ? before.end_ns : std::max(span.begin_ns, before.end_ns);
    } else if (before_first != rank.sums.end()) {
      span.begin_ns = before_first->end_ns;
    }
    span.begin_ns = std::min(span.begin_ns, span.end_ns);
  }
  return kept;
}

}  // namespace ms::tracepp
