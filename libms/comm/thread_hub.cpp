// Ranks as threads: an operation is a meeting of the members' streams. A member arrives when its stream reaches the
// operation and leaves when nobody needs its memory any more; in between it does its share of the copying and adding on
// its own worker, or finds that the last one to arrive did everything, which is how small operations stay cheap. No
// worker waits: a member that must is parked, and woken by whoever completes the stage.
//
// Where a GPU does the work, the last one to arrive issues all of it on its own stream, behind the points at which the
// others arrived, and they go on behind its end. Nothing is put on a GPU's stream that waits for what has not been
// issued yet, so streams that share a hardware queue cannot keep each other waiting.
//
// A meeting that all have joined always completes, also while the world stops: every member is at the operation and
// needs only a worker. So no member can leave, and free its memory, while another still reads it.
#include "comm/thread_hub.h"

#include <algorithm>

namespace ms::comm {
namespace {

using tensor::CpuWaker;
using Clock = std::chrono::steady_clock;

// Up to this many bytes, added over the members, the last one to arrive does all the work: waking the others to share
// it would take longer. 64 KiB are copied in some 5 us; a wake costs 5 to 50 us.
constexpr std::int64_t kOneWorkerBytes = 64 << 10;

}  // namespace

std::shared_ptr<GroupState> ThreadHub::Impl::group(const Group& group) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<GroupState>& state = groups_[group.id];
  if (!state) state = std::make_shared<GroupState>(group);
  MS_ASSERT(state->group.ranks == group.ranks && state->group.name == group.name,
            "group {} and group {} share the id {}", state->group.name, group.name, group.id);
  return state;
}

std::vector<std::shared_ptr<GroupState>> ThreadHub::Impl::groups() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<GroupState>> all;
  all.reserve(groups_.size());
  for (const auto& [id, state] : groups_) all.push_back(state);
  return all;
}

std::shared_ptr<Meeting> ThreadHub::Impl::arrive(GroupState& state, int member, const Request& request,
                                                 const CpuWaker& waker, tensor::PeerMemory& memory) {
  const int rank = state.group.ranks[static_cast<std::size_t>(member)];
  std::unique_lock lock(state.mutex);
  // Asked under the lock: abort() sets the cause before it looks here for members to wake.
  if (cause_.stopped()) throw cause_.error_for(rank);
  auto place = std::find_if(state.open.begin(), state.open.end(),
                            [&](const auto& candidate) { return candidate->sequence == request.sequence; });
  if (place == state.open.end()) {
    place = state.open.insert(place, std::make_shared<Meeting>(state.group.ranks.size()));
    (*place)->sequence = request.sequence;
    (*place)->first = member;
    (*place)->since = Clock::now();
  }
  const std::shared_ptr<Meeting> meeting = *place;
  if (meeting->failure) throw *meeting->failure;
  const auto first = static_cast<std::size_t>(meeting->first);
  if (meeting->arrived > 0 && !agree(meeting->requests[first], request)) {
    const Error error = Error("comm.mismatch", Blame::bug,
                              fmt::format("rank {} issued {} as operation {} of group {}, rank {} {}", rank,
                                          signature(request), request.sequence, state.group.name,
                                          state.group.ranks[first], signature(meeting->requests[first])))
                            .with_operation(describe(request, state.group));
    lock.unlock();
    fail(state, *meeting, error);
    throw error;
  }
  meeting->requests[static_cast<std::size_t>(member)] = request;
  meeting->wakers[static_cast<std::size_t>(member)] = waker;
  meeting->ready[static_cast<std::size_t>(member)] = memory.mark();
  ++meeting->arrived;
  if (!meeting->full()) return meeting;
  state.open.erase(place);
  if (timer_) {
    meeting->over = Clock::now() + travel_time(link_, request.kind, request.size_bytes(), state.group.size());
  }
  const int phases = phases_of(request.kind);
  if (!memory.is_immediate() || (phases > 0 && request.size_bytes() * state.group.size() <= kOneWorkerBytes)) {
    lock.unlock();
    std::optional<Error> failure;
    std::shared_ptr<tensor::EventState> done;
    try {
      for (const auto& ready : meeting->ready) {
        if (ready) memory.come_after(*ready);
      }
      for (int phase = 0; phase < phases; ++phase) {
        for (int k = 0; k < state.group.size(); ++k) do_share(*meeting, k, phase, memory);
      }
      done = memory.mark();
    } catch (const Error& error) { failure = error; }
    lock.lock();
    if (failure) {
      meeting->failure = failure;
      lock.unlock();
      abort(rank, *failure);
      wake_all(*meeting, member);
      throw *failure;
    }
    meeting->done = std::move(done);
    meeting->stage = phases + 1;
  } else {
    meeting->stage = 1;
  }
  lock.unlock();
  wake_all(*meeting, member);
  return meeting;
}

