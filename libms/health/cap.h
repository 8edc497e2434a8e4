// Draining this node so that never more nodes than the cap end up drained by us, although nobody is asked: many nodes
// may come here at the same moment. Each sets its drain first and counts ours afterwards; above the cap it takes its
// own back. Of all drains that stand in the end, the one set last counted all the others, so there are no more than the
// cap. Because all may see too many and all withdraw, a node that withdrew tries again a few times after a random
// pause.
#pragma once

#include <string>

#include "health/policy.h"
#include "health/world.h"

namespace ms::health {

enum class DrainEnd {
  drained,         // by this call, and it stays
  stands_already,  // by us, before
  somebody_elses,  // somebody drained it, or gave it a reason
  above_cap,       // enough nodes are drained: nothing was done
  withdrawn,       // it was done and taken back, because too many nodes did it at once
  failed,          // Slurm did not do, or did not say, what was needed: taken back as far as Slurm answers
};

struct Drain {
  DrainEnd end = DrainEnd::failed;
  std::string reason;  // drained: ours; stands_already: the one that stands; somebody_elses: theirs
  std::string why;     // a sentence for the log
};

// Never throws what Slurm's calls throw.
Drain drain_below_cap(const World& world, const ActConfig& act, const std::string& node, const std::string& reason);

}  // namespace ms::health
