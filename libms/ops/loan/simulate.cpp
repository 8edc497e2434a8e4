// ms-loan simulate: reads the trace, replays it under each scheduler that was asked for, prints the table.
#include <vector>

#include "base/print.h"
#include "base/text.h"
#include "base/user_path.h"
#include "loan/commands.h"
#include "loan/report.h"

namespace ms::loan {
namespace {

std::vector<Scheduler> asked_for(const Args& args) {
  std::vector<Scheduler> rows;
  for (const std::string& name : args.list("scheduler")) {
    const Scheduler* row = find_scheduler(name);
    if (row == nullptr) {
      std::vector<std::string> names;
      for (const Scheduler& each : schedulers()) names.emplace_back(each.name);
      const auto near = nearest_name(name, names);
      throw user_error(
          "loan.scheduler", fmt::format("there is no scheduler '{}'", name),
          near ? fmt::format("did you mean '{}'?", *near) : fmt::format("there are {}", fmt::join(names, ", ")));
    }
    rows.push_back(*row);
  }
  if (rows.empty()) rows.assign(schedulers().begin(), schedulers().end());
  return rows;
}

int simulate(const Args& args) {
  const std::vector<Scheduler> rows = asked_for(args);
  const std::string samples_file = args.get("samples");
  if (!samples_file.empty()) check_user_file(samples_file);
  const Policy policy = load_policy(args.get("policy"));
  const JobTrace trace = read_jobs(args.get("jobs"), policy);
  const Demand demand = read_demand(args.get("demand"), policy, trace.span_s);
  std::vector<Outcome> outcomes;
  for (const Scheduler& row : rows) outcomes.push_back(replay(trace, demand, policy, row));
  if (!samples_file.empty()) write_user_file(samples_file, samples_csv(trace, outcomes));
  write_out(args.has("json") ? replay_json(trace, policy, outcomes).dump(2) + "\n"
                             : replay_table(trace, policy, outcomes));
  return 0;
}

}  // namespace

Command simulate_command() {
  return {.name = "simulate",
          .summary = "replay a trace under several schedulers and compare them",
          .options = {{.name = "jobs",
                       .value = "FILE",
                       .doc = "CSV of jobs, optionally compressed with gzip or zstd.",
                       .required = true},
                      {.name = "demand",
                       .value = "FILE",
                       .doc = "CSV of the inference demand, or of the inference instances.",
                       .required = true},
                      {.name = "policy", .value = "FILE", .doc = "Policy, see ms-loan.toml(5).", .required = true},
                      {.name = "scheduler",
                       .value = "NAME",
                       .doc = "Run only this scheduler, see SCHEDULERS in ms-loan(1) (default: all).",
                       .many = true},
                      {"samples", "FILE", "Also write a CSV of the GPU usage every 5 minutes."},
                      {"json", "", "Print one JSON document."}},
          .run = simulate,
          .description =
              "The file of jobs has the columns submit (or submit_time, timestamp), duration in seconds, and gpus (or "
              "num_gpus, gpu_num). Optional columns are max_gpus, which makes a job elastic, and time_limit in "
              "seconds. submit is in seconds from any start, or a UTC time: a file may contain the lines "
              "\"submit,duration,gpus\", \"0,3600,8\" and \"90.5,600,1\", or rows such as \"2017-10-09 "
              "07:01:55,3600,8\". The file of demand has time_s and nodes (or gpus), or creation_time, deletion_time "
              "and gpu_request with one row per instance. Other columns are ignored.\n\n"
              "The demand is shifted to start with the first submission and lasts until the last job ends. The replay "
              "is deterministic, except for the measured decision times. All GPUs are equally fast. Queueing time "
              "includes all waits of a job, JCT is the time from submission to end, and usage is that of both clusters "
              "until the last submission. Usage is not defined if all jobs are submitted at once."};
}

}  // namespace ms::loan
