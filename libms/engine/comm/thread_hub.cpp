// Ranks as threads: an operation is a rendezvous of the members' streams. A member arrives when its stream reaches the
// operation and leaves when no other member needs its memory. In between it does its share of the copies and sums on
// its own worker, unless the last member to arrive has done all of it, which keeps small operations cheap. No worker
// blocks: a member that must wait is parked and woken by the member that completes the phase.
//
// On a GPU the last member to arrive issues all the work on its own stream, after the points at which the others
// arrived, and the others continue after its end. No stream is made to wait for work that is not issued yet, so streams
// that share a hardware queue cannot deadlock.
//
// A rendezvous that all members have joined always completes, even while the world stops: every member is at the
// operation and needs only a worker. So no member can leave, and free its memory, while another still reads it.
#include "comm/thread_hub.h"

#include <algorithm>

namespace ms::comm {
namespace {

using tensor::CpuWaker;
using Clock = std::chrono::steady_clock;

// Up to this many bytes, summed over the members, the last member to arrive does all the work: waking the others to
// share it would take longer. Copying 64 KiB takes about 5 us; a wake-up costs 5 to 50 us.
constexpr std::int64_t kOneWorkerBytes = 64 << 10;

const Wait kClosing{.peer = -1, .group = kNoGroup, .sequence = 0, .what = "the closing of the world"};

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

std::shared_ptr<Rendezvous> ThreadHub::Impl::arrive(GroupState& state, int member, const Request& request,
                                                    const CpuWaker& waker, tensor::PeerMemory& memory) {
  const int rank = state.group.ranks[static_cast<std::size_t>(member)];
  std::unique_lock lock(state.mutex);
  // Checked under the lock: abort() sets the cause before it looks here for members to wake.
  if (cause_.stopped()) throw cause_.error_for(rank);
  auto place = std::find_if(state.open.begin(), state.open.end(),
                            [&](const auto& candidate) { return candidate->sequence == request.sequence; });
  if (place == state.open.end()) {
    place = state.open.insert(place, std::make_shared<Rendezvous>(state.group.ranks.size()));
    (*place)->sequence = request.sequence;
    (*place)->first = member;
    (*place)->since = Clock::now();
  }
  const std::shared_ptr<Rendezvous> rendezvous = *place;
  if (rendezvous->failure) throw *rendezvous->failure;
  const auto first = static_cast<std::size_t>(rendezvous->first);
  if (rendezvous->arrived > 0 && !agree(rendezvous->requests[first], request)) {
    const Error error = Error("comm.mismatch", Blame::bug,
                              fmt::format("rank {} issued {} as operation {} of group {}, rank {} {}", rank,
                                          signature(request), request.sequence, state.group.name,
                                          state.group.ranks[first], signature(rendezvous->requests[first])))
                            .with_operation(describe(request, state.group));
    lock.unlock();
    fail(state, *rendezvous, error);
    throw error;
  }
  rendezvous->requests[static_cast<std::size_t>(member)] = request;
  rendezvous->wakers[static_cast<std::size_t>(member)] = waker;
  rendezvous->ready[static_cast<std::size_t>(member)] = memory.mark();
  ++rendezvous->arrived;
  if (!rendezvous->full()) return rendezvous;
  state.open.erase(place);
  if (timer_) {
    rendezvous->over = Clock::now() + travel_time(link_, request.kind, request.size_bytes(), state.group.size());
  }
  const int phases = phases_of(request.kind);
  if (!memory.is_immediate() || (phases > 0 && request.size_bytes() * state.group.size() <= kOneWorkerBytes)) {
    lock.unlock();
    std::optional<Error> failure;
    std::shared_ptr<tensor::EventState> done;
    try {
      for (const auto& ready : rendezvous->ready) {
        if (ready) memory.come_after(*ready);
      }
      for (int phase = 0; phase < phases; ++phase) {
        for (int k = 0; k < state.group.size(); ++k) run_phase(*rendezvous, k, phase, memory);
      }
      done = memory.mark();
    } catch (const Error& error) { failure = error; }
    lock.lock();
    if (failure) {
      rendezvous->failure = failure;
      lock.unlock();
      abort(rank, *failure);
      wake_all(*rendezvous, member);
      throw *failure;
    }
    rendezvous->done = std::move(done);
    rendezvous->stage = phases + 1;
  } else {
    rendezvous->stage = 1;
  }
  lock.unlock();
  wake_all(*rendezvous, member);
  return rendezvous;
}

bool ThreadHub::Impl::proceed(GroupState& state, Rendezvous& rendezvous, int member, int& finished,
                              tensor::PeerMemory& memory) {
  const auto index = static_cast<std::size_t>(member);
  while (true) {
    {
      std::lock_guard lock(state.mutex);
      const int phases = phases_of(rendezvous.requests[index].kind);
      if (rendezvous.stage > phases) {
        if (rendezvous.done) memory.come_after(*rendezvous.done);
        return true;
      }
      if (rendezvous.stage <= finished) {
        if (rendezvous.failure) throw *rendezvous.failure;
        if (!rendezvous.full() && cause_.stopped()) throw cause_.error_for(state.group.ranks[index]);
        return false;
      }
    }
    run_phase(rendezvous, member, finished, memory);
    bool stage_done = false;
    {
      std::lock_guard lock(state.mutex);
      stage_done = ++rendezvous.finished[static_cast<std::size_t>(finished)] == state.group.size();
      ++finished;
      if (stage_done) rendezvous.stage = finished + 1;
    }
    if (stage_done) wake_all(rendezvous, member);
    if (only_reads_others(rendezvous.requests[index], member)) return true;
  }
}

bool ThreadHub::Impl::delivered(const Rendezvous& rendezvous, const CpuWaker& waker) {
  if (!timer_ || Clock::now() >= rendezvous.over || cause_.stopped()) return true;
  timer_->wake_at(rendezvous.over, waker);
  return false;
}

void ThreadHub::Impl::fail(GroupState& state, Rendezvous& rendezvous, const Error& error) {
  {
    std::lock_guard lock(state.mutex);
    if (rendezvous.full()) return;  // the missing members arrived meanwhile
    if (!rendezvous.failure) rendezvous.failure = error;
  }
  abort(state.group.ranks[static_cast<std::size_t>(rendezvous.first)], error);
  wake_all(rendezvous, -1);
}

void ThreadHub::Impl::watch(int rank, std::shared_ptr<Exchange> exchange) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({rank, std::move(exchange)});
}

std::vector<ThreadHub::Impl::Watched> ThreadHub::Impl::watched() {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [](const Watched& one) { return one.exchange->state != Exchange::State::pending; });
  return watched_;
}

