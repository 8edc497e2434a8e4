// Which spans of a chunk have their parameters gathered, and their gradients in a buffer, while a forward or a backward
// passes them (optim.zero = 3). It gathers a few spans ahead of their use, and frees buffers behind it. It only issues.
//
// Turns count the places of a chunk (nn::Chunk::Pass) as they are passed. Forward: turn i is layer i, the turn after
// the last layer sums the chunk's output, and the one after that is the head, where the forward has one. Backward, and
// each half of one: turn 0 is the head; the layers follow from the last to the first, which has the gradient of the
// embedding, too.
#pragma once

#include <cstddef>
#include <vector>

#include "optim/sharded.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {

class ParameterWindow {
 public:
  // A pass over a chunk.
  struct Pass {
    int chunk = 0;
    bool backward = false;
    bool head = false;  // of a forward: the head follows
  };

  // All of these outlive it.
  ParameterWindow(const Plan& plan, int pp_rank, const std::vector<ChunkTensors>& chunks,
                  optim::ShardedOptimizer& optimizer, tensor::Stream& compute);

  // Gathers ahead what the pass begins with.
  void prefetch(const Pass& pass);
  void begin(const Pass& pass);
  // All ops of the turns before this one are issued; ops of this one may be.
  void advance(std::int64_t turn);
  // All ops of the pass are issued.
  void end();

 private:
  // A span in turns [first, last] of a pass.
  struct Use {
    std::size_t span = 0;  // as the optimizer numbers them
    std::int64_t first = 0, last = 0;
    bool reads = true;  // the parameters; else a backward only adds to the gradients
    enum { ahead, now, over } when = ahead;
  };
  std::vector<Use> uses_of(const Pass& pass) const;
  // Gathers the parameters of all uses that are ahead and whose first turns are among the next `count` different ones,
  // up to the first whose buffer another one before it needs.
  void gather_ahead(const std::vector<Use>& uses, int chunk, std::int64_t count);
  void gather(const Use& use, int chunk);

  const Plan& plan_;
  int pp_rank_;
  const std::vector<ChunkTensors>& chunks_;
  optim::ShardedOptimizer& optimizer_;
  tensor::Stream& compute_;
  Pass pass_;
  std::vector<Use> uses_;  // of the pass, by `first`
};

}  // namespace ms::train
