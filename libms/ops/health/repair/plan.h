// The repair of nodes, as a state machine: from what is kept of each node's repair, what Slurm says of the nodes, the
// policy and the time follows one step a node. Pure: repair.cpp keeps the state of a step before it does what the step
// says, and the state of afterwards behind it; so a process that was killed anywhere plans the same step again, and
// every step can be done twice.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "health/policy.h"
#include "slurm/records.h"

namespace ms::health {

// well: no repair. gather: evidence is to be kept before anything changes it. choose: the next remedy. returning: it
// passed the tests. bundling: a person is needed. bundled: and has all there is. released: a person changed the drain,
// and the node is theirs until it is back in service.
enum class Stage { well, gather, choose, remedy, test2, test3, returning, bundling, bundled, released };
std::string_view to_string(Stage stage);

struct Attempt {
  std::string remedy;
  double wall_s = 0;
};

// The state of a node, kept across its repairs.
struct Repair {
  std::string node;
  std::string reason;  // of the drain when the repair began, without what Slurm appends of reboots
  Stage stage = Stage::well;
  std::string remedy;             // the last one
  int tries = 0;                  // how often it was begun: more than once only where this program was killed
  double taken_wall_s = 0;        // when this repair began
  double since_wall_s = 0;        // of this stage
  std::string why;                // what came of the last step
  std::vector<Attempt> attempts;  // of a week, and of the cool-down
};
std::string to_json(const Repair& repair);
Repair repair_from_json(const std::string& text);   // Error("repair.state", node) for a text that is none
std::string rebooted_reason(const Repair& repair);  // as Slurm writes it behind ours
std::string code_of(std::string_view reason);       // "ms-diag:gpu.ecc gpu 3: ..." -> "gpu.ecc"

// redrain: after a reboot, with rebooted_reason().
enum class Act { none, gather, remedy, reboot, redrain, test, undrain, bundle };

struct Step {
  Act act = Act::none;
  std::string event;  // of the audit log, begins as a sentence of what is done: "remedy gpu-reset"
  Repair repair;      // to be kept before
};

// At most one step a node. A node without a drain of ours, with jobs, or in a state of Slurm's own doings gets none. A
// node whose drain was lifted, or whose reason was changed, is let go. `users`: drain_users().
std::vector<Step> plan(const std::map<std::string, Repair>& repairs, const std::vector<slurm::Node>& nodes,
                       const RepairConfig& policy, const std::vector<std::string>& users, double now_wall_s);

// unknown: the node or Slurm did not answer, so the step is done again until policy.patience_s is over.
enum class Outcome3 { good, bad, unknown };
// The repair after a step.
Repair after(const Step& step, Outcome3 outcome, const std::string& why, const RepairConfig& policy, double now_wall_s);

bool is_slurms(const slurm::Node& node);      // Slurm reboots it, or does something else with it
bool may_be_loaded(const slurm::Node& node);  // it has no job, and is not Slurm's
bool is_in_service(const slurm::Node& node);
bool may_take_up(const slurm::Node& node, const std::vector<std::string>& users);  // its drain is ours, and no person's
// Whether this is still the drain that the repair is about, and the node has no job: asked again before each act.
bool may_touch(const Repair& repair, const slurm::Node& node, const std::vector<std::string>& users);

}  // namespace ms::health
