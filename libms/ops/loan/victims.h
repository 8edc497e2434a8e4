// Which nodes on loan go back when inference asks for some: pure. A node goes back when none of the jobs on it runs any
// more, and a job that loses one node loses them all, so the nodes are chosen that hurt the fewest jobs. Workers that a
// job can do without are no jobs here: they are dropped whatever is chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::loan {

// cost: greedily the least server preemption cost, the sum over a node's jobs of the share of the job that the node
// holds (1 / nodes of the job), updated after each pick (arXiv 2202.07896, section 4); then jobs that need not be hurt
// after all are spared. random: any nodes. youngest: jobs in the order in which Slurm with preempt_youngest_first
// preempts them, until enough nodes are empty.
enum class VictimRule : std::uint8_t { cost, random, youngest };

struct LoanedNode {
  int id = 0;
  std::vector<int> jobs;  // indices of `jobs` below, each once; jobs that are on none of the nodes are left alone
};

struct LoanedJob {
  int nodes = 1;  // that its needed workers are on, on loan or not
  double started_s = 0;
};

struct Victims {
  std::vector<int> nodes;  // ids, in the order of the choice
  std::vector<int> jobs;   // indices, in the order of the choice
};

// min(count, nodes.size()) nodes, and the jobs that end for it. `seed` is for random alone.
Victims pick_victims(std::span<const LoanedNode> nodes, std::span<const LoanedJob> jobs, int count, VictimRule rule,
                     std::uint64_t seed = 0);

}  // namespace ms::loan
