#include "tensor/team.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace ms::tensor {
namespace {

// About what it takes to wake a thread that sleeps: spinning that long costs at most as much again.
constexpr double kSpin_s = 100e-6;
constexpr int kPartsOfThread = 4;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns whether the condition became true while this spun.
template <class Condition>
bool spin_until(Condition&& is_met) {
  constexpr int kLooks = 32;  // between looks at the clock
  const double end = monotonic_s() + kSpin_s;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (is_met()) return true;
      pause_core();
    }
  } while (monotonic_s() < end);
  return false;
}

class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() { dismiss(); }

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }
  void set_threads(int threads) {
    MS_ASSERT(threads > 0 && !is_busy_, "a team of {} threads", threads);
    threads = std::min(threads, kMaxThreads);
    if (threads == this->threads()) return;
    dismiss();
    shares_ = std::vector<Share>(static_cast<std::size_t>(threads));
    for (int number = 1; number < threads; ++number) helpers_.emplace_back([this, number] { help(number); });
  }

  void run(std::int64_t count, std::int64_t part, TeamBody body, void* context) {
    const std::int64_t parts = (count + part - 1) / part;
    const int takers = static_cast<int>(std::min<std::int64_t>(threads(), parts));
    if (takers <= 1 || is_busy_) return body(context, 0, count, 0);
    is_busy_ = true;
    body_ = body, context_ = context, part_ = part, takers_ = takers;
    for (int i = 0; i < takers; ++i) {
      Share& share = shares_[static_cast<std::size_t>(i)];
      share.next.store(parts * i / takers * part, std::memory_order_relaxed);
      share.end = std::min(count, parts * (i + 1) / takers * part);
    }
    open();
    work(0);
    close();
    is_busy_ = false;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  // The part of an op that a thread takes first. On a cache line of its own.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next = 0;
    std::int64_t end = 0;
  };

  // state_: how many helpers are inside an op, whether it is closed to others, whether it dismisses them, and its
  // number, which wraps: of two ops with one number a helper may sit out the second, but never its dismissal.
  static constexpr std::uint32_t kInside = 0xFFF, kClosed = 0x1000, kDismissed = 0x2000, kNumber = 0x4000;

  void open(std::uint32_t flags = 0) {
    state_.store(((state_.load(std::memory_order_relaxed) & ~kClosed) + kNumber) | flags, std::memory_order_release);
    state_.notify_all();
  }
  // Waits for those inside. The others never were, and see nothing of it.
  void close() {
    state_.fetch_or(kClosed, std::memory_order_acq_rel);
    const auto is_left = [this] { return (state_.load(std::memory_order_acquire) & kInside) == 0; };
    if (spin_until(is_left)) return;
    for (std::uint32_t seen = left_.load(); !is_left(); seen = left_.load()) left_.wait(seen);
  }
  void dismiss() {
    if (helpers_.empty()) return;
    open(kDismissed);
    helpers_.clear();  // joins
    state_.fetch_xor(kDismissed | kClosed);
  }

  void help(int number) {
    std::uint32_t state = 0, last = 0;
    const auto is_new = [&] {
      state = state_.load(std::memory_order_acquire);
      return (state & kClosed) == 0 && ((state & kDismissed) != 0 || state / kNumber != last);
    };
    while (true) {
      if (!spin_until(is_new)) {
        while (!is_new()) state_.wait(state, std::memory_order_acquire);
      }
      if (!state_.compare_exchange_strong(state, state + 1, std::memory_order_acq_rel)) continue;
      last = state / kNumber;
      const bool is_dismissed = (state & kDismissed) != 0;
      if (!is_dismissed && number < takers_) work(number);
      const std::uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & kClosed) != 0 && (before & kInside) == 1) {
        left_.fetch_add(1);
        left_.notify_one();
      }
      if (is_dismissed) return;
    }
  }

  void work(int number) {
    try {
      for (int i = 0; i < takers_; ++i) {
        Share& share = shares_[static_cast<std::size_t>((number + i) % takers_)];
        std::int64_t begin = share.next.fetch_add(part_, std::memory_order_relaxed);
        for (; begin < share.end; begin = share.next.fetch_add(part_, std::memory_order_relaxed)) {
          body_(context_, begin, std::min(begin + part_, share.end), number);
        }
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      failure_ = std::current_exception();
    }
  }

  std::atomic<std::uint32_t> state_ = kClosed;
  std::atomic<std::uint32_t> left_ = 0;  // how often the last helper has left a closed op
  // The op. Written while nobody is inside.
  TeamBody body_ = nullptr;
  void* context_ = nullptr;
  std::int64_t part_ = 0;
  int takers_ = 0;
  std::vector<Share> shares_;

  bool is_busy_ = false;      // accessed by the team's owner only
  std::mutex failure_mutex_;  // guards failure_ while helpers are inside
  std::exception_ptr failure_;
  std::vector<std::jthread> helpers_;
};

Team& team() {
  thread_local Team own_team;
  return own_team;
}

}  // namespace

int team_threads() { return team().threads(); }
void set_team_threads(int threads) { team().set_threads(threads); }

std::int64_t even_part(std::int64_t count) {
  const std::int64_t parts = std::int64_t{kPartsOfThread} * team_threads();
  return std::max<std::int64_t>(1, (count + parts - 1) / parts);
}

void share_work(std::int64_t count, std::int64_t part, TeamBody body, void* context) {
  if (count > 0) team().run(count, part, body, context);
}

}  // namespace ms::tensor
