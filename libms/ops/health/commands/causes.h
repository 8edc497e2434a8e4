// Says which findings of a node follow from which others, so that a person fixes the cause and calls one team for it. A
// table of pairs of codes decides; it changes no outcome, and nothing that is drained. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/finding.h"

namespace ms::health {

// Says what an effect and its cause must have in common, beside the node.
enum class Tie {
  node,    // nothing
  device,  // the name of one is a word of the other's: "gpu 1" and "gpu 1 (0000:11:00.0)", "nvme0" and "nvme0n1"
  named    // the effect's text names what the cause is about: "nfs4 fs1:/export did not answer" and "fs1"
};

// Patterns are those of the shell, for "ENTITY: MESSAGE".
struct CauseRow {
  std::string_view effect = {}, cause = {};  // codes
  Tie tie = Tie::node;
  bool sure = false;
  std::string_view effect_says = "*", cause_says = "*";
};

// No code is, over however many rows, its own cause. Of several rows that fit a finding the first counts.
std::span<const CauseRow> cause_rows();

struct Explained {
  Finding finding;
  std::optional<std::size_t> cause = {};  // the place of its cause in the same list, before this one
  bool sure = false;                      // else it only may follow from that
  std::size_t depth = 0;                  // 0: nothing explains it
};

// Each cause with what follows from it behind it, the groups by their worst severity, then
// causes of something before others, else in the order given.
std::vector<Explained> by_cause(const std::vector<Finding>& findings);

// "Its findings follow from those of disk.nvme, and may follow from those of disk.raid."; empty: no row has this code
// as an effect.
std::string causes_of(std::string_view code);

}  // namespace ms::health
