#include "net/agents/peer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "base/text.h"
#include "base/thread_times.h"
#include "link/secret.h"
#include "net/agents/fields.h"
#include "net/agents/rdma_pair.h"
#include "net/measure/byte_stream.h"
#include "net/measure/datagrams.h"
#include "net/measure/interface.h"

namespace ms::net {
namespace {

using Time = std::chrono::steady_clock;

constexpr double kMost_s = 200;                   // of anything that an agent may be asked for
constexpr double kLinger_s = 0.1;                 // for datagrams on their way
constexpr std::size_t kPing = 16;                 // bytes
constexpr double kReach_s = link::kAnswer_s / 2;  // to connect back: less than the other end waits for the answer
constexpr std::size_t kMostWords = 300;           // of what another agent says
constexpr std::string_view kHello = "hello";      // the greeting of a connection that only shows that it can be made

std::string flow_words(std::string_view way, const StreamLimits& limits) {
  return fmt::format("flow {} {} {} {}", way, limits.seconds, limits.bytes, limits.max_gbps);
}

// One end of the two directions' question: which packets pass? An MTU of 0 means that it is not known.
struct PassingSize {
  int mtu = 0;
  bool passes = false;
};
PassingSize tell_sizes(link::Channel& channel, Datagrams& datagrams, int mtu) {
  const std::optional<bool> passes = mtu > 0 ? datagrams.passes(mtu) : std::nullopt;
  const PassingSize size{.mtu = passes ? mtu : 0, .passes = passes.value_or(false)};
  channel.send_line(fmt::format("{} {}", size.mtu, size.passes ? 1 : 0), link::in_seconds(link::kAnswer_s));
  return size;
}
void take_sizes(link::Channel& channel, Datagrams& datagrams, Way& way) {
  datagrams.answer_sizes(channel, link::in_seconds(link::kAnswer_s));
  Fields words(channel.receive_line(link::in_seconds(link::kAnswer_s)));
  way.mtu = words.number(0, 1 << 20);
  way.large_pass = words.number(0, 1) == 1 || way.mtu == 0;
}

class Session {
 public:
  Session(link::Channel& channel, const Self& self)
      : channel_(channel), self_(self), before_(counts_of(self.root, self.interface)) {}

  void serve() {
    while (true) {
      Fields words(channel_.receive_line(link::in_seconds(kMost_s)));
      const std::string what = words.next();
      if (what == "end") break;
      if (what == "ping") {
        echo(words.number(1, 1 << 20));
      } else if (what == "datagrams") {
        meet(words);
        const int count = words.number(1, 1 << 24);
        const double seconds = words.seconds();
        const std::int64_t drops = backlog_drops(self_.root);
        const DatagramCounts counts = datagrams_->exchange(count, seconds, kLinger_s, channel_);
        channel_.send_line(
            fmt::format("{} {} {}", counts.sent, counts.received, counts.dropped + backlog_drops(self_.root) - drops),
            link::in_seconds(link::kAnswer_s));
      } else if (what == "sizes") {
        meet(words);
        Way ignored;
        take_sizes(channel_, *datagrams_, ignored);
        tell_sizes(channel_, *datagrams_, mtu_of(self_.root, self_.interface));
      } else if (what == "back") {
        channel_.send_line(why_not_reached(words.number(1, 65535)), link::in_seconds(link::kAnswer_s));
      } else if (what == "waited") {
        channel_.send_line(fmt::format("{}", self_.sender_wait->exchange(0)), link::in_seconds(link::kAnswer_s));
      } else if (what == "rdma") {
        serve_rdma(channel_, self_, words);
      } else {
        throw Error("net.peer", Blame::fabric, fmt::format("{} asks for '{}'", channel_.peer(), printable(what, 40)));
      }
    }
    const NodeCounts counts = counts_of(self_.root, self_.interface) - before_;
    channel_.send_line(fmt::format("{} {} {} {} {}", counts.carrier_losses, counts.carrier_gains, counts.errors,
                                   counts.retransmits, counts.segments),
                       link::in_seconds(link::kAnswer_s));
  }

