// Decides what happens to the nodes on loan in a real Slurm: pure. Which nodes are on loan is what Slurm says, the
// nodes of the loan partition, and which are to come back, too: those that left the partition and still have a job of
// it. So a planner that was killed goes on where it was. Nodes that an elastic run gives up for a job that waits leave
// the partition, too, because the run's driver looks there, and are put back when the run has let go of them.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loan/policy.h"
#include "loan/trace.h"

namespace ms::loan {

struct LiveNode {
  std::string name;
  std::string trouble = {};  // why nothing can run on it; empty: it can
  bool on_loan = false;
  bool idle = false;           // no job of any partition
  bool completing = false;     // its jobs have ended, and their epilogs run
  std::vector<int> jobs = {};  // indices of View::jobs
};

struct LiveJob {  // of the loan partition, with nodes
  std::uint32_t id = 0;
  int nodes = 1;  // all that it has
  int restarts = 0;
  std::string batch_node = {};  // that of its script, which it cannot do without
  int least_nodes = 0;          // of an elastic run, which can let go of others; 0: rigid
  std::vector<int> sizes = {};  // numbers of nodes that it could use, in order; empty: it does not say
  bool may_grow = false;        // it may be queued again for more of them
  SpeedCurve curve = {};        // by nodes, as it says; never better than proportional
  bool has_curve = false;       // false: it does not say
  double left_s = std::numeric_limits<double>::infinity();  // of its time limit
};

// A job of the loan partition that waits for nodes, any ones, and for nothing else.
struct WaitingJob {
  std::uint32_t id = 0;
  int nodes = 1;  // at least
  double limit_s = std::numeric_limits<double>::infinity();
  std::vector<std::string> excluded = {};  // nodes
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
  std::vector<WaitingJob> wants = {};       // those of them that more nodes on loan would help
  std::vector<Start> started = {};          // of those that run
  double kill_wait_s = 0;                   // Slurm's KillWait
};

inline constexpr std::size_t kMostWaits = 1000;

// Nodes of the policy that are in use now, as a replay counts them.
struct Usage {
  int nodes = 0;      // without trouble
  int inference = 0;  // that inference needs, of those that it has
  int training = 0;   // on loan, with jobs
};
Usage usage_of(const View& view);

// A node that a run gives up for a job that waits.
struct Handing {
  std::uint32_t run = 0, job = 0;
  double since_s = 0;
};

// An elastic run's size, and when it began or grew.
struct Sized {
  int nodes = 0;
  double since_s = 0;
};

// The part of the past that decisions and metrics depend on.
struct Memory {
  std::vector<std::pair<double, int>> demand;             // as it changed, by time
  double watched_from_s = 0;                              // without a gap longer than loan.lend_interval
  double seen_s = 0;                                      // the last view; 0: there was none
  double lent_s = 0;                                      // when nodes were last put on loan
  std::map<std::uint32_t, double> notices;                // when jobs got their signal
  std::map<std::uint32_t, std::string> asked;             // and which nodes elastic ones were asked for
  std::map<std::string, double> leaving;                  // since when nodes are to come back from their jobs
  std::map<std::string, Handing> handing;                 // by node
  std::map<std::uint32_t, Sized> sized;                   // jobs of the loan partition that run
  std::map<std::uint32_t, double> growing;                // when elastic runs were asked to grow
  std::map<std::string, std::string> refused;             // steps that Slurm refused and that were recorded, by node
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

enum class Step : std::uint8_t { lend, reclaim, shrink, notify, requeue, grow, start };
std::string_view to_string(Step step);

struct Action {
  Step step = Step::lend;
  std::string node = {};   // lend, reclaim
  std::uint32_t job = 0;   // shrink, notify, requeue, grow, start
  std::string nodes = {};  // notify: that an elastic run is asked for
  std::string reason = {};
};

struct Plan {
  std::vector<std::string> on_loan;             // the loan partition's nodes when all is done
  std::vector<Action> actions;                  // in their order
  std::vector<std::string> notes;               // what is not done, and why
  std::map<std::string, Handing> handing = {};  // as it is when all is done
};

// Whether nodes have to come back from jobs, or are on their way.
bool takes_back(const View& view, const Policy& policy);
// Whether elastic runs are to be considered for idle nodes: schedule.interval is over, and no job wants them.
bool may_grow(const View& view, const Memory& memory, const Policy& policy);
// Whether elastic runs are to be considered for nodes that a job waits for.
bool may_shrink(const View& view, const Memory& memory, const Policy& policy);
// How long jobs have to save, for what Slurm then takes to end them. Error("loan.grace", user): the grace time has no
// room for that.
double notice_s(const Policy& policy, double kill_wait_s);
// Adds what is seen to the memory, and forgets what counts no more.
void remember(Memory& memory, const View& view, const Policy& policy);
Plan make_plan(const View& view, const Memory& memory, const Policy& policy);
// How long until the next look: loan.poll, or less where a notice ends before.
double next_look_s(const Memory& memory, const Policy& policy, double notice_s, double now_s);

}  // namespace ms::loan
