// The communicator over MPI, and the interface of the service thread that it uses. No MPI type appears here.
#pragma once

#include <memory>

#include "comm/exchange.h"
#include "comm/first_cause.h"
#include "comm/issue_counts.h"

namespace ms::comm {

class ExchangeService {
 public:
  virtual ~ExchangeService() = default;
  virtual int rank() const = 0;
  // Starts an exchange. From any thread. When the exchange fails, cause() has the reason.
  virtual void post(std::shared_ptr<Exchange> exchange) = 0;
  // Monitors the deadline of an exchange that another backend carries and settles; called when the exchange begins.
  // From any thread. When the deadline passes, ranks are asked as about any other exchange.
  virtual void watch(std::shared_ptr<Exchange> exchange) = 0;
  virtual void abort(const Error& error) noexcept = 0;
  virtual FirstCause& cause() = 0;
  virtual IssueCounts& issue_counts() = 0;
};

// Creates a communicator that exchanges data directly between members: each element is reduced by one rank, in the
// order of the group.
std::unique_ptr<Communicator> make_exchange_communicator(std::shared_ptr<ExchangeService> service, const Group& group,
                                                         tensor::Stream& stream);

}  // namespace ms::comm
