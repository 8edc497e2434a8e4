#include "trace/flusher.h"

#include <chrono>

#include "trace/recorder.h"

namespace ms::trace {

Flusher::Flusher(double every_s) : thread_([this, every_s](const std::stop_token& stop) { run(stop, every_s); }) {}

void Flusher::add(Recorder& recorder) {
  const std::lock_guard lock(mutex_);
  recorders_.push_back(&recorder);
}

void Flusher::remove(Recorder& recorder) {
  const std::lock_guard lock(mutex_);
  std::erase(recorders_, &recorder);
}

void Flusher::run(const std::stop_token& stop, double every_s) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_for(lock, stop, std::chrono::duration<double>(every_s), [] { return false; });
    for (Recorder* recorder : recorders_) recorder->flush();
  }
}

}  // namespace ms::trace
