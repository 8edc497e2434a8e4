// The scheduler of the CPU device. A stream is idle (empty), ready (in the pool's queue), running (a worker drains it)
// or parked (its head waits for an event or a peer). At most one worker runs a stream at a time, so that its ops run in
// order.
#include "tensor/cpu_stream.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "tensor/cpu_kernels.h"
#include "tensor/team.h"

namespace ms::tensor {
namespace {

using Poison = std::shared_ptr<const Error>;

class CpuEvent final : public EventState {
 public:
  bool ready() const override {
    std::lock_guard lock(mutex_);
    return reached_;
  }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
    if (poison_) throw *poison_;
  }
  void reach(Poison poison) {
    std::vector<CpuWaker> waiters;
    {
      std::lock_guard lock(mutex_);
      reached_ = true;
      poison_ = std::move(poison);
      waiters.swap(waiters_);
      changed_.notify_all();
    }
    for (const CpuWaker& waiter : waiters) waiter.wake();
  }
  // Returns true if reached; otherwise keeps the waker.
  bool reached_or_keep(const CpuWaker& waker, Poison& poison) {
    std::lock_guard lock(mutex_);
    if (reached_) {
      poison = poison_;
      return true;
    }
    waiters_.push_back(waker);
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  Poison poison_;
  std::vector<CpuWaker> waiters_;
};

struct RecordItem {
  std::shared_ptr<CpuEvent> event;
};
struct WaitItem {
  std::shared_ptr<CpuEvent> event;
};
struct SectionItem {
  trace::Recorder* recorder;
  trace::Ticket ticket;
  bool begins;
};
using Item = std::variant<Op, RecordItem, WaitItem, SectionItem, std::shared_ptr<AsyncTask>, std::function<void()>>;
// An item of the queue. If it has a recorder's ticket, it records when it begins and ends.
struct Entry {
  Item item;
  trace::Recorder* recorder = nullptr;
  trace::Ticket ticket = trace::kNoTicket;
  bool begun = false;
};

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;  // which clang deduces since version 17 only

}  // namespace

class CpuPool::Impl {
 public:
  explicit Impl(Size size) {
    for (int i = 0; i < size.workers; ++i) {
      threads_.emplace_back([this, size](const std::stop_token& stop) {
        set_team_threads(size.threads_per_op);
        work(stop);
      });
    }
  }
  void make_ready(const std::shared_ptr<CpuStreamCore>& stream, StreamKind kind, bool first);
  bool comm_waits() const { return comm_ready_.load(std::memory_order_relaxed) > 0; }

 private:
  void work(const std::stop_token& stop);

  std::mutex mutex_;  // guards the queues
  std::condition_variable_any changed_;
  std::deque<std::shared_ptr<CpuStreamCore>> comm_, compute_;
  std::atomic<int> comm_ready_ = 0;
  std::vector<std::jthread> threads_;
};

class CpuStreamCore : public std::enable_shared_from_this<CpuStreamCore> {
 public:
  CpuStreamCore(const Device& device, CpuPool& pool, MatmulCache& matmuls, StreamKind kind)
      : device_(device), pool_(*pool.impl_), matmuls_(matmuls), kind_(kind) {}

  void push(Item item, trace::Recorder* recorder = nullptr, trace::Ticket ticket = trace::kNoTicket) {
    std::lock_guard lock(mutex_);
    items_.push_back({.item = std::move(item), .recorder = recorder, .ticket = ticket});
    if (state_ == State::idle) enter_ready(false);
  }
  void wake() {
    std::lock_guard lock(mutex_);
    if (state_ == State::parked) {
      enter_ready(false);
    } else if (state_ == State::running) {
      wake_pending_ = true;
    }
  }
  void drain() {
    std::unique_lock lock(mutex_);
    drained_.wait(lock, [&] { return state_ == State::idle; });
  }
  void run();
  double seconds(int op_class) const {
    return op_seconds_[static_cast<std::size_t>(op_class)].load(std::memory_order_relaxed);
  }

 private:
  enum class State { idle, ready, running, parked };

  void enter_ready(bool first) {
    state_ = State::ready;
    pool_.make_ready(shared_from_this(), kind_, first);
  }
  bool process(Entry& entry);  // true when the item is done
  bool process(Item& item);
  void compute(const Op& op);
  void mark(const SectionItem& section);
  template <class F>
  bool guarded(F&& function);

