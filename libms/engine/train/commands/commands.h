// The commands of ms-train: each function returns a row of the tool's table and is defined in the file of its command.
#pragma once

#include <optional>

#include "base/cli.h"
#include "ckpt/directory.h"
#include "cost/cluster.h"
#include "train/config.h"

namespace ms::train {

Command run_command();
Command plan_command();
Command simulate_command();
Command tune_command();
Command calibrate_command();
Command check_command();
Command explain_command();
Command eval_command();
Command generate_command();
Command sample_command();  // of ms-data, for it reads a run's configuration

// Options that several commands have, and what they give.
Positional config_argument();
Option set_option();
Option json_option();
Option inference_set_option();
Option cluster_option();
Option set_cluster_option();
// Logs its warnings, and with mesh.dp = "auto" what it may be. `world`: as of load() in train/config.h.
Loaded load(const Args& args, std::optional<std::int64_t> world = std::nullopt);
cost::Cluster load_cluster(const Args& args);
// dp x pp x cp x tp of the configuration.
std::int64_t ranks_of(const Settings& settings);

}  // namespace ms::train