 private:
  // Connects to who drives the session, as others would. Returns why that cannot be; empty: it can.
  std::string why_not_reached(int port) {
    try {
      link::Channel channel =
          link::Channel::connect(link::peer_address(channel_.fd()).with_port(port), "cannot be connected to",
                                 link::in_seconds(kReach_s), {.from = self_.address});
      link::greet(channel, self_.secret, kHello, link::in_seconds(kReach_s));
      return {};
    } catch (const Error& error) { return plain_text(error.message(), kMostWords); }
  }
  void echo(int pings) {
    std::array<std::byte, kPing> ping;
    const link::PromptReceive promptly(channel_);
    const ThreadTimes before = thread_times(Sysroot(), ::getpid());
    for (int i = 0; i < pings; ++i) {
      channel_.receive(ping, link::in_seconds(kMost_s));
      channel_.send(ping, link::in_seconds(link::kAnswer_s));
      if (ping[0] != std::byte{0}) break;  // the last one
    }
    channel_.send_line(std::to_string(longest_wait_s(before, thread_times(Sysroot(), ::getpid()))),
                       link::in_seconds(link::kAnswer_s));
  }
  void meet(Fields& words) {
    const int port = words.number(1, 65535);
    const auto exchange = words.number<std::uint64_t>(0, ~std::uint64_t{0});
    datagrams_.emplace(link::local_address(channel_.fd()));
    datagrams_->meet(link::peer_address(channel_.fd()).with_port(port), exchange);
    channel_.send_line(std::to_string(datagrams_->port()), link::in_seconds(link::kAnswer_s));
  }

  link::Channel& channel_;
  const Self& self_;
  NodeCounts before_;
  std::optional<Datagrams> datagrams_;
};

// Drives a session with the other agent.
class Test {
 public:
  Test(const Self& self, const link::Address& other, const std::string& name, const PairSpec& spec, int source_port,
       PairResult& result)
      : self_(self), other_(other), name_(name), spec_(spec), source_port_(source_port), result_(result) {}

  void run() {
    try {
      session_ = open("session", 0);
    } catch (const Error& error) {
      result_.there.unreached = plain_text(error.message(), kMostWords);
      throw;
    }
    if (self_.port > 0) reach_back();
    if (spec_.rdma) {
      measure_rdma(session_, self_, other_.host(), spec_, result_);
    } else {
      if (spec_.pings > 0) ping();
      if (spec_.seconds > 0) stream();
      if (spec_.datagrams > 0) count_lost();
      if (spec_.sizes) try_sizes();
    }
    say("end");
    Fields words(session_.receive_line(link::in_seconds(link::kAnswer_s)));
    constexpr std::int64_t kAny = std::int64_t{1} << 62;
    result_.counts_b = {.carrier_losses = words.number(-kAny, kAny),
                        .carrier_gains = words.number(-kAny, kAny),
                        .errors = words.number(-kAny, kAny),
                        .retransmits = words.number(-kAny, kAny),
                        .segments = words.number(-kAny, kAny)};
  }

