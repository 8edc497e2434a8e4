#include "comm/deadline_monitor.h"

#include <algorithm>

namespace ms::comm {
namespace {

// A rank that does not answer within this time counts as stalled: others answer within milliseconds, or, where
// processors are short, within some of the pauses that this process makes itself.
constexpr std::chrono::seconds kAnswersWithin(2);
constexpr int kAnswersWithinPauses = 10;

}  // namespace

DeadlineMonitor::DeadlineMonitor(const Patience& patience, const Exchanges& active, const Exchanges& watched,
                                 const IssueCounts& issued, Ask ask)
    : patience_(patience), active_(active), watched_(watched), issued_(issued), ask_(std::move(ask)) {}

// A job that is suspended is stopped everywhere, and its messages wait to be read when it goes on.
void DeadlineMonitor::look_at_clock(Time now) {
  if (checked_ && now - *checked_ > kAway) {
    here_since_ = asked_ = now;
  } else if (checked_) {
    longest_pause_ = std::max(longest_pause_, now - *checked_);
  }
  checked_ = now;
}

std::chrono::nanoseconds DeadlineMonitor::answers_within() const {
  return std::max<std::chrono::nanoseconds>(kAnswersWithin, kAnswersWithinPauses * longest_pause_);
}

void DeadlineMonitor::check(int rank, Time now) {
  look_at_clock(now);
  if (exchange_ && exchange_->state.load(std::memory_order_relaxed) != Exchange::State::pending) {
    exchange_.reset();  // it completed late
    inquiry_.reset();
  }
  if (!exchange_) {
    each([&](const auto& exchange) {
      if (!exchange_ && now >= ask_after_ && waited(*exchange, now) >= patience_.now()) exchange_ = exchange;
    });
    if (!exchange_) return;
    inquiry_.emplace(rank, waited(*exchange_, now), exchange_->awaited(), exchange_->as_wait());
    asked_ = now;
    longest_pause_ = {};
    reached_.clear();
    for (const std::vector<int>& ranks : other_nodes_) {
      for (const int peer : ranks) ask_(peer, {kAnyGroup, 0});
    }
  }
  while (const std::optional<Wait> wait = inquiry_->next_question()) {
    const Question question{wait->group, wait->sequence, (patience_.now() / 2).count()};
    if (wait->peer == rank) {
      inquiry_->add_answer(rank, wait->group, wait->sequence, report_for(question, now));
    } else {
      ask_(wait->peer, question);
      asked_ = now;
    }
  }
  if (inquiry_->has_busy()) busy_ = now;
  const bool were_busy = busy_ && inquiry_->all_answered() && now - *busy_ < patience_.after_busy();
  if (waited(*exchange_, now) < patience_.ceiling() && (inquiry_->is_excused() || were_busy)) {
    exchange_.reset();
    inquiry_.reset();
    ask_after_ = now + kAskAgain;
    return;
  }
  if (inquiry_->all_answered()) throw inquiry_->error();
  if (now - asked_ > answers_within()) throw error(rank);
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
  if (const char* busy = patience_.busy()) report.busy = busy;
  std::vector<AgedWait> waits;
  each([&](const auto& exchange) {
    const bool is_recent = waited(*exchange, now) < std::chrono::milliseconds(question.old_ms);
    for (const int peer : exchange->awaited()) {
      waits.push_back({exchange->posted, exchange->as_wait()});
      waits.back().wait.peer = peer;
      waits.back().wait.recent = is_recent;
    }
  });
  report.waits = oldest(std::move(waits));
  return report;
}

}  // namespace ms::comm
