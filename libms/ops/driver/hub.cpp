#include "driver/hub.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <span>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "link/secret.h"

namespace ms::driver {
namespace {

constexpr std::size_t kMostUnsent_bytes = std::size_t{4} << 20;
constexpr std::size_t kOthers = 16;  // descriptors that are no connections
constexpr Hub::Id kListenerId = 0, kOtherId = ~Hub::Id{0}, kProverId = kOtherId - 1;

link::Address every_address(int port) { return link::parse_address("0.0.0.0:0")->with_port(port); }

// The port of a driver that was killed may be somebody else's by now.
link::Listener listener_on(int port) {
  try {
    return link::Listener(every_address(port));
  } catch (const Error& error) {
    if (port == 0) throw;
    log::warn("driver", "{}: the agents are started again, for another port", error.message());
    return link::Listener(every_address(0));
  }
}

void watch_fd(int epoll, int operation, int fd, Hub::Id id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll, operation, fd, &event) != 0 && errno != EEXIST) {
    throw Error("driver.socket", Blame::node, fmt::format("cannot watch a connection: {}", errno_text(errno)));
  }
}

}  // namespace

Hub::Hub(int port, const Credentials& credentials, Clock& clock, std::size_t most_unproven)
    : prover_(credentials),
      clock_(clock),
      most_unproven_(most_unproven),
      listener_(listener_on(port)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw Error("driver.socket", Blame::node, fmt::format("no epoll: {}", errno_text(errno)));
  watch_fd(epoll_.get(), EPOLL_CTL_ADD, listener_.fd(), kListenerId, EPOLLIN);
  watch_fd(epoll_.get(), EPOLL_CTL_ADD, prover_.fd(), kProverId, EPOLLIN);
}

std::vector<Hub::Event> Hub::wait(double seconds, const std::vector<int>& others) {
  for (const int fd : others) watch_fd(epoll_.get(), EPOLL_CTL_ADD, fd, kOtherId, EPOLLIN);
  // Reads all connections that have data: no agent may seem silent because others come first.
  if (ready_.size() < peers_.size() + kOthers) ready_.resize(2 * (peers_.size() + kOthers));
  if (!pending_.empty()) seconds = 0;
  const int count = epoll_wait(epoll_.get(), ready_.data(), static_cast<int>(ready_.size()),
                               static_cast<int>(std::ceil(seconds * 1e3)));
  std::vector<Event> events = std::exchange(pending_, {});
  for (int i = 0; i < count; ++i) {
    const Id id = ready_[static_cast<std::size_t>(i)].data.u64;
    if (id == kListenerId) {
      accept_all();
    } else if (id == kProverId) {
      take_proofs(events);
    } else if (const auto found = peers_.find(id); found != peers_.end()) {
      if ((ready_[static_cast<std::size_t>(i)].events & EPOLLOUT) != 0) {
        try {
          flush(found->second);
          watch_writes(id, found->second);
        } catch (const Error& error) {
          drop(id, error.message(), events);
          continue;
        }
      }
      listen_to(id, events);
    }
  }
  while (!silent_.empty() && clock_.now_s() - peers_.at(silent_.oldest()).since_s > kProof_s) {
    reject(silent_.oldest(), "said nothing in time");
  }
  for (const int fd : others) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  return events;
}

void Hub::accept_all() {
  // Some at a time: a flood must not keep us from those who are here.
  for (int i = 0; i < 64; ++i) {
    std::optional<link::Channel> channel = listener_.accept_now();
    if (!channel) return;
    if (unproven() >= most_unproven_) {
      reject(silent_.empty() ? proving_.to_evict() : silent_.to_evict(), "made room for others");
    }
    const Id id = next_id_++;
    Peer& peer = peers_[id];
    peer.channel = *std::move(channel);
    peer.nonce = link::new_secret();
    peer.since_s = clock_.now_s();
    silent_.add(id, link::peer_address(peer.channel.fd()).host());
    try {
      watch_fd(epoll_.get(), EPOLL_CTL_ADD, peer.channel.fd(), id, EPOLLIN);
      peer.unsent = Json{{"nonce", peer.nonce}}.dump() + "\n";
      flush(peer);
    } catch (const Error& error) { reject(id, error.message()); }
  }
}

void Hub::listen_to(Id id, std::vector<Event>& events) {
  Peer& peer = peers_.at(id);
  if (peer.proving) return reject(id, "went away before it had proved itself");
  try {
    while (true) {
      const std::optional<std::string> line = peer.channel.poll_line(peer.proved ? kMaxLine_bytes : kMaxGreeting_bytes);
      if (!line) return;
      if (peer.proved) {
        events.push_back({Kind::line, id, peer.role, peer.node, *line});
      } else {
        return prove(id, peer, *line);
      }
    }
  } catch (const Error& error) { drop(id, error.message(), events); }
}

