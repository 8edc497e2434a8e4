#include "net/agents/rdma_pair.h"

#include <fmt/format.h>

namespace ms::net {
namespace {

constexpr double kProgram_s = 30;  // for a program to start, and to run: more than perftest.h gives it, and a stream

link::Deadline program_deadline(const PairSpec& spec) { return link::in_seconds(kProgram_s + spec.seconds); }

const RdmaPort& port_of(const Self& self) {
  if (!self.rdma) throw Error("net.rdma", Blame::node, "this node has no active RDMA port");
  return *self.rdma;
}

// "rdma await lat 0 0.4 200 1 0": the program that is called is told as much as the one that calls.
std::string request(std::string_view role, RdmaTest test, int port, const PairSpec& spec) {
  return fmt::format("rdma {} {} {} {} {} {} {}", role, test == RdmaTest::latency ? "lat" : "bw", port, spec.seconds,
                     spec.pings, spec.flows, spec.max_gbps);
}

// A line that may be "failed" and why.
Fields answered(link::Channel& session, link::Deadline deadline) {
  const std::string line = session.receive_line(deadline);
  if (line.starts_with("failed ")) throw Error("net.rdma", Blame::fabric, plain_text(line.substr(7), 200));
  return Fields(line);
}
void say_failed(link::Channel& session, const Error& error) {
  session.send_line("failed " + plain_text(error.message(), 200), link::in_seconds(link::kAnswer_s));
}

// The other waits, and we call it.
RdmaSeen call(link::Channel& session, const Self& self, const std::string& host, RdmaTest test, const PairSpec& spec) {
  session.send_line(request("await", test, 0, spec), link::in_seconds(link::kAnswer_s));
  const int port = answered(session, program_deadline(spec)).number(1, 65535);
  const RdmaSeen seen = call_rdma(test, port_of(self), spec, host, port);
  answered(session, program_deadline(spec));  // it has ended well, too
  return seen;
}
// We wait, and the other calls us.
RdmaSeen be_called(link::Channel& session, const Self& self, RdmaTest test, const PairSpec& spec) {
  await_rdma(test, port_of(self), spec, [&](int port) {
    session.send_line(request("call", test, port, spec), link::in_seconds(link::kAnswer_s));
  });
  Fields words = answered(session, program_deadline(spec));
  constexpr double kMost = 1e9;
  return {.least_us = words.number(-1.0, kMost),
          .p50_us = words.number(-1.0, kMost),
          .p99_us = words.number(-1.0, kMost),
          .gbps = words.number(-1.0, kMost)};
}

}  // namespace

void serve_rdma(link::Channel& session, const Self& self, Fields& words) {
  const bool waits = words.next() == "await";
  const RdmaTest test = words.next() == "lat" ? RdmaTest::latency : RdmaTest::bandwidth;
  const int port = words.number(0, 65535);
  PairSpec spec{.rdma = true};
  spec.seconds = words.number(0.0, 60.0);
  spec.pings = words.number(0, 1 << 20);
  spec.flows = words.number(1, 1024);
  spec.max_gbps = words.number(0.0, 1e6);
  try {
    if (waits) {
      await_rdma(test, port_of(self), spec,
                 [&](int at) { session.send_line(std::to_string(at), link::in_seconds(link::kAnswer_s)); });
      session.send_line("done", link::in_seconds(link::kAnswer_s));
    } else {
      const RdmaSeen seen = call_rdma(test, port_of(self), spec, link::peer_address(session.fd()).host(), port);
      session.send_line(fmt::format("{} {} {} {}", seen.least_us, seen.p50_us, seen.p99_us, seen.gbps),
                        link::in_seconds(link::kAnswer_s));
    }
  } catch (const Error& error) { say_failed(session, error); }
}

void measure_rdma(link::Channel& session, const Self& self, const std::string& host, const PairSpec& spec,
                  PairResult& result) {
  if (spec.pings > 0) {
    const RdmaSeen seen = call(session, self, host, RdmaTest::latency, spec);
    result.least_us = seen.least_us;
    result.p50_us = seen.p50_us;
    result.p99_us = seen.p99_us;
  }
  if (spec.seconds == 0) return;
  result.there.gbps = call(session, self, host, RdmaTest::bandwidth, spec).gbps;
  if (spec.back) result.back.gbps = be_called(session, self, RdmaTest::bandwidth, spec).gbps;
}

}  // namespace ms::net