void ThreadHub::Impl::abort(int rank, const Error& error) noexcept {
  if (!cause_.set(rank, error)) return;
  if (timer_) timer_->release();
  for (const std::shared_ptr<GroupState>& state : groups()) {
    std::vector<CpuWaker> sleepers;
    {
      std::lock_guard lock(state->mutex);
      for (const auto& rendezvous : state->open) {
        for (const auto& waker : rendezvous->wakers) {
          if (waker) sleepers.push_back(*waker);
        }
      }
    }
    for (const CpuWaker& waker : sleepers) waker.wake();
  }
  table_.stop();
  std::lock_guard lock(mutex_);
  closed_.notify_all();
}

Clock::time_point ThreadHub::Impl::fail_expired() {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = now + kAskAgain;
  for (const Patience& patience : patience_) next = std::min<Clock::time_point>(next, now + patience.now());
  for (const std::shared_ptr<GroupState>& state : groups()) {
    std::shared_ptr<Rendezvous> expired;
    std::vector<int> missing;
    int first = -1;
    std::chrono::nanoseconds waited{};
    {
      std::lock_guard lock(state->mutex);
      for (const auto& rendezvous : state->open) {
        if (rendezvous->failure) continue;
        first = state->group.ranks[static_cast<std::size_t>(rendezvous->first)];
        const Clock::time_point since = std::max(rendezvous->since, here_since_);
        if (const Clock::time_point end = since + patience(first).now(); end > now) {
          next = std::min(next, end);
          continue;
        }
        waited = now - since;
        expired = rendezvous;
        missing = state->missing(*rendezvous);
        break;
      }
    }
    if (!expired) continue;
    const Inquiry inquiry = inquire(first, waited, state->wait_in(*expired), missing);
    if (waited < patience(first).ceiling() && is_excused(first, inquiry, now)) continue;
    fail(*state, *expired, inquiry.error());
  }
  for (const auto& [rank, exchange] : watched()) {
    const Clock::time_point since = std::max(exchange->posted, here_since_);
    if (const Clock::time_point end = since + patience(rank).now(); end > now) {
      next = std::min(next, end);
      continue;
    }
    const Inquiry inquiry = inquire(rank, now - since, exchange->as_wait(), exchange->awaited());
    if (now - since >= patience(rank).ceiling() || !is_excused(rank, inquiry, now)) abort(rank, inquiry.error());
  }
  return next;
}

