#include "link/acceptor.h"

#include <poll.h>

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "link/secret.h"

namespace ms::link {
namespace {

// Connections of a listener between two looks at those that are there: a flood does not keep an agent waiting.
constexpr int kAcceptedAtOnce = 64;
constexpr double kNoDescriptors_s = 0.05;  // until some may be free again

}  // namespace

Acceptor::Acceptor(std::vector<Listener> listeners, std::string secret, std::size_t most_unproven)
    : listeners_(std::move(listeners)), secret_(std::move(secret)), most_unproven_(most_unproven) {}

std::optional<Acceptor::Accepted> Acceptor::accept(Deadline deadline) {
  while (true) {
    while (!spoke_.empty()) {
      const Id id = spoke_.back();
      spoke_.pop_back();
      if (std::optional<Accepted> accepted = hear(id)) return accepted;
    }
    while (!waiting_.empty() && seconds_until(waiting_.begin()->second.deadline) == 0) turn_away(unproven_.oldest());
    if (seconds_until(deadline) == 0) return std::nullopt;
    take_new();
    wait(deadline);
  }
}

void Acceptor::wait(Deadline deadline) {
  std::vector<pollfd> polls;
  std::vector<Id> ids;
  for (const Listener& listener : listeners_) polls.push_back({.fd = listener.fd(), .events = POLLIN, .revents = 0});
  for (const auto& [id, waiting] : waiting_) {
    polls.push_back({.fd = waiting.channel.fd(), .events = POLLIN, .revents = 0});
    ids.push_back(id);
  }
  if (!waiting_.empty()) deadline = std::min(deadline, waiting_.begin()->second.deadline);
  ::poll(polls.data(), polls.size(), static_cast<int>(std::ceil(std::min(seconds_until(deadline), 3600.0) * 1e3)));
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (polls[listeners_.size() + i].revents != 0) spoke_.push_back(ids[i]);
}

void Acceptor::take_new() {
  for (Listener& listener : listeners_) {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      std::optional<Channel> channel = listener.accept_now();
      if (!channel) {
        const bool no_descriptors = errno == EMFILE || errno == ENFILE;
        if (no_descriptors && unproven_.empty()) ::poll(nullptr, 0, static_cast<int>(kNoDescriptors_s * 1e3));
        if (no_descriptors && !unproven_.empty()) evict();
        break;
      }
      if (unproven_.size() >= most_unproven_) evict();
      ++unproven_so_far_;
      const Id id = next_id_++;
      unproven_.add(id, peer_address(channel->fd()).host());
      Waiting& newest = waiting_[id];
      newest = {.channel = *std::move(channel), .nonce = {}, .deadline = in_seconds(kAnswer_s)};
      try {
        newest.nonce = challenge(newest.channel, in_seconds(0));  // a new connection has room for a line
      } catch (const Error&) { turn_away(id); }
    }
  }
}

std::optional<Acceptor::Accepted> Acceptor::hear(Id id) {
  Waiting& waiting = waiting_.at(id);
  try {
    const std::optional<std::string> line = waiting.channel.poll_line(kMaxGreeting);
    if (!line) return std::nullopt;
    Accepted accepted{.channel = {}, .greeting = admit(waiting.channel, secret_, waiting.nonce, *line, in_seconds(0))};
    accepted.channel = std::move(waiting.channel);
    --unproven_so_far_;
    turn_away(id);
    return accepted;
  } catch (const Error&) {
    turn_away(id);
    return std::nullopt;
  }
}

void Acceptor::turn_away(Id id) {
  waiting_.at(id).channel.close_now();
  waiting_.erase(id);
  unproven_.remove(id);
}

void Acceptor::evict() {
  ++evicted_;
  turn_away(unproven_.to_evict());
}

std::size_t raise_open_files(std::size_t wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur;
}

}  // namespace ms::link
