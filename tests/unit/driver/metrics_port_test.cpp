#include "driver/metrics_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms::driver {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Scrape : public testing::Test {
 protected:
  link::Channel connect() {
    return link::Channel::connect(*link::parse_address(fmt::format("127.0.0.1:{}", port_.port())), "metrics",
                                  link::in_seconds(5));
  }
  void send(link::Channel& channel, std::string_view text) {
    channel.send(std::as_bytes(std::span(text)), link::in_seconds(5));
  }
  // What comes back until the connection is closed.
  std::string answer(link::Channel& channel) {
    std::string text;
    std::array<std::byte, 65536> bytes;
    for (int i = 0; i < 1000; ++i) {
      port_.serve(metrics_);
      std::size_t got = 0;
      try {
        got = channel.receive_some(bytes, link::in_seconds(0.01));
      } catch (const Error& error) {
        if (std::string_view(error.message()).find("in time") == std::string_view::npos) return text;
        continue;
      }
      if (got == 0) return text;
      text.append(reinterpret_cast<const char*>(bytes.data()), got);
    }
    return text + "(not closed)";
  }

  std::string metrics_ = "ms_driver_steps 40\n";
  FakeClock clock_;
  MetricsPort port_{"0", clock_};
};

TEST_F(Scrape, IsAnsweredWithTheMetrics) {
  link::Channel channel = connect();
  send(channel, "GET /metrics HTTP/1.1\r\nHost: x\r\n");
  port_.serve(metrics_);
  send(channel, "\r\n");
  const std::string text = answer(channel);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("Content-Length: 19\r\n"));
  EXPECT_THAT(text, testing::EndsWith("\r\n\r\nms_driver_steps 40\n"));
}

TEST_F(Scrape, OfAnotherPathIsRefused) {
  link::Channel channel = connect();
  send(channel, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer(channel), StartsWith("HTTP/1.1 404"));
}

TEST(MetricsPort, IsOnTheLoopbackInterfaceUnlessTold) {
  FakeClock clock;
  EXPECT_GT(MetricsPort("0.0.0.0:0", clock).port(), 0);
  for (const char* where : {"", "x", "127.0.0.1", "70000", "host:1", "-1"}) {
    EXPECT_THROW(MetricsPort(where, clock), Error) << where;
  }
  const MetricsPort first("0", clock);
  EXPECT_THROW(MetricsPort(std::to_string(first.port()), clock), Error) << "it is taken";
}

}  // namespace
}  // namespace ms::driver
