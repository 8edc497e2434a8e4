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
      const Place place = spoke_.back();
      spoke_.pop_back();
      if (std::optional<Accepted> accepted = hear(place)) return accepted;
    }
    while (!unproven_.empty() && seconds_until(unproven_.front().deadline) == 0) turn_away(unproven_.begin());
    if (seconds_until(deadline) == 0) return std::nullopt;
    take_new();
    wait(deadline);
  }
}

void Acceptor::wait(Deadline deadline) {
  std::vector<pollfd> polls;
  std::vector<Place> places;
  for (const Listener& listener : listeners_) polls.push_back({.fd = listener.fd(), .events = POLLIN, .revents = 0});
  for (Place place = unproven_.begin(); place != unproven_.end(); ++place) {
    polls.push_back({.fd = place->channel.fd(), .events = POLLIN, .revents = 0});
    places.push_back(place);
  }
  if (!unproven_.empty()) deadline = std::min(deadline, unproven_.front().deadline);
  ::poll(polls.data(), polls.size(), static_cast<int>(std::ceil(std::min(seconds_until(deadline), 3600.0) * 1e3)));
  for (std::size_t i = 0; i < places.size(); ++i)
    if (polls[listeners_.size() + i].revents != 0) spoke_.push_back(places[i]);
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
      const std::string host = peer_address(channel->fd()).host();
      ++unproven_so_far_;
      ++by_host_[host];
      unproven_.push_back(
          {.channel = *std::move(channel), .host = host, .nonce = {}, .deadline = in_seconds(kAnswer_s)});
      const Place newest = std::prev(unproven_.end());
      try {
        newest->nonce = challenge(newest->channel, in_seconds(0));  // a new connection has room for a line
      } catch (const Error&) { turn_away(newest); }
    }
  }
}

std::optional<Acceptor::Accepted> Acceptor::hear(Place place) {
  try {
    const std::optional<std::string> line = place->channel.poll_line(kMaxGreeting);
    if (!line) return std::nullopt;
    Accepted accepted{.channel = {}, .greeting = admit(place->channel, secret_, place->nonce, *line, in_seconds(0))};
    accepted.channel = std::move(place->channel);
    --unproven_so_far_;
    remove(place);
    return accepted;
  } catch (const Error&) {
    turn_away(place);
    return std::nullopt;
  }
}

void Acceptor::remove(Place place) {
  if (const auto host = by_host_.find(place->host); --host->second == 0) by_host_.erase(host);
  unproven_.erase(place);
}

void Acceptor::turn_away(Place place) {
  place->channel.close_now();
  remove(place);
}

void Acceptor::evict() {
  const auto most = std::ranges::max_element(by_host_, {}, [](const auto& host) { return host.second; });
  ++evicted_;
  turn_away(std::ranges::find(unproven_, most->first, &Unproven::host));
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
