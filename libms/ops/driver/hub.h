// The driver's port: accepts connections, has both ends prove who they are, and hands on the lines of those who did.
// Unauthenticated peers cost little: at most `most_unproven` of them at a time, each for kProof_s until it has shown a
// credential. Which one makes room for another: link/unproven.h. A credential that was shown waits its turn, however
// busy MUNGE is: if its owner were dropped, it would come again with another one. Never blocks. For one thread.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/credential.h"
#include "driver/prover.h"
#include "driver/wire.h"
#include "link/channel.h"
#include "link/unproven.h"

namespace ms::driver {

class Hub {
 public:
  static constexpr std::size_t kLeastUnproven = 256;
  static constexpr double kProof_s = 10;

  using Id = link::Unproven::Id;
  enum class Kind { joined, line, gone };
  struct Event {
    Kind kind;
    Id id;
    std::string role, node;  // of the connection
    std::string text;        // line: what it said; gone: why
  };

  // Listens on `port` of all addresses; 0, or where it is taken: a free one. `most_unproven`: above the number of those
  // who may come at the same time. `credentials` and `clock` outlive it.
  Hub(int port, const Credentials& credentials, Clock& clock, std::size_t most_unproven = kLeastUnproven);

  int port() const { return listener_.port(); }
  // Waits for at most `seconds` for anything to happen, also at the descriptors of `others`, and returns what did.
  std::vector<Event> wait(double seconds, const std::vector<int>& others = {});
  // Drops a connection that does not take what it is sent; its end is an event of the next wait().
  void send(Id id, std::string_view line);
  void close(Id id);
  std::optional<link::Address> address(Id id) const;  // of the other end, while it is there
  // Counts the connections that proved nothing since the last call; `example`: what was wrong with one of them.
  std::size_t take_rejected(std::string& example);

 private:
  struct Peer {
    link::Channel channel;
    std::string nonce;  // ours, until the other end has proved itself
    double since_s = 0;
    std::string key;  // of the lines that follow the proof
    bool proving = false, proved = false;
    std::string role, node;
    std::string unsent;
  };

  void accept_all();
  void listen_to(Id id, std::vector<Event>& events);
  void prove(Id id, Peer& peer, const std::string& line);
  void take_proofs(std::vector<Event>& events);
  void drop(Id id, const std::string& why, std::vector<Event>& events);
  void flush(Peer& peer);
  void watch_writes(Id id, const Peer& peer);
  void reject(Id id, const std::string& why);
  std::size_t unproven() const { return silent_.size() + proving_.size(); }

  Prover prover_;
  Clock& clock_;
  const std::size_t most_unproven_;
  link::Listener listener_;
  UniqueFd epoll_;
  std::vector<epoll_event> ready_;
  std::map<Id, Peer> peers_;
  // Those who have proved nothing: who have shown no credential, and whose is looked at.
  link::Unproven silent_, proving_;
  std::vector<Event> pending_;
  Id next_id_ = 1;
  std::size_t rejected_ = 0;
  std::string rejected_example_;
};

// The other end: connects, proves itself, and makes sure that it talks to a driver of the same user. Throws
// Error("net.peer"), Error("driver.unauthenticated", peer). `answer_s`: beyond the deadline, for a driver that has the
// credentials of many others to look at first.
link::Channel join(const link::Address& driver, const std::string& role, const std::string& node,
                   const Credentials& credentials, link::Deadline deadline, std::chrono::seconds answer_s = {});

}  // namespace ms::driver
