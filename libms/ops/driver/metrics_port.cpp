#include "driver/metrics_port.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"

namespace ms::driver {
namespace {

link::Address listening_address(std::string_view where) {
  const bool is_port = !where.empty() && std::ranges::all_of(where, [](char c) { return c >= '0' && c <= '9'; });
  const std::optional<link::Address> address =
      link::parse_address(is_port ? fmt::format("127.0.0.1:{}", where) : std::string(where));
  if (!address) {
    throw user_error("driver.metrics_port", fmt::format("'{}' is neither a port nor an address with one", where),
                     "for example 9400, or 0.0.0.0:9400 to be read from other machines");
  }
  return *address;
}

}  // namespace

MetricsPort::MetricsPort(std::string_view where, Clock& clock)
    : listener_(listening_address(where)), server_(listener_.fd(), clock) {}

void MetricsPort::serve(const std::string& metrics) {
  server_.serve([&](const link::HttpRequest& request) -> link::HttpAnswer {
    if (request.target != "/metrics") return link::text_answer("404 Not Found", "see /metrics\n");
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::make_shared<const std::string>(metrics)};
  });
}

}  // namespace ms::driver
