#include "tensor/cuda/autotune.h"

#include <algorithm>
#include <vector>

#include "tensor/cuda/cuda_check.h"

namespace ms::tensor {
namespace {

// Rounds of timing, after one that determines how often a variant is issued between two time stamps: they are about
// kLook_ms apart, so that the host's issue time does not matter.
constexpr int kTurns = 7;
constexpr float kLook_ms = 0.2F;
constexpr int kMostTimes = 50;
constexpr float kWorth = 0.99F;  // of the first variant's time

class TimedEvent {
 public:
  TimedEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "making an event"); }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

int autotune(int count, cudaStream_t stream, const std::function<bool(int)>& launch) {
  const TimedEvent begin, end;
  std::vector<std::vector<float>> ms(static_cast<std::size_t>(count));
  std::vector<bool> taken(ms.size(), true);
  int times = 1;
  float once_ms = kLook_ms;  // of the fastest variant, in the first round
  for (int turn = 0; turn <= kTurns; ++turn) {
    for (std::size_t i = 0; i < ms.size(); ++i) {
      if (!taken[i]) continue;
      check(cudaEventRecord(begin, stream), "recording a time");
      for (int n = 0; n < times; ++n) taken[i] = launch(static_cast<int>(i));
      check(cudaEventRecord(end, stream), "recording a time");
      check(cudaEventSynchronize(end), "waiting for the GPU");
      float took = 0;
      check(cudaEventElapsedTime(&took, begin, end), "reading a time");
      if (turn > 0) ms[i].push_back(took);
      if (turn == 0) once_ms = std::min(once_ms, took);
    }
    if (turn == 0) times = std::clamp(static_cast<int>(kLook_ms / std::max(once_ms, 1e-3F)), 1, kMostTimes);
  }
  const auto median = [](std::vector<float> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  int best = -1;
  float least = 0;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    if (!taken[i]) continue;
    const float took = median(ms[i]);
    if (best >= 0 && took >= least) continue;
    // The first variant stays unless the gain is worth it.
    if (best == 0 && took >= kWorth * least) continue;
    best = static_cast<int>(i);
    least = took;
  }
  return best;
}

}  // namespace ms::tensor
