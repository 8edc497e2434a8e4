// Writes what the recorders of this process hold to their files, now and then: one thread for all of them. A rank that
// is killed loses what it did since the last time, and a run that hangs has said so meanwhile.
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
  // Both from any thread. After remove() the recorder is not touched any more.
  void add(Recorder& recorder);
  void remove(Recorder& recorder);

 private:
  void run(const std::stop_token& stop, double every_s);

  std::mutex mutex_;  // guards recorders_, which are flushed under it
  std::condition_variable_any changed_;
  std::vector<Recorder*> recorders_;
  std::jthread thread_;
};

}  // namespace ms::trace
