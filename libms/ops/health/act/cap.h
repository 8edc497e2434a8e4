// Drains this node so that never more nodes than the cap end up drained by us, although no process coordinates them:
// many nodes may come here at the same moment. Each sets its drain first and counts ours afterwards; above the cap it
// takes its own back. Of all drains that stand in the end, the one set last counted all the others, so there are no
// more than the cap. Because all may see too many and all withdraw, a node that withdrew tries again a few times after
// a random pause.
#pragma once

#include <string>

#include "health/act/world.h"
#include "health/policy.h"

namespace ms::health {

enum class DrainEnd {
  drained,         // by this call, and it stays
  stands_already,  // by us, before
  somebody_elses,  // somebody drained it, or gave it a reason
  above_cap,       // enough nodes are drained: nothing was done
  withdrawn,       // it was done and taken back, because too many nodes did it at once
  failed,          // Slurm did not do, or did not say, what was needed: nothing of it stands
  may_stand,       // it was set and could be neither counted nor taken back: settle_drain is to be called later
};

struct Drain {
  DrainEnd end = DrainEnd::failed;
  std::string reason;  // drained, may_stand: ours; stands_already: the one that stands; somebody_elses: theirs
  std::string why;     // a sentence for the log
};

// Never throws what Slurm's calls throw.
Drain drain_below_cap(const World& world, const ActConfig& act, const std::string& node, const std::string& reason);

// After may_stand, with minutes of time: counts it, and above the cap takes it back. Only a drain with exactly this
// reason is touched. drained: it was counted and stays; withdrawn; failed: it did not stand, or was changed; may_stand:
// Slurm did not answer.
Drain settle_drain(const World& world, const ActConfig& act, const std::string& node, const std::string& reason);

}  // namespace ms::health
