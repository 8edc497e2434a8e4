// Decides what happens to the nodes on loan in a real Slurm: pure. Which nodes are on loan is what Slurm says, the
// nodes of the loan partition, and which are to come back, too: those that left the partition and still have a job of
// it. So a planner that was killed goes on where it was.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loan/policy.h"

namespace ms::loan {

struct LiveNode {
  std::string name;
  std::string trouble = {};  // why nothing can run on it; empty: it can
  bool on_loan = false;
  bool idle = false;           // no job of any partition
  std::vector<int> jobs = {};  // indices of View::jobs
};

struct LiveJob {  // of the loan partition, with nodes
  std::uint32_t id = 0;
  int nodes = 1;  // all that it has
  int restarts = 0;
  std::string batch_node = {};  // that of its script, which it cannot do without
  int least_nodes = 0;          // of an elastic run, which can let go of others; 0: rigid
  std::vector<int> sizes = {};  // larger numbers of nodes that it could use, for which it may be queued again
};

// A start of a job, and how long the job had waited for it.
struct Start {
  std::uint32_t job = 0;
  int restarts = 0;
  double waited_s = 0;
};

struct View {
  double now_s = 0;  // since 1970
  int demand_nodes = 0;
  std::vector<LiveNode> nodes;  // of the policy
  std::vector<LiveJob> jobs;
  std::vector<std::uint32_t> waiting = {};  // jobs of the loan partition, for nodes
  std::vector<Start> started = {};          // of those that run
};

inline constexpr std::size_t kMostWaits = 1000;

// Nodes of the policy that are in use now, as a replay counts them.
struct Usage {
  int nodes = 0;      // without trouble
  int inference = 0;  // that inference needs, of those that it has
  int training = 0;   // on loan, with jobs
};
Usage usage_of(const View& view);

// The part of the past that decisions and metrics depend on.
struct Memory {
  std::vector<std::pair<double, int>> demand;             // as it changed, by time
  double watched_from_s = 0;                              // without a gap longer than loan.lend_interval
  double seen_s = 0;                                      // the last view; 0: there was none
  double lent_s = 0;                                      // when nodes were last put on loan
  std::map<std::uint32_t, double> notices;                // when jobs got their signal
  std::map<std::uint32_t, std::string> asked;             // and which nodes elastic ones were asked for
  std::map<std::string, double> leaving;                  // since when nodes are to come back from their jobs
  std::map<std::uint32_t, double> growing;                // when elastic runs were asked to grow
  double scaled_s = 0;                                    // when runs were last considered for that
  std::map<std::uint32_t, int> started;                   // starts that were counted, of jobs that run
  std::vector<double> waited_s;                           // how long jobs had waited for their last kMostWaits starts
  std::int64_t starts = 0;                                // of all
  double starts_waited_s = 0;                             // and how long they had waited, added up
  double node_s = 0, inference_s = 0, training_s = 0;     // node-seconds: that there were, and in which each used them
  std::int64_t preemptions = 0, reclaimed = 0, lent = 0;  // counters for metrics
  std::int64_t shrunk = 0;                                // elastic runs that let go of what they were asked for
  std::int64_t grown = 0;                                 // and that were queued again to grow
  std::int64_t returned = 0;                              // nodes that came back, and
  double returned_s = 0, returned_max_s = 0;              // how long they took, in all and at most
};

enum class Step : std::uint8_t { lend, reclaim, notify, requeue, grow, start };
std::string_view to_string(Step step);

struct Action {
  Step step = Step::lend;
  std::string node = {};   // lend, reclaim
  std::uint32_t job = 0;   // notify, requeue, grow, start
  std::string nodes = {};  // notify: that an elastic run is asked for
  std::string reason = {};
};

struct Plan {
  std::vector<std::string> on_loan;  // the loan partition's nodes when all is done
  std::vector<Action> actions;       // in their order
  std::vector<std::string> notes;    // what is not done, and why
};

// Whether nodes have to come back from jobs, or are on their way.
bool takes_back(const View& view, const Policy& policy);
// Whether elastic runs are to be considered for idle nodes: schedule.interval is over, and nobody else wants them.
bool may_grow(const View& view, const Memory& memory, const Policy& policy);
// Adds what is seen to the memory, and forgets what counts no more.
void remember(Memory& memory, const View& view, const Policy& policy);
Plan make_plan(const View& view, const Memory& memory, const Policy& policy);
// How long until the next look: loan.poll, or less where a notice ends before.
double next_look_s(const Memory& memory, const Policy& policy, double now_s);

}  // namespace ms::loan
