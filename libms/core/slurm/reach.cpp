#include "slurm/reach.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/handle.h"

namespace ms::slurm {
namespace {

// A connection that has begun; empty: the node cannot be asked. `refused`: it is answered already, with no.
UniqueFd begin_connect(const Node& node, int port, bool& refused) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string& name = node.address.empty() ? node.name : node.address;
  if (::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) refused = true;
  return fd;
}

}  // namespace

std::vector<std::string> silent_nodes(const std::vector<Node>& nodes, int default_port, double patience_s) {
  constexpr std::size_t kAtATime = 256;
  std::vector<std::string> silent;
  for (std::size_t first = 0; first < nodes.size(); first += kAtATime) {
    std::vector<UniqueFd> connections;
    std::vector<pollfd> polls;
    std::vector<std::string> names;
    for (std::size_t i = first; i < std::min(nodes.size(), first + kAtATime); ++i) {
      bool refused = false;
      UniqueFd fd = begin_connect(nodes[i], nodes[i].port > 0 ? nodes[i].port : default_port, refused);
      if (!fd) continue;
      if (refused) {
        silent.push_back(nodes[i].name);
        continue;
      }
      polls.push_back({.fd = fd.get(), .events = POLLOUT, .revents = 0});
      names.push_back(nodes[i].name);
      connections.push_back(std::move(fd));
    }
    std::size_t open = polls.size();
    for (const double end_s = monotonic_s() + patience_s; open > 0 && monotonic_s() < end_s;) {
      if (::poll(polls.data(), polls.size(), static_cast<int>(std::ceil((end_s - monotonic_s()) * 1e3))) <= 0) continue;
      for (std::size_t i = 0; i < polls.size(); ++i) {
        if (polls[i].fd < 0 || polls[i].revents == 0) continue;
        int error = 0;
        socklen_t size = sizeof error;
        ::getsockopt(polls[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) silent.push_back(names[i]);
        polls[i].fd = -1;  // poll() leaves it out from here on
        --open;
      }
    }
    for (std::size_t i = 0; i < polls.size(); ++i)
      if (polls[i].fd >= 0) silent.push_back(names[i]);
  }
  return silent;
}

std::vector<std::string> silent_nodes(const Commands& slurm, const Config& config,
                                      const std::vector<std::string>& names) {
  constexpr double kConnect_s = 2;
  const std::set<std::string> wanted(names.begin(), names.end());
  std::vector<Node> nodes = slurm.nodes();
  std::erase_if(nodes, [&](const Node& node) { return !wanted.contains(node.name); });
  return silent_nodes(nodes, number_of(config, "SlurmdPort", 6818), kConnect_s);
}

}  // namespace ms::slurm
