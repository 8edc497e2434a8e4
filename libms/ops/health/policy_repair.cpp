// The section [repair] of the policy.
#include "health/policy.h"

namespace ms::health {
namespace {

constexpr Field<RepairConfig> kRepairFields[] = {
    {"state", &RepairConfig::state,
     "Directory on the head node, accessible only to its owner, for the state of each node's repair (NODE.json), the "
     "audit log (audit.jsonl) and bundles (NODE.tar). The directory above it must exist."},
    {"remedies", &RepairConfig::remedies, "Remedies that may be used, see REMEDIES in ms-diag(1)."},
    {"checks", &RepairConfig::checks,
     "Codes of the checks that test a node after a remedy, as in 'gpu.*,perf.*'. A node is undrained only if they "
     "include the code of its drain."},
    {"level", &RepairConfig::level, "Highest level of the tests after a remedy. 3: also the soak tests.", Unit::none, 2,
     3},
    {"soak", &RepairConfig::soak_s, "Duration of each soak test.", Unit::seconds, 1, 86'400},
    {"golden", &RepairConfig::golden,
     "File of ms-diag golden capture. A node with lower rates in the active checks than its peers there fails the "
     "tests. Empty: rates are not compared."},
    {"max_nodes_percent", &RepairConfig::max_nodes_percent,
     "Maximum percentage of the cluster's nodes in repair at a time, rounded down but at least one node. Nodes that "
     "wait for repair or for a person do not count.",
     Unit::none, 0, 100},
    {"attempts_per_week", &RepairConfig::attempts_per_week,
     "Maximum number of remedies on a node in 7 days. After them, the node needs a person.", Unit::none, 0, 1000},
    {"cool_down", &RepairConfig::cool_down_s,
     "Time in which a remedy is not used again on a node. The next one is used instead.", Unit::seconds, 0,
     90 * 86'400},
    {"patience", &RepairConfig::patience_s,
     "How long a node may take to reboot, or not answer, before the remedy counts as failed.", Unit::seconds, 1,
     7 * 86'400},
    {"interval", &RepairConfig::interval_s, "Interval between passes over all nodes.", Unit::seconds, 1, 86'400},
};

}  // namespace

void bind_repair(ConfigSchema& schema, RepairConfig& config) {
  schema.section("repair", "Repair of drained nodes by ms-diag repair.", config, kRepairFields);
}

}  // namespace ms::health
