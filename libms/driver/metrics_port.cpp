#include "driver/metrics_port.h"

#include <algorithm>
#include <span>

#include "base/text.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostHeader_bytes = 8192;

net::Address listening_address(std::string_view where) {
  const bool is_port = !where.empty() && std::ranges::all_of(where, [](char c) { return c >= '0' && c <= '9'; });
  const std::optional<net::Address> address =
      net::parse_address(is_port ? fmt::format("127.0.0.1:{}", where) : std::string(where));
  if (!address) {
    throw user_error("driver.metrics_port", fmt::format("'{}' is neither a port nor an address with one", where),
                     "for example 9400, or 0.0.0.0:9400 to be read from other machines");
  }
  return *address;
}

std::string http_answer(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

MetricsPort::MetricsPort(std::string_view where, Clock& clock) : clock_(clock), listener_(listening_address(where)) {}

void MetricsPort::serve(std::string_view metrics) {
  for (std::size_t i = 0; i < kMostOpen; ++i) {
    std::optional<net::Channel> channel = listener_.accept_now();
    if (!channel) break;
    if (visitors_.size() == kMostOpen) visitors_.pop_front();
    visitors_.push_back({.channel = *std::move(channel), .since_s = clock_.now_s(), .request = {}, .unsent = {}});
  }
  visitors_.remove_if([&](Visitor& visitor) {
    try {
      return attend(visitor, metrics) || clock_.now_s() - visitor.since_s > kOpen_s;
    } catch (const Error&) { return true; }
  });
}

// Returns whether all is said.
bool MetricsPort::attend(Visitor& visitor, std::string_view metrics) {
  for (std::optional<std::string> line;
       !visitor.is_answered && (line = visitor.channel.poll_line(kMostHeader_bytes));) {
    if (visitor.request.empty()) {
      visitor.request = *line;
    } else if (trim(*line).empty()) {
      const bool known = visitor.request.starts_with("GET /metrics ");
      visitor.unsent = known ? http_answer("200 OK", metrics) : http_answer("404 Not Found", "see /metrics\n");
      visitor.is_answered = true;
    }
  }
  visitor.unsent.erase(0, visitor.channel.send_some(std::as_bytes(std::span(visitor.unsent))));
  return visitor.is_answered && visitor.unsent.empty();
}

}  // namespace ms::driver
