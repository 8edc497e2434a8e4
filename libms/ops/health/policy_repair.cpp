// The section [repair] of the policy.
#include "health/policy.h"

namespace ms::health {
namespace {

constexpr Field<RepairConfig> kRepairFields[] = {
    {.key = "state",
     .member = &RepairConfig::state,
     .doc =
         "Directory on the head node, accessible only to its owner, for the state of each node's repair (NODE.json), "
         "the audit log (audit.jsonl) and bundles (NODE.tar). The directory above it must exist."},
    {.key = "remedies",
     .member = &RepairConfig::remedies,
     .doc = "Remedies that may be used, see REMEDIES in ms-diag(1)."},
    {.key = "checks",
     .member = &RepairConfig::checks,
     .doc = "Codes of the checks that test a node after a remedy, as in 'gpu.*,perf.*'. A node is undrained only if "
            "they include the code of its drain."},
    {.key = "level",
     .member = &RepairConfig::level,
     .doc = "Highest level of the tests after a remedy. 3: also the soak tests.",
     .min = 2,
     .max = 3},
    {.key = "soak",
     .member = &RepairConfig::soak_s,
     .doc = "Duration of each soak test.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 86'400},
    {.key = "golden",
     .member = &RepairConfig::golden,
     .doc = "File of ms-diag golden capture. A node with lower rates in the active checks than its peers there fails "
            "the tests. Empty: rates are not compared."},
    {.key = "max_nodes_percent",
     .member = &RepairConfig::max_nodes_percent,
     .doc = "Maximum percentage of the cluster's nodes in repair at a time, rounded down but at least one node. Nodes "
            "that wait for repair or for a person do not count.",
     .min = 0,
     .max = 100},
    {.key = "attempts_per_week",
     .member = &RepairConfig::attempts_per_week,
     .doc = "Maximum number of remedies on a node in 7 days. After them, the node needs a person.",
     .min = 0,
     .max = 1000},
    {.key = "cool_down",
     .member = &RepairConfig::cool_down_s,
     .doc = "Time in which a remedy is not used again on a node. The next one is used instead.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 90 * 86'400},
    {.key = "patience",
     .member = &RepairConfig::patience_s,
     .doc = "How long a node may take to reboot, or not answer, before the remedy counts as failed.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 7 * 86'400},
    {.key = "interval",
     .member = &RepairConfig::interval_s,
     .doc = "Interval between passes over all nodes.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 86'400},
};

}  // namespace

void bind_repair(ConfigSchema& schema, RepairConfig& config) {
  schema.section("repair", "Repair of drained nodes by ms-diag repair.", config, kRepairFields);
}

}  // namespace ms::health
