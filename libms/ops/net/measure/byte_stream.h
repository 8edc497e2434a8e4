// One connection's stream of bytes, timed by the end that receives it.
#pragma once

#include "link/channel.h"

namespace ms::net {

struct StreamLimits {
  double seconds = 0;      // the receiver ends it then
  std::int64_t bytes = 0;  // or after so many
  double max_gbps = 0;     // 0: as fast as it goes
};

struct Streamed {
  double gbps = -1;     // at the receiver
  double cpu_wait = 0;  // the share of its time that an end waited for a CPU, as in Way
};

// Sends until the other end has had enough. Returns what that measured, and the longer wait. The caller then calls
// close_now(): the other end reads until then.
Streamed send_stream(link::Channel& channel, const StreamLimits& limits, link::Deadline deadline);
// Receives until a limit is reached and tells the other end: Gbit/s of all but the first fifth of that time. The time
// of a stream that stalls counts until its end. Returns the wait of this end alone.
Streamed receive_stream(link::Channel& channel, const StreamLimits& limits);

}  // namespace ms::net
