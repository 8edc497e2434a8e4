// One connection's stream of bytes, timed by the end that receives it.
#pragma once

#include "link/channel.h"

namespace ms::net {

struct StreamLimits {
  double seconds = 0;      // the receiver ends it then
  std::int64_t bytes = 0;  // or after so many
  double max_gbps = 0;     // 0: as fast as it goes
};

// Sends until the other end has had enough; returns what it measured.
double send_stream(link::Channel& channel, const StreamLimits& limits, link::Deadline deadline);
// Receives until a limit is reached and tells the other end: Gbit/s of all but the first fifth of that time. The time
// of a stream that stalls counts until its end.
double receive_stream(link::Channel& channel, const StreamLimits& limits);

}  // namespace ms::net
