#include "comm/overdue.h"

#include <algorithm>

namespace ms::comm {
namespace {

// Who does not answer for so long, when asked whom it waits for, stands still: others answer in milliseconds.
constexpr std::chrono::seconds kAnswersWithin(2);

}  // namespace

Overdue::Overdue(std::chrono::milliseconds deadline, const Exchanges& active, const Exchanges& watched,
                 const IssueCounts& issued, Ask ask)
    : deadline_(deadline), active_(active), watched_(watched), issued_(issued), ask_(std::move(ask)) {}

void Overdue::check(int rank, Time now) {
  if (exchange_ && exchange_->state.load(std::memory_order_relaxed) != Exchange::State::pending) {
    exchange_.reset();  // it came after all
    inquiry_.reset();
  }
  if (!exchange_) {
    each([&](const auto& exchange) {
      if (!exchange_ && now - exchange->posted >= deadline_) exchange_ = exchange;
    });
    if (!exchange_) return;
    inquiry_.emplace(rank, now - exchange_->posted, exchange_->awaited(), exchange_->as_wait());
    answers_until_ = now + kAnswersWithin;
  }
  while (const std::optional<Wait> wait = inquiry_->next_question()) {
    const Question question{wait->group, wait->sequence};
    if (wait->peer == rank) {
      inquiry_->hear(rank, wait->group, wait->sequence, account_of(question, now));
    } else {
      ask_(wait->peer, question);
      answers_until_ = now + kAnswersWithin;
    }
  }
  if (inquiry_->all_heard() || now > answers_until_) throw inquiry_->verdict();
}

void Overdue::hear(int from, Answer answer) {
  if (inquiry_) inquiry_->hear(from, answer.question.group, answer.question.sequence, std::move(answer.account));
}

Account Overdue::account_of(const Question& question, Time now) const {
  Account account;
  const auto closes = [](const auto& exchange) { return exchange->closes_world; };
  account.issued = question.group == kNoGroup ? std::ranges::any_of(active_, closes)
                                              : issued_.has_issued(question.group, question.sequence);
  std::vector<AgedWait> waits;
  each([&](const auto& exchange) {
    if (now - exchange->posted < deadline_ / 2) return;
    for (const int peer : exchange->awaited()) {
      waits.push_back({exchange->posted, exchange->as_wait()});
      waits.back().wait.peer = peer;
    }
  });
  account.waits = oldest(std::move(waits));
  return account;
}

}  // namespace ms::comm
