#include "driver/prober.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace ms::driver {
namespace {

constexpr int kUnusedPort = 1;  // tcpmux: almost always closed, so the kernel refuses; a service would answer, too

}  // namespace

void Prober::ask(const std::string& node, const link::Address& address, double now_s) {
  if (open_.contains(node)) return;
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return;
  const link::Address to = address.with_port(kUnusedPort);
  if (connect(fd.get(), to.get(), to.length) == 0 || errno == ECONNREFUSED) {
    answered_.insert(node);
  } else if (errno == EINPROGRESS) {
    open_[node] = {.fd = std::move(fd), .since_s = now_s};
  }
}

std::set<std::string> Prober::answers(double now_s, double patience_s) {
  for (auto question = open_.begin(); question != open_.end();) {
    pollfd poll{.fd = question->second.fd.get(), .events = POLLOUT, .revents = 0};
    const bool ended = ::poll(&poll, 1, 0) > 0;
    if (ended) {
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(poll.fd, SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0 || error == ECONNREFUSED) answered_.insert(question->first);
    }
    question = ended || now_s - question->second.since_s > patience_s ? open_.erase(question) : std::next(question);
  }
  return std::exchange(answered_, {});
}

}  // namespace ms::driver
