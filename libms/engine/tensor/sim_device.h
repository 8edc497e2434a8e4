// The simulated device computes nothing. What is submitted becomes a SimProgram, events are always ready, and memory is
// addresses that must not be accessed (host memory is real: the engine writes its input there, and reads zeros).
#pragma once

#include <memory>
#include <unordered_map>

#include "tensor/sim_program.h"
#include "tensor/stream.h"

namespace ms::tensor {

class SimStream;

class SimDevice final : public Device {
 public:
  std::string_view kind() const override { return "sim"; }
  std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) override;
  std::unique_ptr<Memory> allocate(std::size_t bytes, const std::string& what) override;
  std::unique_ptr<Memory> allocate_host(std::size_t bytes, const std::string& what) override;
  // Zeros: the solver computes times.
  std::vector<double> op_seconds() override { return std::vector<double>(kOpClasses, 0.0); }

  // Grouped matmuls of experts have so many times the slots that an even load would use.
  void set_expert_load(double times) { expert_load_ = times; }

  // Takes the program and leaves an empty one; streams and events remain valid. Events recorded before count as
  // reached.
  SimProgram take_program();

 private:
  friend class SimStream;
  struct CostHash {
    std::size_t operator()(const OpCost& cost) const;
  };
  std::uint32_t op_index(const Op& op);

  SimProgram program_;
  std::unordered_map<OpCost, std::uint32_t, CostHash> known_;
  double expert_load_ = 1;
  std::uint32_t first_event_ = 0;  // of the program
  std::uint32_t next_event_ = 0;
};

class SimStream final : public Stream {
 public:
  SimStream(SimDevice& device, std::string name, int index);
  // Appends communication operation `index`, as the communicators of this rank number them. For communicators only.
  void comm_op(std::uint32_t index);

 protected:
  void do_submit(const Op& op) override;
  std::shared_ptr<EventState> do_record() override;
  void do_wait(const Event& event) override;
  void do_trace_next(trace::Ticket ticket) override { next_ticket_ = ticket; }
  void do_section(trace::Ticket ticket, bool begins) override;

 private:
  void add(const SimItem& item);
  SimDevice& sim_;
  trace::Ticket next_ticket_ = trace::kNoTicket;
};

}  // namespace ms::tensor
