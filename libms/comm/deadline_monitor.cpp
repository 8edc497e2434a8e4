#include "comm/deadline_monitor.h"

#include <algorithm>

namespace ms::comm {
namespace {

// A rank that does not answer within this time counts as stalled: others answer within milliseconds.
constexpr std::chrono::seconds kAnswersWithin(2);

}  // namespace

DeadlineMonitor::DeadlineMonitor(std::chrono::milliseconds deadline, const Exchanges& active, const Exchanges& watched,
                                 const IssueCounts& issued, Ask ask)
    : deadline_(deadline), active_(active), watched_(watched), issued_(issued), ask_(std::move(ask)) {}

void DeadlineMonitor::check(int rank, Time now) {
  if (exchange_ && exchange_->state.load(std::memory_order_relaxed) != Exchange::State::pending) {
    exchange_.reset();  // it completed late
    inquiry_.reset();
  }
  if (!exchange_) {
    each([&](const auto& exchange) {
      if (!exchange_ && now - exchange->posted >= deadline_) exchange_ = exchange;
    });
    if (!exchange_) return;
    inquiry_.emplace(rank, now - exchange_->posted, exchange_->awaited(), exchange_->as_wait());
    answers_until_ = now + kAnswersWithin;
    reached_.clear();
    for (const std::vector<int>& ranks : other_nodes_) {
      for (const int peer : ranks) ask_(peer, {kAnyGroup, 0});
    }
  }
  while (const std::optional<Wait> wait = inquiry_->next_question()) {
    const Question question{wait->group, wait->sequence};
    if (wait->peer == rank) {
      inquiry_->add_answer(rank, wait->group, wait->sequence, report_for(question, now));
    } else {
      ask_(wait->peer, question);
      answers_until_ = now + kAnswersWithin;
    }
  }
  if (inquiry_->all_answered()) throw inquiry_->error();
  if (now > answers_until_) throw error(rank);
}

Error DeadlineMonitor::error(int rank) const {
  const auto is_reached = [&](const std::vector<int>& ranks) {
    return std::ranges::any_of(ranks, [&](int peer) { return reached_.contains(peer); });
  };
  const auto reached = std::ranges::count_if(other_nodes_, is_reached);
  const auto others = std::ssize(other_nodes_);
  const Error found = inquiry_->error();
  if (2 * (reached + 1) >= others + 1) return found;
  return Error("comm.cut_off", Blame::peer,
               fmt::format("rank {} reaches {} of {} other nodes, and seems to be cut off: {}", rank, reached, others,
                           found.message()))
      .with_operation(found.operation())
      .with_rank(rank);
}

void DeadlineMonitor::add_answer(int from, Answer answer) {
  reached_.insert(from);
  if (inquiry_) inquiry_->add_answer(from, answer.question.group, answer.question.sequence, std::move(answer.report));
}

WaitReport DeadlineMonitor::report_for(const Question& question, Time now) const {
  WaitReport report;
  if (question.group == kAnyGroup) return report;
  const auto closes = [](const auto& exchange) { return exchange->closes_world; };
  report.issued = question.group == kNoGroup ? std::ranges::any_of(active_, closes)
                                             : issued_.has_issued(question.group, question.sequence);
  std::vector<AgedWait> waits;
  each([&](const auto& exchange) {
    if (now - exchange->posted < deadline_ / 2) return;
    for (const int peer : exchange->awaited()) {
      waits.push_back({exchange->posted, exchange->as_wait()});
      waits.back().wait.peer = peer;
    }
  });
  report.waits = oldest(std::move(waits));
  return report;
}

}  // namespace ms::comm
