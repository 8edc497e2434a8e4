// Ranks as threads: an operation is a meeting of the members' streams. A member arrives when its stream reaches the
// operation and leaves when nobody needs its memory any more; in between it does its share of the copying and adding on
// its own worker, or finds that the last one to arrive did everything, which is how small operations stay cheap. No
// worker waits: a member that must is parked, and woken by whoever completes the stage.
//
// A meeting that all have joined always completes, also while the world stops: every member is at the operation and
// needs only a worker. So no member can leave, and free its memory, while another still reads it.
#include "comm/thread_world.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/board.h"
#include "comm/first_cause.h"
#include "comm/inquiry.h"
#include "comm/issue_counts.h"
#include "comm/lonely_communicator.h"
#include "comm/process.h"
#include "comm/thread_meeting.h"
#include "comm/wake_timer.h"

namespace ms::comm {
namespace {

using tensor::CpuWaker;
using Clock = std::chrono::steady_clock;

// Up to this many bytes, added over the members, the last one to arrive does all the work: waking the others to share
// it would take longer. 64 KiB are copied in some 5 us; a wake costs 5 to 50 us.
constexpr std::int64_t kOneWorkerBytes = 64 << 10;

}  // namespace

class ThreadHub::Impl {
 public:
  Impl(int size, std::chrono::milliseconds deadline, Link link)
      : size_(size),
        deadline_(deadline),
        link_(link),
        issue_counts_(static_cast<std::size_t>(size)),
        board_(cause_),
        closing_(static_cast<std::size_t>(size)) {
    if (link.delays()) timer_.emplace();
    monitor_ = std::jthread([this](const std::stop_token& stop) { watch_deadlines(stop); });
  }

  int size() const { return size_; }
  Board& board() { return board_; }
  const FirstCause& cause() const { return cause_; }
  IssueCounts& issue_counts(int rank) { return issue_counts_[static_cast<std::size_t>(rank)]; }
  std::shared_ptr<GroupState> group(const Group& group);
  // Joins operation `request` as `member`. Throws where the members disagree or the world stopped.
  std::shared_ptr<Meeting> arrive(GroupState& state, int member, const Request& request, const CpuWaker& waker);
  // True when the member has done its work. Throws what the meeting or the world failed with.
  bool proceed(GroupState& state, Meeting& meeting, int member, int& finished);
  // True when the messages have had their time, so that a member that has done its work may leave; else it is woken
  // then.
  bool delivered(const Meeting& meeting, const CpuWaker& waker);
  void abort(int rank, const Error& error) noexcept;
  void close(int rank);

 private:
  void wake_all(const Meeting& meeting, int but) const {
    for (std::size_t k = 0; k < meeting.wakers.size(); ++k) {
      if (meeting.wakers[k] && static_cast<int>(k) != but) meeting.wakers[k]->wake();
    }
  }
  std::vector<std::shared_ptr<GroupState>> groups();
  // Fails what is overdue; when to look again.
  Clock::time_point fail_overdue();
  // Why `rank` has waited in vain in this operation.
  Error verdict(int rank, Clock::time_point since, const Wait& wait, const std::vector<int>& missing);
  Account account_of(int rank, const Wait& wait);
  void fail(GroupState& state, Meeting& meeting, const Error& error);
  void watch_deadlines(const std::stop_token& stop);

  const int size_;
  const std::chrono::milliseconds deadline_;
  const Link link_;
  FirstCause cause_;
  std::vector<IssueCounts> issue_counts_;  // by rank
  Board board_;
  std::mutex mutex_;  // guards groups_, closing_
  std::map<int, std::shared_ptr<GroupState>> groups_;
  std::vector<bool> closing_;
  std::condition_variable closed_;
  std::mutex monitor_mutex_;
  std::condition_variable_any monitor_wakes_;
  std::optional<WakeTimer> timer_;  // absent: messages take no time
  std::jthread monitor_;            // last: it uses the rest
};

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
                                                 const CpuWaker& waker) {
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
  ++meeting->arrived;
  if (!meeting->full()) return meeting;
  state.open.erase(place);
  if (timer_) {
    meeting->over = Clock::now() + travel_time(link_, request.kind, request.size_bytes(), state.group.size());
  }
  const int phases = phases_of(request.kind);
  if (phases > 0 && request.size_bytes() * state.group.size() <= kOneWorkerBytes) {
    lock.unlock();
    for (int phase = 0; phase < phases; ++phase) {
      for (int k = 0; k < state.group.size(); ++k) do_share(*meeting, k, phase);
    }
    lock.lock();
    meeting->stage = phases + 1;
  } else {
    meeting->stage = 1;
  }
  lock.unlock();
  wake_all(*meeting, member);
  return meeting;
}

