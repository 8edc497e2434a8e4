// The nodes that training may use in a replay, and which GPUs of them each job has: training's own nodes, and those on
// loan. Needed workers (a job's `gpus`) go to training's own nodes first, extra workers to loaned nodes first, each to
// the node that they fill best, so that loaned nodes carry what can be dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "loan/victims.h"

namespace ms::loan {

struct Part {
  int node = 0;
  int gpus = 0;
};
using Placement = std::vector<Part>;

class Nodes {
 public:
  Nodes(int train_nodes, int inference_nodes, int gpus_per_node);

  int gpus_per_node() const { return gpus_per_node_; }
  int free_gpus() const { return free_gpus_; }
  int busy_gpus() const { return busy_gpus_; }
  int loaned_busy_gpus() const { return loaned_busy_gpus_; }
  int extra_gpus() const { return extra_gpus_; }
  int loaned() const { return loaned_; }  // nodes that training may start jobs on; not those that are to go back
  int returning() const { return returning_; }

  // Where needed workers of so many GPUs fit: whole nodes, and the rest on one more. `over_extra`: also where extra
  // workers are now; the caller drops those first, by extra_over(). nullopt: nowhere.
  std::optional<Placement> fit(int gpus, bool over_extra) const;
  // Where one extra worker fits; nullopt: nowhere.
  std::optional<Placement> fit_extra(int gpus) const;

  // Extra GPUs of the part's node that stand in its way.
  int extra_over(const Part& part) const;

  void take(int job, const Placement& placement, bool extra);
  void release(int job, const Placement& placement, bool extra);

  // Puts up to so many idle inference nodes on loan; returns how many.
  int lend(int count);
  // Nodes on loan with the jobs whose needed workers are there; `ids` becomes which jobs those indices mean.
  std::vector<LoanedNode> on_loan(std::vector<int>& ids) const;
  // Jobs with extra workers on the node.
  std::vector<int> extra_jobs(int node) const;
  void begin_return(int node);  // takes no more workers
  void end_return(int node);    // empty; inference has it again

 private:
  enum class State : std::uint8_t { own, inference, loaned, returning };
  struct Use {
    int job = 0;
    int gpus = 0;
    bool extra = false;
  };
  struct Node {
    State state = State::inference;
    int free = 0;
    int extra = 0;
    std::vector<Use> uses;
  };
  // Usable nodes by how many GPUs they have, own and loaned ones apart; of equal ones the first is taken.
  struct Index {
    std::vector<std::set<int>> own;
    std::vector<std::set<int>> loaned;
  };

  bool usable(const Node& node) const { return node.state == State::own || node.state == State::loaned; }
  void enter(int id);
  void leave(int id);
  static std::optional<Placement> fit_in(const std::vector<std::set<int>>& first,
                                         const std::vector<std::set<int>>& second, int gpus, int gpus_per_node);

  int gpus_per_node_;
  std::vector<Node> nodes_;
  std::set<int> idle_inference_;
  Index by_free_;  // free GPUs
  Index by_room_;  // free GPUs, and those of extra workers
  int free_gpus_ = 0, busy_gpus_ = 0, loaned_busy_gpus_ = 0, extra_gpus_ = 0, loaned_ = 0, returning_ = 0;
};

}  // namespace ms::loan
