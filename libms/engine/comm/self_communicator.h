// The communicator of a group with one rank.
#pragma once

#include "comm/communicator.h"

namespace ms::comm {

// Communicator itself handles groups of one rank, on a stream of any device; do_issue() is never called.
class SelfCommunicator final : public Communicator {
 public:
  using Communicator::Communicator;

 protected:
  void do_issue(const Request& request) override {
    MS_ASSERT(false, "{} issued to a group of one rank", describe(request, group()));
  }
};

}  // namespace ms::comm
