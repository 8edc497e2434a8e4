// gres.conf as far as checks need it: which devices Slurm thinks that this node has. Pure but for the node's own name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sysroot.h"
#include "slurm/conf_lines.h"

namespace ms::health {

struct GresLine {
  std::string name;  // "gpu"
  std::string type;
  std::vector<std::string> files;     // brackets expanded: "/dev/nvidia0", ...
  std::optional<std::int64_t> count;  // of devices, as Count= gives it; not for mps, shard and MultipleFiles
};

struct GresConf {
  std::vector<GresLine> lines;
  bool autodetect = false;  // by some library
};

// The lines for `node`: those whose NodeName= names it, and those without one. A line that is not understood is left
// out: slurmd reports it.
GresConf parse_gres_conf(std::string_view text, std::string_view node, const slurm::ReadIncluded& read = {});
// nullopt: there is no readable file. Included files that cannot be read have no lines.
std::optional<GresConf> read_gres_conf(const Sysroot& root, const std::string& path, std::string_view node);

// Slurm's name of the node, or of another root's host the name up to the first dot.
std::string node_name(const Sysroot& root);

}  // namespace ms::health