  const Device& device_;
  CpuPool::Impl& pool_;
  MatmulCache& matmuls_;
  StreamKind kind_;
  std::mutex mutex_;  // guards both ends of items_, state_, wake_pending_
  std::condition_variable drained_;
  std::deque<Entry> items_;
  State state_ = State::idle;
  bool wake_pending_ = false;
  Poison poison_;      // accessed by the running worker only
  double busy_s_ = 0;  // likewise: seconds in ops since the last section began
  std::array<std::atomic<double>, kOpClasses> op_seconds_{};
};

void CpuWaker::wake() const { core_->wake(); }

void CpuPool::Impl::make_ready(const std::shared_ptr<CpuStreamCore>& stream, StreamKind kind, bool first) {
  {
    std::lock_guard lock(mutex_);
    if (kind == StreamKind::comm) {
      comm_.push_back(stream);
      comm_ready_.fetch_add(1, std::memory_order_relaxed);
    } else if (first) {
      compute_.push_front(stream);
    } else {
      compute_.push_back(stream);
    }
  }
  changed_.notify_one();
}

void CpuPool::Impl::work(const std::stop_token& stop) {
  while (true) {
    std::shared_ptr<CpuStreamCore> stream;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return !comm_.empty() || !compute_.empty(); })) return;
      std::deque<std::shared_ptr<CpuStreamCore>>& queue = comm_.empty() ? compute_ : comm_;
      if (!comm_.empty()) comm_ready_.fetch_sub(1, std::memory_order_relaxed);
      stream = std::move(queue.front());
      queue.pop_front();
    }
    stream->run();
  }
}

void CpuStreamCore::run() {
  std::unique_lock lock(mutex_);
  state_ = State::running;
  while (!items_.empty()) {
    Entry& entry = items_.front();  // push() at the other end does not move it
    wake_pending_ = false;
    lock.unlock();
    const bool done = process(entry);
    lock.lock();
    if (done) {
      items_.pop_front();
      if (kind_ == StreamKind::compute && !items_.empty() && pool_.comm_waits()) {
        enter_ready(true);  // communication first; this stream is next
        return;
      }
    } else if (!wake_pending_) {
      state_ = State::parked;
      return;
    }
  }
  state_ = State::idle;
  drained_.notify_all();
}

// Runs the function unless the stream is poisoned. An exception poisons the stream.
template <class F>
bool CpuStreamCore::guarded(F&& function) {
  if (poison_) return true;
  try {
    return function();
  } catch (const Error& error) { poison_ = std::make_shared<const Error>(error); } catch (const std::exception& error) {
    poison_ = std::make_shared<const Error>("tensor.op", Blame::bug, error.what());
  }
  return true;
}

void CpuStreamCore::compute(const Op& op) {
  const double start = monotonic_s();
  if (const auto* matmul = std::get_if<Matmul>(&op)) {
    matmuls_.run(*matmul);
  } else if (const auto* grouped = std::get_if<GroupedMatmul>(&op)) {
    matmuls_.run(*grouped);
  } else {
    cpu_kernels().run(op);
  }
  double seconds = monotonic_s() - start;
  if (const double slowness = device_.slowness(); slowness > 1) {  // an injected fault: spin
    const double enough = seconds * slowness;
    while (seconds < enough) seconds = monotonic_s() - start;
  }
  busy_s_ += seconds;
  std::atomic<double>& sum = op_seconds_[static_cast<std::size_t>(op_class(op))];
  sum.store(sum.load(std::memory_order_relaxed) + seconds, std::memory_order_relaxed);
  if (OpObserver* observer = device_.observer()) observer->ran(op, seconds);
}

void CpuStreamCore::mark(const SectionItem& section) {
  if (section.begins) {
    busy_s_ = 0;
    section.recorder->begin(section.ticket, trace::now_ns());
  } else {
    section.recorder->end_section(section.ticket, trace::now_ns(), static_cast<std::int64_t>(busy_s_ * 1e9));
  }
}

// Items that a poisoned stream skips record no begin; an item that poisons it records no end.
bool CpuStreamCore::process(Entry& entry) {
  if (entry.recorder == nullptr) return process(entry.item);
  if (!entry.begun && !poison_) {
    entry.recorder->begin(entry.ticket, trace::now_ns());
    entry.begun = true;
  }
  const bool done = process(entry.item);
  if (done && !poison_) entry.recorder->end(entry.ticket, trace::now_ns());
  return done;
}

