#include "data/source_loaders.h"

#include <pthread.h>

#include <algorithm>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace ms::data {
namespace {

// A file system may drop what it is asked for while it is busy (FUSE does beyond nine requests). So where a window took
// so long that its storage was waited for, as many that follow it are asked for again. A cache gives one in
// microseconds.
constexpr std::size_t kAskedAgain = 8;
constexpr double kFromStorage_s = 100e-6;
// Sources change hands where the fullest loader has so much more to do than their mean.
constexpr double kTooFull = 1.25;

}  // namespace

SourceLoaders::SourceLoaders(const BatchSource& source, LoaderCount count)
    : source_(source),
      count_(count),
      costs_(source.num_files()),
      owners_(divide_sources(costs_.loads(), count.now())),
      last_end_s_(monotonic_s()),
      shares_(static_cast<std::size_t>(count.most())) {}

SourceLoaders::~SourceLoaders() = default;  // jthreads: ask to stop, then join

void SourceLoaders::start_threads() {
  while (static_cast<int>(threads_.size()) + 1 < count_.now()) {
    const std::size_t number = threads_.size() + 1;
    try {  // a run does not end for want of help
      threads_.emplace_back([this, number](const std::stop_token& stop) { help(stop, number); });
    } catch (const std::system_error& refused) {
      count_.limit(static_cast<int>(number));
      owners_ = divide_sources(costs_.loads(), count_.now());
      log::warn("data",
                "the loader of this node continues with {} of its threads, because the system refuses another: {}",
                number, refused.what());
    }
  }
}

void SourceLoaders::begin(std::vector<Window> windows, Read read) {
  start_threads();
  windows_ = std::move(windows);
  read_ = std::move(read);
  seconds_.assign(windows_.size(), 0);
  std::vector<std::vector<std::size_t>> dealt = deal(windows_, owners_, costs_, count_.now());
  for (std::size_t i = 0; i < dealt.size(); ++i) {
    shares_[i].windows = std::move(dealt[i]);
    shares_[i].next = 0;
  }
  if (count_.now() == 1) return;
  const std::lock_guard lock(mutex_);
  ++batch_;
  is_open_ = true;
  opened_.notify_all();
}

void SourceLoaders::finish() {
  read_shares(0);
  std::unique_lock lock(mutex_);
  is_open_ = false;
  left_.wait(lock, [&] { return reading_ == 0 || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void SourceLoaders::help(const std::stop_token& stop, std::size_t number) {
  pthread_setname_np(pthread_self(), fmt::format("ms-source {}", number).c_str());
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (
      opened_.wait(lock, stop, [&] { return is_open_ && batch_ != seen && static_cast<int>(number) < count_.now(); })) {
    seen = batch_;
    ++reading_;
    lock.unlock();
    try {  // the trampoline of this thread: finish() throws it to the caller
      read_shares(number);
    } catch (...) { fail(std::current_exception()); }
    lock.lock();
    --reading_;
    left_.notify_one();
  }
}

void SourceLoaders::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  left_.notify_one();
}

// Its own share, then those of the others.
void SourceLoaders::read_shares(std::size_t first) {
  const auto count = static_cast<std::size_t>(count_.now());
  for (std::size_t i = 0; i < count; ++i) {
    Share& share = shares_[(first + i) % count];
    while (true) {
      const std::size_t at = share.next.fetch_add(1, std::memory_order_relaxed);
      if (at >= share.windows.size()) break;
      const std::size_t index = share.windows[at];
      const double begin = monotonic_s();
      read_(windows_[index], index);
      seconds_[index] = monotonic_s() - begin;
      if (seconds_[index] < kFromStorage_s) continue;
      for (std::size_t again = at + 1; again < std::min(at + 1 + kAskedAgain, share.windows.size()); ++again) {
        source_.prefetch(std::span(windows_).subspan(share.windows[again], 1));
      }
    }
  }
}

void SourceLoaders::review(double waited_s, bool is_late) {
  costs_.add(windows_, seconds_);
  const double now = monotonic_s(), period_s = now - std::exchange(last_end_s_, now);
  const int before = count_.now();
  if (!count_.add({.period_s = period_s,
                   .waited_s = waited_s,
                   .read_s = std::reduce(seconds_.begin(), seconds_.end()),
                   .is_late = is_late})) {
    return;
  }
  const std::vector<double> loads = costs_.loads();
  if (before == count_.now() && fullness(loads, owners_, before) <= kTooFull) return;
  owners_ = divide_sources(loads, count_.now());
  log::debug("data",
             "{} source loaders for {} sources, {} before: a batch took {:.3g} ms, {:.3g} of them without a free slot",
             count_.now(), owners_.size(), before, period_s * 1e3, waited_s * 1e3);
}

}  // namespace ms::data
