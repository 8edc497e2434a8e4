// The communicator over MPI, and what it asks of the thread that owns MPI. No MPI type appears here.
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
  // From any thread. When it fails, cause() says why.
  virtual void post(std::shared_ptr<Exchange> exchange) = 0;
  // From any thread: of an exchange that others carry and settle, when it begins. Its deadline is this service's, and
  // when that passes, ranks are asked as they are about any other.
  virtual void watch(std::shared_ptr<Exchange> exchange) = 0;
  virtual void abort(const Error& error) noexcept = 0;
  virtual const FirstCause& cause() const = 0;
  virtual IssueCounts& issue_counts() = 0;
};

// Communicator by direct exchange: every sum is made by one rank, in the order of the group.
std::unique_ptr<Communicator> make_exchange_communicator(std::shared_ptr<ExchangeService> service, const Group& group,
                                                         tensor::Stream& stream);

}  // namespace ms::comm
