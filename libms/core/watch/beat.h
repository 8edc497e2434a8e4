// Heartbeats: what a rank says of itself, as one datagram of text to the unix socket that MS_HEARTBEAT names. Any
// program can send them: words of the form key=value, "rank=3 step=17 section=save loss=2.41". No answer comes, and a
// rank never waits: what cannot be sent at once is dropped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/handle.h"

namespace ms::watch {

inline constexpr std::size_t kMaxBeatBytes = 512;
inline constexpr std::size_t kMaxBeatNumbers = 16;

struct Beat {
  int rank = -1;                               // -1: not said
  std::int64_t step = -1;                      // steps done; -1: not said
  std::string section;                         // what begins now: [a-z_], at most 32; empty: not said
  std::map<std::string, double> numbers = {};  // loss, grad_norm, ..., named like a section
};

// nullopt: not a beat. Keys that are not known become numbers.
std::optional<Beat> parse_beat(std::string_view text);
std::string format_beat(const Beat& beat);

// The sending end, shared by the ranks of a process; thread-safe.
class Heartbeat {
 public:
  // `path`: of the socket; empty or null: nobody listens, and send() does nothing.
  explicit Heartbeat(const char* path);
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void send(const Beat& beat) const noexcept;

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace ms::watch
