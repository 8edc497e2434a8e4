// A port where Prometheus reads the metrics of a run. Never blocks. For one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "link/channel.h"
#include "link/http_server.h"

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
  link::Listener listener_;
  link::HttpServer server_;
};

}  // namespace ms::driver