bool ThreadHub::Impl::proceed(GroupState& state, Meeting& meeting, int member, int& finished,
                              tensor::PeerMemory& memory) {
  const auto index = static_cast<std::size_t>(member);
  while (true) {
    {
      std::lock_guard lock(state.mutex);
      const int phases = phases_of(meeting.requests[index].kind);
      if (meeting.stage > phases) {
        if (meeting.done) memory.come_after(*meeting.done);
        return true;
      }
      if (meeting.stage <= finished) {
        if (meeting.failure) throw *meeting.failure;
        if (!meeting.full() && cause_.stopped()) throw cause_.error_for(state.group.ranks[index]);
        return false;
      }
    }
    do_share(meeting, member, finished, memory);
    bool stage_done = false;
    {
      std::lock_guard lock(state.mutex);
      stage_done = ++meeting.finished[static_cast<std::size_t>(finished)] == state.group.size();
      ++finished;
      if (stage_done) meeting.stage = finished + 1;
    }
    if (stage_done) wake_all(meeting, member);
    if (only_reads_others(meeting.requests[index], member)) return true;
  }
}

bool ThreadHub::Impl::delivered(const Meeting& meeting, const CpuWaker& waker) {
  if (!timer_ || Clock::now() >= meeting.over || cause_.stopped()) return true;
  timer_->wake_at(meeting.over, waker);
  return false;
}

void ThreadHub::Impl::fail(GroupState& state, Meeting& meeting, const Error& error) {
  {
    std::lock_guard lock(state.mutex);
    if (meeting.full()) return;  // the missing came after all
    if (!meeting.failure) meeting.failure = error;
  }
  abort(state.group.ranks[static_cast<std::size_t>(meeting.first)], error);
  wake_all(meeting, -1);
}

void ThreadHub::Impl::abort(int rank, const Error& error) noexcept {
  if (!cause_.set(rank, error)) return;
  if (timer_) timer_->release();
  for (const std::shared_ptr<GroupState>& state : groups()) {
    std::vector<CpuWaker> sleepers;
    {
      std::lock_guard lock(state->mutex);
      for (const auto& meeting : state->open) {
        for (const auto& waker : meeting->wakers) {
          if (waker) sleepers.push_back(*waker);
        }
      }
    }
    for (const CpuWaker& waker : sleepers) waker.wake();
  }
  board_.stop();
  std::lock_guard lock(mutex_);
  closed_.notify_all();
}

Clock::time_point ThreadHub::Impl::fail_overdue() {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = now + deadline_;  // what begins to wait from now on is not due before
  for (const std::shared_ptr<GroupState>& state : groups()) {
    std::shared_ptr<Meeting> overdue;
    std::vector<int> missing;
    {
      std::lock_guard lock(state->mutex);
      for (const auto& meeting : state->open) {
        if (meeting->failure) continue;
        if (meeting->since + deadline_ > now) {
          next = std::min(next, meeting->since + deadline_);
          continue;
        }
        overdue = meeting;
        missing = state->missing(*meeting);
        break;
      }
    }
    if (!overdue) continue;
    const int first = state->group.ranks[static_cast<std::size_t>(overdue->first)];
    fail(*state, *overdue, verdict(first, overdue->since, state->wait_in(*overdue), missing));
  }
  return next;
}

Error ThreadHub::Impl::verdict(int rank, Clock::time_point since, const Wait& wait, const std::vector<int>& missing) {
  Inquiry inquiry(rank, Clock::now() - since, missing, wait);
  while (const std::optional<Wait> question = inquiry.next_question())
    inquiry.hear(question->peer, question->group, question->sequence, account_of(question->peer, *question));
  return inquiry.verdict();
}

Account ThreadHub::Impl::account_of(int rank, const Wait& wait) {
  Account account{.issued = issue_counts(rank).has_issued(wait.group, wait.sequence), .waits = {}};
  const Clock::time_point old = Clock::now() - deadline_ / 2;
  std::vector<AgedWait> waits;
  for (const std::shared_ptr<GroupState>& state : groups()) {
    const int member = state->group.index_of(rank);
    if (member < 0) continue;
    std::lock_guard lock(state->mutex);
    for (const auto& meeting : state->open) {
      if (!meeting->wakers[static_cast<std::size_t>(member)] || meeting->since > old) continue;
      const Wait found = state->wait_in(*meeting);
      for (const int peer : state->missing(*meeting)) {
        waits.push_back({meeting->since, found});
        waits.back().wait.peer = peer;
      }
    }
  }
  account.waits = oldest(std::move(waits));
  return account;
}

void ThreadHub::Impl::watch_deadlines(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Clock::time_point next = fail_overdue();
    std::unique_lock lock(monitor_mutex_);
    monitor_wakes_.wait_until(lock, stop, next, [] { return false; });
  }
}

void ThreadHub::Impl::close(int rank) {
  std::unique_lock lock(mutex_);
  closing_[static_cast<std::size_t>(rank)] = true;
  closed_.notify_all();
  const auto all_here = [&] { return std::find(closing_.begin(), closing_.end(), false) == closing_.end(); };
  const bool settled = closed_.wait_for(lock, deadline_, [&] { return all_here() || cause_.stopped(); });
  if (all_here()) return;
  if (settled) throw cause_.error_for(rank);
  std::vector<int> missing;
  for (int k = 0; k < size_; ++k) {
    if (!closing_[static_cast<std::size_t>(k)]) missing.push_back(k);
  }
  lock.unlock();
  const Error error = deadline_error(rank, deadline_, missing, "the closing of the world");
  abort(rank, error);
  throw error;
}

}  // namespace ms::comm
