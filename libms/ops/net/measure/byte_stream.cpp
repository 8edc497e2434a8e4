#include "net/measure/byte_stream.h"

#include <poll.h>

#include <algorithm>
#include <vector>

#include "base/number.h"
#include "base/thread_times.h"

namespace ms::net {
namespace {

using Time = std::chrono::steady_clock;
constexpr std::size_t kChunk = std::size_t{256} << 10;

double seconds_since(Time::time_point begin) { return std::chrono::duration<double>(Time::now() - begin).count(); }

}  // namespace

Streamed send_stream(link::Channel& channel, const StreamLimits& limits, link::Deadline deadline) {
  if (limits.max_gbps > 0) {
    const auto rate = static_cast<std::uint64_t>(limits.max_gbps * 1e9 / 8);
    setsockopt(channel.fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
  }
  const std::vector<std::byte> chunk(kChunk, std::byte{0x5a});
  const OwnWaits waits;
  while (true) {
    const bool sent = channel.send_some(chunk) > 0;
    if (const std::optional<std::string> line = channel.poll_line()) {
      std::string_view text(*line);
      const double gbps = take_number<double>(text).value_or(-1);
      text.remove_prefix(std::min<std::size_t>(1, text.size()));
      return {.gbps = gbps,
              .cpu_wait = std::min(1.0, std::max(waits.share(), leading_number<double>(text).value_or(0)))};
    }
    if (!sent) channel.wait_writable(deadline);
    if (link::seconds_until(deadline) == 0) {
      throw Error("net.peer", Blame::fabric, fmt::format("{}: did not say in time what it received", channel.peer()));
    }
  }
}

Streamed receive_stream(link::Channel& channel, const StreamLimits& limits) {
  std::vector<std::byte> chunk(kChunk);
  const OwnWaits waits;
  const Time::time_point begin = Time::now();
  Time::time_point counted = begin;  // from here on
  const double warm_s = limits.seconds / 5;
  std::int64_t all = 0, bytes = 0;
  const link::Deadline end = link::in_seconds(limits.seconds);
  while (link::seconds_until(end) > 0 && all < limits.bytes) {
    pollfd poll{.fd = channel.fd(), .events = POLLIN, .revents = 0};
    ::poll(&poll, 1, static_cast<int>(link::seconds_until(end) * 1e3) + 1);
    if (poll.revents == 0) continue;
    const std::size_t got = channel.receive_some(chunk, end);
    if (got == 0) throw Error("net.peer", Blame::fabric, fmt::format("{}: the stream ended early", channel.peer()));
    all += static_cast<std::int64_t>(got);
    if (seconds_since(begin) < warm_s && all < limits.bytes / 2) {
      counted = Time::now();
    } else {
      bytes += static_cast<std::int64_t>(got);
    }
  }
  const double seconds = seconds_since(counted);
  const Streamed streamed{.gbps = seconds > 0 ? static_cast<double>(bytes) * 8e-9 / seconds : 0,
                          .cpu_wait = waits.share()};
  // The other end closes when it has read this; what it sent until then is of no use, but must not be left unread: a
  // connection closed over unread bytes takes the line with it.
  channel.send_line(fmt::format("{} {}", streamed.gbps, streamed.cpu_wait), link::in_seconds(link::kAnswer_s));
  try {
    const link::Deadline closed = link::in_seconds(link::kAnswer_s);
    while (link::seconds_until(closed) > 0 && channel.receive_some(chunk, closed) > 0) {}
  } catch (const Error&) {}  // as it ends: reset
  return streamed;
}

}  // namespace ms::net
