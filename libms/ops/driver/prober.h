// Asks whether a node's kernel is there, without anything that runs on it: a connection to a port where no process
// listens is refused at once by a kernel that lives, and not at all by one that is gone. Never blocks.
#pragma once

#include <map>
#include <set>
#include <string>

#include "link/channel.h"

namespace ms::driver {

class Prober {
 public:
  // Asks, unless a question to the node is still open.
  void ask(const std::string& node, const link::Address& address, double now_s);
  // The nodes that answered since the last call. A question is given up after `patience_s`.
  std::set<std::string> answers(double now_s, double patience_s = 1);

 private:
  struct Question {
    UniqueFd fd;
    double since_s = 0;
  };
  std::map<std::string, Question> open_;
  std::set<std::string> answered_;
};

}  // namespace ms::driver