// It is not listened to until there is an answer: an unauthenticated peer may send nothing more.
void Hub::prove(Id id, Peer& peer, const std::string& line) {
  const Greeting greeting = read_greeting(line);
  peer.proving = true;
  proving_.add(id, silent_.host(id));
  silent_.remove(id);
  peer.role = greeting.role;
  peer.node = greeting.node;
  watch_fd(epoll_.get(), EPOLL_CTL_MOD, peer.channel.fd(), id, 0);
  peer.key = link::new_secret();
  const link::Address ours = link::local_address(peer.channel.fd());
  prover_.ask({.id = id,
               .credential = greeting.credential,
               .expected = joiner_text(greeting, peer.nonce, ours),
               .reply = driver_text(greeting.nonce, ours) + peer.key});
}

void Hub::take_proofs(std::vector<Event>& events) {
  for (const Prover::Answer& answer : prover_.take()) {
    const auto found = peers_.find(answer.id);
    if (found == peers_.end()) continue;
    if (!answer.reply) {
      reject(answer.id, answer.why);
      continue;
    }
    Peer& peer = found->second;
    peer.proving = false;
    peer.proved = true;
    proving_.remove(answer.id);
    peer.channel.set_peer(peer.node.empty() ? peer.role : peer.node);
    events.push_back({Kind::joined, answer.id, peer.role, peer.node, ""});
    send(answer.id, Json{{"credential", *answer.reply}}.dump());
    if (!peers_.contains(answer.id)) continue;
    peer.channel.protect(peer.key, link::Channel::End::accepted);
    listen_to(answer.id, events);  // what it said meanwhile
  }
}

void Hub::flush(Peer& peer) {
  while (!peer.unsent.empty()) {
    const std::size_t sent = peer.channel.send_some(std::as_bytes(std::span(peer.unsent)));
    if (sent == 0) return;
    peer.unsent.erase(0, sent);
  }
}

void Hub::watch_writes(Id id, const Peer& peer) {
  watch_fd(epoll_.get(), EPOLL_CTL_MOD, peer.channel.fd(), id,
           peer.unsent.empty() ? std::uint32_t{EPOLLIN} : std::uint32_t{EPOLLIN | EPOLLOUT});
}

void Hub::send(Id id, std::string_view line) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  peer.unsent += peer.channel.framed(line);
  try {
    flush(peer);
    if (peer.unsent.size() > kMostUnsent_bytes) {
      throw Error("net.peer", Blame::fabric, fmt::format("{} no longer accepts data", peer.channel.peer()));
    }
    watch_writes(id, peer);
  } catch (const Error& error) { drop(id, error.message(), pending_); }
}

void Hub::close(Id id) { peers_.erase(id); }

std::optional<link::Address> Hub::address(Id id) const {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return std::nullopt;
  return link::peer_address(found->second.channel.fd());
}

void Hub::drop(Id id, const std::string& why, std::vector<Event>& events) {
  const auto found = peers_.find(id);
  if (!found->second.proved) return reject(id, why);
  events.push_back({Kind::gone, id, found->second.role, found->second.node, why});
  peers_.erase(found);
}

void Hub::reject(Id id, const std::string& why) {
  prover_.forget(id);
  rejected_example_ = fmt::format("{}: {}", peers_.at(id).channel.peer(), plain_text(why, 200));
  ++rejected_;
  silent_.remove(id);
  proving_.remove(id);
  peers_.at(id).channel.close_now();
  peers_.erase(id);
}

std::size_t Hub::take_rejected(std::string& example) {
  example = rejected_example_;
  return std::exchange(rejected_, 0);
}

link::Channel join(const link::Address& driver, const std::string& role, const std::string& node,
                   const Credentials& credentials, link::Deadline deadline, std::chrono::seconds answer_s) {
  link::Channel channel = link::Channel::connect(driver, "the driver", deadline);
  const auto member = [&](const char* key) {
    const std::optional<Json> json = Json::try_parse(channel.receive_line(deadline, kMaxGreeting_bytes));
    const Json* value = json ? json->find(key) : nullptr;
    if (value == nullptr || !value->is_string()) {
      throw Error("driver.unauthenticated", Blame::peer, fmt::format("{} is not a driver", driver.str()));
    }
    return value->text();
  };
  const std::string nonce = member("nonce");
  Greeting greeting{.role = role, .node = node, .nonce = link::new_secret(), .credential = ""};
  const link::Address reached = link::peer_address(channel.fd());
  greeting.credential = credentials.seal(joiner_text(greeting, nonce, reached));
  channel.send_line(to_json(greeting), deadline);
  deadline += answer_s;
  std::string why = "it seals another text";
  const std::optional<std::string> sealed = credentials.open(member("credential"), why);
  const std::string expected = driver_text(greeting.nonce, reached);
  if (!sealed || !sealed->starts_with(expected)) {
    throw Error("driver.unauthenticated", Blame::peer,
                fmt::format("{} is not the driver of this job: {}", driver.str(), why));
  }
  channel.protect(sealed->substr(expected.size()), link::Channel::End::connected);
  return channel;
}

}  // namespace ms::driver
