// The communicator of one rank.
#pragma once

#include "comm/communicator.h"

namespace ms::comm {

// Of one rank: Communicator itself does what there is to do, on a stream of any device.
class LonelyCommunicator final : public Communicator {
 public:
  using Communicator::Communicator;

 protected:
  void do_issue(const Request& request) override { MS_ASSERT(false, "{} meets nobody", describe(request, group())); }
};

}  // namespace ms::comm
