// The subcommands of ms-diag, which the table in tools/ms-diag.cpp lists. Each prints its result and returns the exit
// status.
#pragma once

#include "base/cli.h"

namespace ms::health {

int run_command(const Args& args);
int list_command(const Args& args);
int explain_command(const Args& args);
int history_command(const Args& args);
int collect_command(const Args& args);
int avoid_command(const Args& args);
int check_site_command(const Args& args);
int facts_command(const Args& args);
int fleet_command(const Args& args);
int golden_command(const Args& args);
int undrain_command(const Args& args);
int requeue_command(const Args& args);
int notify_command(const Args& args);
int predict_command(const Args& args);
int prolog_command(const Args& args);  // as root, around a job: whatever is wrong with the call, the job starts
int epilog_command(const Args& args);
int health_command(const Args& args);  // as root, by Slurm's HealthCheckProgram

}  // namespace ms::health
