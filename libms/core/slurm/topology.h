// The tree of switches as Slurm knows it: topology.conf, topology.yaml, or the output of "scontrol show topology",
// where scontrol adds levels, and names at every switch all nodes below it. Blocks (topology/block) count as leaf
// switches; flat and torus3d topologies have none. The parser is pure; ask_topology runs scontrol, bounded in time.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/conf_lines.h"
#include "slurm/job_env.h"

namespace ms::slurm {

struct Topology {
  static constexpr int kNone = -1;
  struct Switch {
    std::string name;
    int above = kNone;
  };
  std::vector<Switch> switches;                     // in the order of the text; no circles
  std::map<std::string, int, std::less<>> leaf_of;  // node -> the lowest switch that has it

  int depth() const;  // levels of switches
};

// `source` is what the text is called in errors. Error("slurm.topology", user), with the line: not such a line, a
// switch for the second time, under two others or under itself, a switch that is not described, a node under two.
Topology parse_topology(std::string_view text, std::string_view source, const ReadIncluded& read = {});

// The output of scontrol in `text`; or in `why_not` why there is none, half a sentence.
struct ToldTopology {
  std::string text;
  std::string why_not;
};
ToldTopology ask_topology(const Getenv& getenv);

}  // namespace ms::slurm
