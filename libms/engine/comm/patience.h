// How long a rank waits for its peers, and what keeps it busy while they wait for it. Whoever runs the rank sets both;
// the threads that look after deadlines read them. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace ms::comm {

class Patience {
 public:
  // `ceiling`: what a rank waits at most, and until set() says otherwise.
  explicit Patience(std::chrono::milliseconds ceiling) : ceiling_(ceiling), learned_(ceiling) {}

  std::chrono::milliseconds ceiling() const { return ceiling_; }
  // How long an operation may wait for its peers. While the rank is busy, its peers may be, too: they all save, say.
  std::chrono::milliseconds now() const {
    return busy() == nullptr ? learned_.load(std::memory_order_relaxed) : ceiling_;
  }
  // How long a wait is no hang after a peer was found busy: it needs time for what comes next, as if it began anew.
  std::chrono::milliseconds after_busy() const;
  void set(std::chrono::milliseconds learned) {
    learned_.store(std::min(learned, ceiling_), std::memory_order_relaxed);
  }
  // Returns what the rank's host does that may take any time and is no hang of it: "waits for data"; nullptr: nothing.
  const char* busy() const { return busy_.load(std::memory_order_relaxed); }

  // Says so for its lifetime; `what` is a literal. For one thread, where it may be nested.
  class Busy {
   public:
    Busy(Patience& patience, const char* what) : patience_(patience), before_(patience.busy_.exchange(what)) {}
    ~Busy() { patience_.busy_ = before_; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Patience& patience_;
    const char* const before_;
  };

 private:
  const std::chrono::milliseconds ceiling_;
  std::atomic<std::chrono::milliseconds> learned_;
  std::atomic<const char*> busy_ = nullptr;
};

// Between two looks at the deadlines: after a longer pause this process was stopped, or starved, and what it has not
// heard meanwhile accuses nobody.
inline constexpr std::chrono::seconds kAway{3};
// Until peers that are busy are asked again.
inline constexpr std::chrono::seconds kAskAgain{1};

inline std::chrono::milliseconds Patience::after_busy() const {
  return learned_.load(std::memory_order_relaxed) + kAskAgain;
}

}  // namespace ms::comm
