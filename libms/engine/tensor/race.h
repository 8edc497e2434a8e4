// The race check: vector clocks per stream, updated while ops are issued. What a rank issues does not depend on data,
// so the check needs no device. It finds races that no thread sanitizer can see: two accesses to the same bytes, at
// least one a write, that no chain of events orders. On in debug builds, or by enable().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/ops.h"

namespace ms::tensor {

// The progress known of each stream, by index. The host has no index: it issues and does not access.
using StreamClock = std::vector<std::uint64_t>;

class RaceChecker {
 public:
#ifdef NDEBUG
  static constexpr bool kDefault = false;
#else
  static constexpr bool kDefault = true;
#endif
  void enable(bool on) { enabled_ = on; }
  bool enabled() const { return enabled_; }

  // `who` names the op in the message; streams are numbered by Stream::index().
  void access(int stream, Access access, const Tensor& tensor, std::string_view who);
  StreamClock record(int stream);
  void wait(int stream, const StreamClock& clock);
  // The host has seen this clock reached. All later work of every stream comes after it, because the host issues it
  // later.
  void host_sync(const StreamClock& clock);

 private:
  struct Touch {
    int stream = -1;
    std::uint64_t time = 0;
    std::string who;
  };
  // Bytes [key, end) with the same history.
  struct Range {
    std::uintptr_t end = 0;
    Touch write;
    std::vector<Touch> reads;  // since that write, the newest per stream
  };
  StreamClock& clock_of(int stream);
  void split_at(std::uintptr_t address);
  void check(const Touch& earlier, const StreamClock& clock, std::string_view who, std::string_view what) const;

  bool enabled_ = kDefault;
  std::vector<StreamClock> clocks_;
  StreamClock host_;
  std::map<std::uintptr_t, Range> ranges_;
};

}  // namespace ms::tensor
