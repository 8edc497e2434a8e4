// A port where Prometheus reads the metrics of a run: HTTP, and of that as much as a scrape needs. Never blocks. For
// one thread.
#pragma once

#include <list>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "net/transport/channel.h"

namespace ms::driver {

class MetricsPort {
 public:
  static constexpr std::size_t kMostOpen = 16;  // the oldest connection gives way to a new one
  static constexpr double kOpen_s = 5;          // for a request and its answer

  // `where`: a port, on the loopback interface then, or "ADDRESS:PORT"; port 0: a free one. `clock` outlives it. Throws
  // Error("driver.metrics_port", user) where it is neither, Error("net.socket", node) where it cannot be had.
  MetricsPort(std::string_view where, Clock& clock);

  int port() const { return listener_.port(); }
  // Takes what has come, and answers those who asked for /metrics.
  void serve(std::string_view metrics);

 private:
  struct Visitor {
    net::Channel channel;
    double since_s = 0;
    std::string request;  // its first line
    std::string unsent;
    bool is_answered = false;
  };
  bool attend(Visitor& visitor, std::string_view metrics);

  Clock& clock_;
  net::Listener listener_;
  std::list<Visitor> visitors_;
};

}  // namespace ms::driver