bool ThreadHub::Impl::proceed(GroupState& state, Meeting& meeting, int member, int& finished) {
  const auto index = static_cast<std::size_t>(member);
  while (true) {
    {
      std::lock_guard lock(state.mutex);
      const int phases = phases_of(meeting.requests[index].kind);
      if (meeting.stage > phases) return true;
      if (meeting.stage <= finished) {
        if (meeting.failure) throw *meeting.failure;
        if (!meeting.full() && cause_.stopped()) throw cause_.error_for(state.group.ranks[index]);
        return false;
      }
    }
    do_share(meeting, member, finished);
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

namespace {

class ThreadTask final : public tensor::AsyncTask {
 public:
  ThreadTask(std::shared_ptr<ThreadHub::Impl> hub, std::shared_ptr<GroupState> state, int member,
             const Request& request)
      : hub_(std::move(hub)), state_(std::move(state)), member_(member), request_(request) {}

  bool step(const CpuWaker& waker) override {
    if (!meeting_) meeting_ = hub_->arrive(*state_, member_, request_, waker);
    if (!worked_) worked_ = hub_->proceed(*state_, *meeting_, member_, finished_);
    return worked_ && hub_->delivered(*meeting_, waker);
  }
  void cancel(const Error& cause) noexcept override {
    hub_->abort(state_->group.ranks[static_cast<std::size_t>(member_)], cause);
  }

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  std::shared_ptr<GroupState> state_;
  int member_;
  Request request_;
  std::shared_ptr<Meeting> meeting_;
  int finished_ = 0;  // phases
  bool worked_ = false;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadHub::Impl> hub, const Group& group, int global_rank,
                     tensor::CpuStream& stream)
      : Communicator(group, global_rank, stream),
        hub_(std::move(hub)),
        state_(hub_->group(group)),
        issued_(hub_->issue_counts(global_rank).counter(group.id)),
        stream_(stream) {}

 protected:
  void do_issue(const Request& request) override {
    issued_->store(request.sequence + 1, std::memory_order_relaxed);
    stream_.submit_async(std::make_shared<ThreadTask>(hub_, state_, rank(), request));
  }

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  std::shared_ptr<GroupState> state_;
  std::shared_ptr<IssueCounts::Counter> issued_;
  tensor::CpuStream& stream_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(std::shared_ptr<ThreadHub::Impl> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), store_(rank, hub_->board(), [this](BoardStore::Values values) {
          for (auto& [key, value] : values) hub_->board().post(rank_, std::move(key), std::move(value));
        }) {}

  std::string_view kind() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  int ranks_on_node() const override { return hub_->size(); }
  std::string node(int) const override { return this_process().host; }
  Store& store() override { return store_; }
  std::unique_ptr<Communicator> open(const Group& group, tensor::Stream& stream) override {
    if (group.size() == 1) return std::make_unique<LonelyCommunicator>(group, rank_, stream);
    auto* cpu_stream = dynamic_cast<tensor::CpuStream*>(&stream);
    MS_ASSERT(cpu_stream, "group {} opened on stream {}, which is not of a CPU device", group.name, stream.name());
    return std::make_unique<ThreadCommunicator>(hub_, group, rank_, *cpu_stream);
  }
  void abort(const Error& cause) noexcept override { hub_->abort(rank_, cause); }
  std::optional<Cause> cause() const override { return hub_->cause().get(); }
  void close() override { hub_->close(rank_); }

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  int rank_;
  BoardStore store_;
};

}  // namespace

ThreadHub::ThreadHub(int size, std::chrono::milliseconds deadline, Link link)
    : impl_(std::make_shared<Impl>(size, deadline, link)) {
  MS_ASSERT(size > 0, "a world of {} ranks", size);
}
ThreadHub::~ThreadHub() = default;

std::unique_ptr<World> ThreadHub::world(int rank) {
  MS_ASSERT(rank >= 0 && rank < impl_->size(), "rank {} of a world of {}", rank, impl_->size());
  return std::make_unique<ThreadWorld>(impl_, rank);
}

}  // namespace ms::comm
