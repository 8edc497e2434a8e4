// SimProgram: the work that one rank issues in a simulation. Each stream has a list of items that run one after the
// other. SimDevice and the simulated communicators write it, and comm/sim_solve.h solves it in virtual time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/op_cost.h"
#include "tensor/stream.h"
#include "trace/recorder.h"

namespace ms::tensor {

struct SimItem {
  enum class Kind : std::uint8_t { op, comm_op, record, wait, begin_section, end_section };
  Kind kind = Kind::op;
  std::uint32_t index =
      0;  // of the op in SimProgram::ops; of the communication operation, as SimWorld numbers them; of the event
  trace::Ticket ticket = trace::kNoTicket;
};

struct SimProgram {
  struct Stream {
    std::string name;
    StreamKind kind = StreamKind::compute;
    std::vector<SimItem> items;
  };
  std::vector<Stream> streams;
  std::vector<OpCost> ops;   // each different one once
  std::uint32_t events = 0;  // that were recorded: their indices are below this
};

}  // namespace ms::tensor