bool ThreadHub::Impl::is_excused(int rank, const Inquiry& inquiry, Clock::time_point now) {
  std::optional<Clock::time_point>& busy = busy_[rank];
  if (inquiry.has_busy()) busy = now;
  return inquiry.is_excused() || (busy && now - *busy < patience(rank).after_busy());
}

Inquiry ThreadHub::Impl::inquire(int rank, std::chrono::nanoseconds waited, const Wait& wait,
                                 const std::vector<int>& missing) {
  Inquiry inquiry(rank, waited, missing, wait);
  while (const std::optional<Wait> question = inquiry.next_question())
    inquiry.add_answer(question->peer, question->group, question->sequence,
                       report_for(question->peer, *question, patience(rank).now() / 2));
  return inquiry;
}

WaitReport ThreadHub::Impl::report_for(int rank, const Wait& wait, std::chrono::nanoseconds old) {
  WaitReport report{.issued = issue_counts(rank).has_issued(wait.group, wait.sequence), .waits = {}};
  if (const char* busy = patience(rank).busy()) report.busy = busy;
  const Clock::time_point now = Clock::now();
  std::vector<AgedWait> waits;
  for (const std::shared_ptr<GroupState>& state : groups()) {
    const int member = state->group.index_of(rank);
    if (member < 0) continue;
    std::lock_guard lock(state->mutex);
    for (const auto& rendezvous : state->open) {
      if (!rendezvous->wakers[static_cast<std::size_t>(member)]) continue;
      Wait found = state->wait_in(*rendezvous);
      found.recent = now - std::max(rendezvous->since, here_since_) < old;
      for (const int peer : state->missing(*rendezvous)) {
        waits.push_back({rendezvous->since, found});
        waits.back().wait.peer = peer;
      }
    }
  }
  for (const auto& [waiting, exchange] : watched()) {
    if (waiting != rank) continue;
    for (const int peer : exchange->awaited()) {
      waits.push_back({exchange->posted, exchange->as_wait()});
      waits.back().wait.peer = peer;
      waits.back().wait.recent = now - std::max(exchange->posted, here_since_) < old;
    }
  }
  report.waits = oldest(std::move(waits));
  return report;
}

void ThreadHub::Impl::watch_deadlines(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Clock::time_point next = fail_expired();
    std::unique_lock lock(monitor_mutex_);
    monitor_wakes_.wait_until(lock, stop, next, [] { return false; });
    if (const Clock::time_point now = Clock::now(); now - next > kAway) here_since_ = now;
  }
}

void ThreadHub::Impl::close(int rank) {
  std::unique_lock lock(mutex_);
  closing_[static_cast<std::size_t>(rank)] = true;
  closed_.notify_all();
  const auto all_here = [&] { return std::find(closing_.begin(), closing_.end(), false) == closing_.end(); };
  const std::chrono::milliseconds most = patience(rank).ceiling();
  const bool settled = closed_.wait_for(lock, most, [&] { return all_here() || cause_.stopped(); });
  if (all_here()) return;
  if (settled) throw cause_.error_for(rank);
  std::vector<int> missing;
  for (int k = 0; k < size_; ++k) {
    if (!closing_[static_cast<std::size_t>(k)]) missing.push_back(k);
  }
  lock.unlock();
  const Error error = inquire(rank, most, kClosing, missing).error();
  abort(rank, error);
  throw error;
}

}  // namespace ms::comm
