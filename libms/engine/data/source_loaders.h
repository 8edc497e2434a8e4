// The source loaders of a node: threads of the loader's process that read the windows of a batch together. Each owns
// some of the sources, and reads what of the batch is theirs; one that has nothing left takes what others have not
// begun. How many there are follows from what reading takes (source_shares.h): one, the thread that fills the ring,
// while it keeps the ring full. Which thread reads a window makes no difference to the batch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/batch_source.h"
#include "data/source_shares.h"

namespace ms::data {

class SourceLoaders {
 public:
  using Read = std::function<void(const Window& window, std::size_t index)>;

  // Starts no thread. `source`, and what `read` of begin() refers to, outlive it.
  SourceLoaders(const BatchSource& source, LoaderCount count);
  SourceLoaders(const SourceLoaders&) = delete;
  SourceLoaders& operator=(const SourceLoaders&) = delete;
  ~SourceLoaders();  // waits for reads that are under way

  const BatchSource& source() const { return source_; }
  int count() const { return count_.now(); }

  // The others begin: `read` is called once for each window, by any thread.
  void begin(std::vector<Window> windows, Read read);
  // Reads with them; returns when all windows are read. Throws the first of what `read` threw, while others may still
  // wait for storage that does not answer: no batch can follow then.
  void finish();
  // The batch is published. `waited_s`: how long no slot was free for it. `is_late`: a rank waited for it.
  void review(double waited_s, bool is_late);

 private:
  // The part of the batch that a loader reads first. On a cache line of its own.
  struct alignas(64) Share {
    std::vector<std::size_t> windows;
    std::atomic<std::size_t> next = 0;  // the first that nobody has begun to read
  };

  void start_threads();
  void help(const std::stop_token& stop, std::size_t number);
  void read_shares(std::size_t first);
  void fail(std::exception_ptr failure);

  const BatchSource& source_;
  LoaderCount count_;
  SourceCosts costs_;
  std::vector<Owners> owners_;
  double last_end_s_;

  // The batch, which does not change while it is read.
  std::vector<Window> windows_;
  Read read_;
  std::vector<double> seconds_;  // by window
  std::vector<Share> shares_;    // by loader

  std::mutex mutex_;         // guards what follows
  std::uint64_t batch_ = 0;  // those that began
  bool is_open_ = false;     // threads that are awake may join in
  int reading_ = 0;          // threads that have joined in
  std::exception_ptr failure_;
  std::condition_variable_any opened_;
  std::condition_variable left_;
  std::vector<std::jthread> threads_;  // all loaders but the first; last: they use all of the above
};

}  // namespace ms::data