 private:
  link::Channel open(std::string_view greeting, int source_port) {
    constexpr int kTries = 5;
    const link::Deadline deadline = link::in_seconds(link::kAnswer_s);
    for (int tries = 1;; ++tries) {
      link::Channel channel = link::Channel::connect(other_, name_, link::in_seconds(link::kAnswer_s),
                                                     {.source_port = source_port, .from = self_.address});
      try {
        link::greet(channel, self_.secret, greeting, link::in_seconds(link::kAnswer_s));
        return channel;
      } catch (const Error&) {  // closed, maybe to make room among unauthenticated
        if (tries == kTries || link::seconds_until(deadline) == 0) throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  void say(const std::string& line) { session_.send_line(line, link::in_seconds(link::kAnswer_s)); }

  void reach_back() {
    say(fmt::format("back {}", self_.port));
    result_.back.unreached = plain_text(session_.receive_line(link::in_seconds(link::kAnswer_s)), kMostWords);
  }

  void ping() {
    constexpr int kWarmUp = 5;
    std::vector<double> us;
    std::array<std::byte, kPing> ping{};
    say(fmt::format("ping {}", spec_.pings + kWarmUp));
    const link::PromptReceive promptly(session_);
    const link::Deadline enough = link::in_seconds(spec_.ping_s);
    const ThreadTimes before = thread_times(Sysroot(), ::getpid());
    int round_trips = 0;
    for (int i = 0; i < spec_.pings + kWarmUp; ++i) {
      const bool last = i + 1 == spec_.pings + kWarmUp || link::seconds_until(enough) == 0;
      ping[0] = std::byte(last ? 1 : 0);
      ++round_trips;
      const Time::time_point begin = Time::now();
      session_.send(ping, link::in_seconds(link::kAnswer_s));
      session_.receive(ping, link::in_seconds(link::kAnswer_s));
      if (i >= kWarmUp || last)
        us.push_back(std::chrono::duration<double, std::micro>(Time::now() - begin).count() / 2);
      if (last) break;
    }
    const double own_wait_s = longest_wait_s(before, thread_times(Sysroot(), ::getpid()));
    Fields words(session_.receive_line(link::in_seconds(link::kAnswer_s)));
    const double wait_us = (own_wait_s + words.number(0.0, 1e6)) * 1e6;
    result_.cpu_wait_us = wait_us / 2 / static_cast<double>(round_trips);
    std::ranges::sort(us);
    result_.least_us = us.front();
    result_.p50_us = us[us.size() / 2];
    result_.p99_us = us[us.size() * 99 / 100];
  }

  void stream_way(bool out, int first_port, Way& way) {
    std::vector<double>& gbps = way.flow_gbps;
    gbps.resize(static_cast<std::size_t>(spec_.flows));
    std::vector<std::exception_ptr> errors(gbps.size());
    std::vector<double> waits(gbps.size());
    const StreamLimits limits{
        .seconds = spec_.seconds, .bytes = spec_.bytes / spec_.flows, .max_gbps = spec_.max_gbps / spec_.flows};
    {
      std::vector<std::jthread> threads;
      for (std::size_t flow = 0; flow < gbps.size(); ++flow) {
        threads.emplace_back([&, flow] {
          try {
            link::Channel channel =
                open(flow_words(out ? "in" : "out", limits), first_port == 0 ? 0 : first_port + static_cast<int>(flow));
            const Streamed streamed =
                out ? send_stream(channel, limits, link::in_seconds(limits.seconds + 2 * link::kAnswer_s))
                    : receive_stream(channel, limits);
            if (out) channel.close_now();
            gbps[flow] = streamed.gbps;
            waits[flow] = streamed.cpu_wait;
          } catch (...) { errors[flow] = std::current_exception(); }
        });
      }
    }
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    way.gbps = 0;
    for (const double rate : gbps) way.gbps += rate;
    way.cpu_wait = std::ranges::max(waits);
  }
  void stream() {
    stream_ways();
    if (!spec_.back) return;
    say("waited");
    const double theirs = Fields(session_.receive_line(link::in_seconds(link::kAnswer_s))).number(0.0, 1.0);
    result_.back.cpu_wait = std::max(result_.back.cpu_wait, theirs);
  }
  void stream_ways() {
    if (!spec_.back || !spec_.both_at_once) {
      stream_way(true, source_port_, result_.there);
      if (spec_.back) stream_way(false, 0, result_.back);
      return;
    }
    std::exception_ptr error;
    {
      std::jthread back([&] {
        try {
          stream_way(false, 0, result_.back);
        } catch (...) { error = std::current_exception(); }
      });
      stream_way(true, source_port_, result_.there);
    }
    if (error) std::rethrow_exception(error);
  }

  void meet(Datagrams& datagrams, std::string_view what, std::string_view more) {
    std::random_device random;
    const std::uint64_t exchange = (std::uint64_t{random()} << 32) | random();
    say(fmt::format("{} {} {}{}", what, datagrams.port(), exchange, more));
    const int port = Fields(session_.receive_line(link::in_seconds(link::kAnswer_s))).number(1, 65535);
    datagrams.meet(other_.with_port(port), exchange);
  }
  void count_lost() {
    Datagrams datagrams(self_.address);
    meet(datagrams, "datagrams", fmt::format(" {} {}", spec_.datagrams, spec_.datagrams_s));
    const std::int64_t drops = backlog_drops(self_.root);
    const DatagramCounts ours = datagrams.exchange(spec_.datagrams, spec_.datagrams_s, kLinger_s, session_);
    const std::int64_t dropped = ours.dropped + backlog_drops(self_.root) - drops;
    Fields words(session_.receive_line(link::in_seconds(10 * spec_.datagrams_s + link::kAnswer_s)));
    constexpr std::int64_t kMost = 1 << 24;
    const DatagramCounts theirs{.sent = words.number<std::int64_t>(0, kMost),
                                .received = words.number<std::int64_t>(0, kMost),
                                .dropped = words.number<std::int64_t>(0, std::int64_t{1} << 62)};
    const auto fill = [](Way& way, std::int64_t sent, std::int64_t received, std::int64_t dropped_there) {
      way.sent = sent;
      way.dropped = std::min(dropped_there, std::max<std::int64_t>(0, sent - received));
      way.lost = std::max<std::int64_t>(0, sent - received - way.dropped);
    };
    fill(result_.there, ours.sent, theirs.received, theirs.dropped);
    fill(result_.back, theirs.sent, ours.received, dropped);
  }
  void try_sizes() {
    Datagrams datagrams(self_.address);
    meet(datagrams, "sizes", "");
    const PassingSize size = tell_sizes(session_, datagrams, mtu_of(self_.root, self_.interface));
    result_.there.mtu = size.mtu;
    result_.there.large_pass = size.passes || size.mtu == 0;
    take_sizes(session_, datagrams, result_.back);
  }

  const Self& self_;
  link::Address other_;
  const std::string& name_;
  const PairSpec& spec_;
  int source_port_;
  PairResult& result_;
  link::Channel session_;
};

}  // namespace

void serve_peer(link::Channel channel, const std::string& greeting, const Self& self) {
  if (greeting == kHello) return;
  if (greeting == "session") return Session(channel, self).serve();
  Fields words(greeting);
  if (words.next() != "flow") throw Error("net.peer", Blame::fabric, "an unknown greeting");
  const bool in = words.next() == "in";
  const StreamLimits limits{.seconds = words.seconds(),
                            .bytes = words.number<std::int64_t>(1, std::int64_t{1} << 50),
                            .max_gbps = words.number<double>(0, 1e6)};
  if (in) {
    receive_stream(channel, limits);
  } else {
    const Streamed sent = send_stream(channel, limits, link::in_seconds(limits.seconds + 2 * link::kAnswer_s));
    double most = self.sender_wait->load();
    while (sent.cpu_wait > most && !self.sender_wait->compare_exchange_weak(most, sent.cpu_wait)) {}
    channel.close_now();  // only now: then the other end asks for the wait
  }
}

PairResult test_pair(const Self& self, const link::Address& other, const std::string& name, const PairSpec& spec,
                     int source_port) {
  PairResult result;
  const Time::time_point begin = Time::now();
  const NodeCounts before = counts_of(self.root, self.interface);
  try {
    Test(self, other, name, spec, source_port, result).run();
  } catch (const Error& error) {
    result.error = plain_text(error.message(), kMostWords);
  } catch (const std::exception& error) {
    result.error = plain_text(error.what(), kMostWords);  // this node has no thread or memory left
  }
  result.counts_a = counts_of(self.root, self.interface) - before;  // whatever became of it
  result.seconds = std::chrono::duration<double>(Time::now() - begin).count();
  return result;
}

}  // namespace ms::net
