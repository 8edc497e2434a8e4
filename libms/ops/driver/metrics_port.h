// A port where Prometheus reads the metrics of a run. Never blocks. For one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "http/server.h"
#include "net/transport/channel.h"

namespace ms::driver {

class MetricsPort {
 public:
  // `where`: a port, on the loopback interface then, or "ADDRESS:PORT"; port 0: a free one. `clock` outlives it. Throws
  // Error("driver.metrics_port", user) where it is neither, Error("net.socket", node) where it cannot be had.
  MetricsPort(std::string_view where, Clock& clock);

  int port() const { return listener_.port(); }
  // Takes what has come, and answers those who asked for /metrics.
  void serve(const std::string& metrics);

 private:
  net::Listener listener_;
  http::Server server_;
};

}  // namespace ms::driver
