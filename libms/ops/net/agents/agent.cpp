#include "net/agents/agent.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "link/acceptor.h"
#include "link/secret.h"
#include "net/agents/peer.h"
#include "net/measure/counters.h"
#include "net/measure/fabric_config.h"
#include "net/measure/facts_json.h"
#include "net/measure/interface.h"
#include "slurm/job_env.h"

namespace ms::net {
namespace {

constexpr double kWelcome_s = 5;
constexpr double kForever_s = 1e8;       // a coordinator that is gone is found out by its connection
constexpr std::size_t kMostPeers = 256;  // served at a time
constexpr std::size_t kMostOrders = 64;  // at a time

// A connection to the coordinator that knows who we are. `introduce` tells, once our own address is known.
link::Channel reach(const Invitation& invitation, double patience_s,
                    const std::function<std::string(const link::Channel&)>& introduce) {
  const link::Deadline deadline = link::in_seconds(patience_s);
  std::string why = "the invitation names no address";
  while (true) {
    for (const std::string& text : invitation.addresses) {
      const std::optional<link::Address> address = link::parse_address(text);
      if (!address) continue;
      try {
        link::Channel channel =
            link::Channel::connect(*address, "the coordinator", std::min(deadline, link::in_seconds(2)));
        link::greet(channel, invitation.secret, introduce(channel), std::min(deadline, link::in_seconds(kWelcome_s)));
        return channel;
      } catch (const Error& error) {
        if (error.blame() == Blame::node) throw;
        why = error.message();
      }
    }
    if (link::seconds_until(deadline) == 0) throw Error("net.peer", Blame::fabric, why);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// Threads that come and go: each does one thing and is then joined by whoever adds the next.
class Threads {
 public:
  explicit Threads(std::size_t most) : most_(most) {}
  // False where there are too many, or the system gives no more.
  template <class F>
  bool add(F&& work) {
    std::lock_guard lock(mutex_);
    running_.remove_if([](const Running& running) { return running.done.load(); });
    if (running_.size() >= most_) return false;
    Running& running = running_.emplace_back();
    try {
      running.thread = std::jthread([&running, work = std::forward<F>(work)]() mutable {
        try {
          work();
        } catch (const std::exception& error) { log::debug("net", "{}", plain_text(error.what(), 200)); }
        running.done = true;
      });
    } catch (const std::system_error& error) {
      log::warn("net", "no thread: {}", error.what());
      running_.pop_back();
      return false;
    }
    return true;
  }

 private:
  struct Running {
    std::atomic<bool> done = false;
    std::jthread thread;
  };
  std::size_t most_;
  std::mutex mutex_;
  std::list<Running> running_;
};

}  // namespace

void run_agent(const AgentOptions& options) {
  const Invitation& invitation = options.invitation;
  Self self{.secret = invitation.secret, .address = {}, .interface = {}, .root = Sysroot(options.root)};
  std::optional<link::Listener> listening;
  link::Channel control = reach(invitation, options.patience_s, [&](const link::Channel& channel) {
    self.address = link::local_address(channel.fd()).with_port(0);
    if (!invitation.interface.empty()) {
      const std::vector<Interface> fitting = interfaces(invitation.interface);
      if (fitting.empty()) {
        throw Error("net.interface", Blame::node,
                    fmt::format("{} has no interface {}* that is up", slurm::this_node(), invitation.interface));
      }
      self.address = fitting.front().address;
    }
    self.interface = interface_of(self.address);
    listening.emplace(self.address);
    self.port = listening->port();
    Member me{.node = invitation.node.empty() ? slurm::this_node() : invitation.node,
              .address = self.address.with_port(listening->port()),
              .interface = self.interface,
              .mtu = mtu_of(self.root, self.interface)};
    if (invitation.rdma) {
      self.rdma = rdma_port(gather_facts(self.root, environ), invitation.hcas);
      me.link_gbps = self.rdma ? self.rdma->gbps : 0;
      me.no_rdma = self.rdma ? why_no_perftest() : "no RDMA port is active";
      return to_json(me);
    }
    const std::int64_t speed = self.root.read_int("/sys/class/net/" + self.interface + "/speed").value_or(0);  // Mbit/s
    me.link_gbps = speed > 0 ? static_cast<double>(speed) * 1e-3 : 0;
    return to_json(me);
  });

  std::mutex answering;  // of those who send to the coordinator
  CounterReader counters(self.root);
  Threads orders(kMostOrders), peers(kMostPeers);
  std::vector<link::Listener> listeners;
  listeners.push_back(*std::move(listening));
  const std::size_t files = link::raise_open_files(4 * link::Acceptor::kMostUnproven);
  link::Acceptor acceptor(std::move(listeners), self.secret,
                          std::clamp<std::size_t>(files / 4, 16, link::Acceptor::kMostUnproven));
  std::jthread serving([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::optional<link::Acceptor::Accepted> accepted = acceptor.accept(link::in_seconds(0.2));
      if (!accepted) continue;
      peers.add([&self, peer = std::make_shared<link::Acceptor::Accepted>(*std::move(accepted))] {
        serve_peer(std::move(peer->channel), peer->greeting, self);
      });
    }
  });
  while (true) {
    std::string line;
    try {
      line = control.receive_line(link::in_seconds(kForever_s));
    } catch (const Error&) { return; }  // it has what it wanted
    const TestOrder order = read_order(line);
    if (!order.ask.empty()) {
      TestAnswer answer{.id = order.id};
      if (order.ask == "counters") {
        answer.text = to_json(counters.read(SystemClock().wall_s()));
      } else if (order.ask == "unauthenticated") {
        answer.text = to_json(acceptor.unauthenticated());
      } else {
        answer.text = to_json(gather_facts(self.root, environ));
      }
      std::lock_guard lock(answering);
      control.send_line(to_json(answer), link::in_seconds(kWelcome_s));
      continue;
    }
    const bool taken = orders.add([&, order] {
      const std::optional<link::Address> other = link::parse_address(order.address);
      TestAnswer answer{.id = order.id, .result = {}};
      if (other) {
        answer.result = test_pair(self, *other, order.node, order.spec, order.source_port);
      } else {
        answer.result.error = fmt::format("'{}' is no address", order.address);
      }
      std::lock_guard lock(answering);
      control.send_line(to_json(answer), link::in_seconds(kWelcome_s));
    });
    if (!taken) {
      TestAnswer answer{.id = order.id};
      answer.result.error = fmt::format("{} has too much to do", slurm::this_node());
      std::lock_guard lock(answering);
      control.send_line(to_json(answer), link::in_seconds(kWelcome_s));
    }
  }
}

}  // namespace ms::net
