// Accepts connections and returns those that prove the secret. Unauthenticated connections cost neither a thread nor a
// wait: one thread polls all connections that have not proved it yet. Their number is bounded (link/unproven.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "link/channel.h"
#include "link/unproven.h"

namespace ms::link {

// Connections that have not proved the secret. Evicted: those that had to make place; an agent may have been among
// them.
struct Unauthenticated {
  std::int64_t connections = 0;
  std::int64_t evicted = 0;
};

class Acceptor {
 public:
  static constexpr std::size_t kMostUnproven = 1024;
  struct Accepted {
    Channel channel;
    std::string greeting;
  };

  // `most_unproven`: connections at a time that have proved nothing yet; each takes an open file.
  Acceptor(std::vector<Listener> listeners, std::string secret, std::size_t most_unproven = kMostUnproven);

  // nullopt where nobody proved the secret in time.
  std::optional<Accepted> accept(Deadline deadline);
  Unauthenticated unauthenticated() const {
    return {.connections = unproven_so_far_, .evicted = evicted_};
  }  // from any thread

 private:
  using Id = Unproven::Id;
  struct Waiting {
    Channel channel;
    std::string nonce;
    Deadline deadline;
  };

  void take_new();
  void wait(Deadline deadline);  // and notes who has sent something
  std::optional<Accepted> hear(Id id);
  void turn_away(Id id);
  void evict();

  std::vector<Listener> listeners_;
  std::string secret_;
  std::size_t most_unproven_;
  std::map<Id, Waiting> waiting_;
  Unproven unproven_;  // the same connections
  Id next_id_ = 0;
  std::vector<Id> spoke_;
  std::atomic<std::int64_t> unproven_so_far_ = 0, evicted_ = 0;
};

// Raises the limit of open files towards `wanted`, as far as that is allowed. Returns the limit.
std::size_t raise_open_files(std::size_t wanted);

}  // namespace ms::link
