// Which nodes take a connection: real sockets of this machine's loopback.
#include "slurm/reach.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/handle.h"

namespace ms::slurm {
namespace {

// A socket of 127.0.0.1 with its port; it listens, or only holds the port.
struct Socket {
  explicit Socket(bool listens) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    EXPECT_EQ(listens ? ::listen(fd.get(), 512) : 0, 0);
    port = ntohs(address.sin_port);
  }
  UniqueFd fd;
  int port = 0;
};

Node node(const std::string& name, const std::string& address, int port) {
  Node node;
  node.name = name;
  node.address = address;
  node.port = port;
  return node;
}

TEST(Reach, NamesThoseThatTakeNoConnection) {
  const Socket alive(true), dead(false);
  const std::vector<Node> nodes = {node("alive", "127.0.0.1", alive.port), node("dead", "127.0.0.1", dead.port),
                                   node("default", "127.0.0.1", 0), node("unknown", "no.such.host.invalid", 1)};
  EXPECT_EQ(silent_nodes(nodes, alive.port, 5), std::vector<std::string>{"dead"});
  EXPECT_EQ(silent_nodes(nodes, dead.port, 5), (std::vector<std::string>{"dead", "default"}));
  EXPECT_TRUE(silent_nodes({}, 1, 5).empty());
}

TEST(Reach, ManyAtATime) {
  const Socket alive(true);
  const std::vector<Node> nodes(300, node("n", "127.0.0.1", alive.port));
  EXPECT_TRUE(silent_nodes(nodes, 1, 5).empty());
}

}  // namespace
}  // namespace ms::slurm
