// Flushes the recorders of this process to their files at an interval, by one thread for all of them. A rank that is
// killed loses its events since the last flush, and a hanging run's files are up to date.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace ms::trace {

class Recorder;

class Flusher {
 public:
  explicit Flusher(double every_s);
  // Both may be called from any thread. After remove() the flusher no longer uses the recorder.
  void add(Recorder& recorder);
  void remove(Recorder& recorder);

 private:
  void run(const std::stop_token& stop, double every_s);

  std::mutex mutex_;  // guards recorders_; held while they are flushed
  std::condition_variable_any changed_;
  std::vector<Recorder*> recorders_;
  std::jthread thread_;
};

}  // namespace ms::trace
