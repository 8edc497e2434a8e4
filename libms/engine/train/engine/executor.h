// Executes the rows of a schedule on one rank for the engine. It chooses the stream of each row, and the events that
// order the streams around the memory that rows share. It only issues; nothing here waits on the host.
//
// The waits of a stream decide what overlaps. Transfers and dp collectives have streams of their own, and compute waits
// for its inputs: its own receive, its own chunk's parameters. With [overlap] dp off, compute waits for each gather and
// reduction where it is issued. With pp off, compute waits for each transfer and a receive waits for compute, which
// sched/checker.h calls coupled. Results do not change: the same ops run in the same order.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "train/engine/parameter_window.h"
#include "train/engine/rank_groups.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {

class Executor {
 public:
  enum class Mode { train, evaluate, logits, replay };

  // All of these but the shape outlive it. The tensors have that shape.
  Executor(const Plan& plan, const mesh::Coord& at, const nn::Shape& shape, RankTensors& tensors,
           tensor::Stream& compute, const RankGroups& groups, optim::ShardedOptimizer& optimizer);
  ~Executor();

  // Losses are multiplied by `loss_scale`.
  void run(const sched::Schedule& schedule, Mode mode, double loss_scale);
  // Computes the microbatch of a schedule forward and backward, and reduces no gradients: where the host calls
  // `after_backward`, all that are issued for the chunk are in its buffers, and they are read before it returns, as
  // chunks may share them. `before_backward` has the chunk's activations. The next step clears or sets all gradients.
  using BeforeBackward = std::function<void(const nn::ChunkSlot&)>;
  using AfterBackward = std::function<void(const ChunkTensors&)>;
  void replay(const sched::Schedule& schedule, double loss_scale, const BeforeBackward& before_backward,
              const AfterBackward& after_backward);
  // The gathers that the schedule begins with, issued ahead of it; run() then finds them done. Not without overlap:
  // compute would wait for them.
  void prefetch(const sched::Schedule& schedule);

 private:
  struct Slot;
  struct Gradient;
  struct ChunkState;

  const std::vector<sched::Row>& rows(const sched::Schedule& schedule) const;
  void obey(const sched::Row& row, Mode mode, double loss_scale);
  void transfer(const sched::Row& row);
  void forward(const sched::Row& row, Mode mode, double loss_scale);
  void backward(const sched::Row& row, Mode mode, double loss_scale);
  void begin();  // of a schedule
  // Whether the row's backward sets gradients and does not add to them. Asked once a row.
  bool sets_gradients(const sched::Row& row);
  void gather(int chunk);
  void reduce(int chunk, bool shards);
  // Reduce the gradients of the spans at this place, in the order in which a backward completes them.
  void reduce_place(int chunk, std::int64_t place);
  ParameterWindow::Pass pass_of(const sched::Row& row, Mode mode) const;
  // Gathers what the next pass among these rows begins with.
  void prefetch_pass(std::span<const sched::Row> rows, Mode mode);
  comm::Communicator& channel(const sched::Row& row) const;
  nn::TensorParallel tensor_parallel() const;
  // The number that the optimizer knows the first of the chunk's spans by; the others follow it.
  std::size_t first_span(int chunk) const;
  // Notes, of the spans at this place of the chunk, that their gradients are complete.
  void complete(int chunk, std::int64_t place);
  tensor::Tensor loss_target() const;

  const Plan& plan_;
  mesh::Coord at_;
  nn::Shape shape_;
  RankTensors& tensors_;
  tensor::Stream& compute_;
  const RankGroups& groups_;
  std::optional<nn::Ring> ring_;  // of the tp group, where it is used
  optim::ShardedOptimizer& optimizer_;
  std::optional<ParameterWindow> window_;  // under zero 3, which gathers and reduces by span, not by row
  std::vector<nn::Chunk> model_;
  std::vector<ChunkState> state_;
  std::vector<Slot> slots_;
};

}  // namespace ms::train