bool CpuStreamCore::process(Item& item) {
  const CpuWaker waker(shared_from_this());
  return std::visit(Overloaded{[&](const Op& op) {
                                 return guarded([&] {
                                   compute(op);
                                   return true;
                                 });
                               },
                               [&](const RecordItem& record) {
                                 record.event->reach(poison_);
                                 return true;
                               },
                               [&](const WaitItem& wait) {
                                 if (poison_) return true;
                                 return wait.event->reached_or_keep(waker, poison_);
                               },
                               [&](const SectionItem& section) {
                                 if (!poison_) mark(section);
                                 return true;
                               },
                               [&](const std::shared_ptr<AsyncTask>& task) {
                                 if (poison_) {
                                   task->cancel(*poison_);
                                   return true;
                                 }
                                 return guarded([&] { return task->step(waker); });
                               },
                               [&](const std::function<void()>& function) {
                                 return guarded([&] {
                                   function();
                                   return true;
                                 });
                               }},
                    item);
}

int CpuPool::usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, CPU_COUNT(&set));
}

CpuPool::Size CpuPool::size_for(int cores, int ranks_here, int ranks_on_node, int threads) {
  if (threads > 0) cores = threads, ranks_on_node = ranks_here;
  return {std::clamp(ranks_here, 1, std::max(1, cores)), std::max(1, cores / std::max(1, ranks_on_node))};
}

int CpuPool::threads_asked(std::int64_t key, const char* omp_num_threads) {
  if (key > 0 || omp_num_threads == nullptr) return static_cast<int>(key);
  const std::string_view text(omp_num_threads), first = text.substr(0, text.find(','));
  int threads = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
  const bool is_number = error == std::errc{} && end == first.data() + first.size();
  if (is_number && threads >= 1 && threads <= kMaxThreads) return threads;
  throw user_error("run.cpu_threads",
                   fmt::format("OMP_NUM_THREADS is '{}', not a number of threads from 1 to {}", text, kMaxThreads),
                   "unset it, or set run.cpu_threads, which overrides it");
}

CpuPool::CpuPool(Size size) : size_(size), impl_(std::make_unique<Impl>(size)) {
  MS_ASSERT(size.workers > 0 && size.threads_per_op > 0, "a pool of {} workers with {} threads", size.workers,
            size.threads_per_op);
}
CpuPool::~CpuPool() = default;

CpuStream::CpuStream(Device& device, CpuPool& pool, MatmulCache& matmuls, std::string name, int index, StreamKind kind)
    : TaskStream(device, std::move(name), index), core_(std::make_shared<CpuStreamCore>(device, pool, matmuls, kind)) {}
CpuStream::~CpuStream() { core_->drain(); }

void CpuStream::submit_async(std::shared_ptr<AsyncTask> task) {
  if (next_ == trace::kNoTicket) return core_->push(std::move(task));
  core_->push(std::move(task), device().recorder(), std::exchange(next_, trace::kNoTicket));
}
void CpuStream::call(std::function<void()> function) { core_->push(std::move(function)); }
void CpuStream::do_submit(const Op& op) {
  if (next_ == trace::kNoTicket) return core_->push(op);
  core_->push(op, device().recorder(), std::exchange(next_, trace::kNoTicket));
}
std::shared_ptr<EventState> CpuStream::do_record() {
  auto event = std::make_shared<CpuEvent>();
  core_->push(RecordItem{event});
  return event;
}
void CpuStream::do_wait(const Event& event) {
  auto state = std::dynamic_pointer_cast<CpuEvent>(event.state());
  MS_ASSERT(state, "stream {} waits for an event of another device", name());
  core_->push(WaitItem{std::move(state)});
}
void CpuStream::do_section(trace::Ticket ticket, bool begins) {
  core_->push(SectionItem{.recorder = device().recorder(), .ticket = ticket, .begins = begins});
}
void CpuStream::add_op_seconds(std::vector<double>& sums) const {
  for (int i = 0; i < kOpClasses; ++i) sums[static_cast<std::size_t>(i)] += core_->seconds(i);
}

}  // namespace ms::tensor
