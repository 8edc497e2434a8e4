// One of the commands of train/commands/commands.h: shows what a run would need, or where its ranks should run.
#include <cstdlib>

#include "base/print.h"
#include "base/user_path.h"
#include "train/commands/commands.h"
#include "train/commands/show_place.h"
#include "train/commands/show_plan.h"

namespace ms::train {
namespace {

int place(const Args& args, const Plan& made) {
  if (args.has("order")) check_user_file(args.get("order"));
  const slurm::Getenv getenv = [](const char* name) { return std::getenv(name); };
  const HostsRead hosts = read_hosts(args.get("hostfile"), getenv);
  const auto topology = args.has("topology") ? std::optional(args.get("topology")) : std::nullopt;
  const Placed placed = place_ranks(made.mesh, made.chunks, hosts, read_switches(topology, getenv));
  if (args.has("order")) write_user_file(args.get("order"), order_text(placed));
  write_out(args.has("json") ? placed_json(placed) : placed_text(placed, args.get("CONFIG"), args.get("order")));
  return 0;
}

std::optional<PlanDevice> device_of(const Args& args, const Plan& plan) {
  if (!args.has("device")) return std::nullopt;
  const std::string name = args.get("device");
  const auto ceilings = cost::known_ceilings(name);
  if (!ceilings) {
    throw user_error("cli.value", fmt::format("--device {}: unknown device", name),
                     "A100, H100, 'H100 PCIe', 'H100 NVL', H200, 'H200 NVL' and GH200 are known");
  }
  if (plan.dtype != tensor::DType::bf16)
    throw user_error("cli.value", "--device needs train.dtype = \"bf16\", and it is fp32");
  return PlanDevice{.name = name, .ceilings = *ceilings};
}

int run_plan(const Args& args) {
  const auto asked = args.has("world") ? std::optional(args.get_int("world", 1, 1 << 24)) : std::nullopt;
  const Loaded loaded = load(args, asked);
  const Plan made = make_plan(loaded.settings, static_cast<int>(asked.value_or(ranks_of(loaded.settings))));
  if (args.has("hostfile")) return place(args, made);
  for (const char* option : {"topology", "order"}) {
    if (args.has(option)) throw user_error("cli.value", fmt::format("--{} needs --hostfile", option));
  }
  const std::optional<PlanDevice> device = device_of(args, made);
  write_out(args.has("json") ? plan_json(made, device) : plan_text(made, device));
  return 0;
}

}  // namespace

Command plan_command() {
  return {.name = "plan",
          .summary = "show mesh, layers per stage, schedule, memory and work, or the placement of ranks on hosts",
          .positionals = {config_argument()},
          .options = {set_option(),
                      {"world", "N", "Number of ranks, which must be dp x pp x cp x tp."},
                      json_option(),
                      {"device", "NAME",
                       "A GPU, such as h200 or 'h100 nvl'. Also show, from its data sheet, the minimum time of each "
                       "class of operations and the maximum MFU."},
                      {"hostfile", "FILE",
                       "Show the placement of ranks on these hosts instead. The file has a host or a Slurm hostlist on "
                       "each line, with slots=N; '-' is standard input, 'slurm' the current job."},
                      {"topology", "FILE",
                       "The switches between the hosts: topology.conf, or the output of scontrol show topology "
                       "(default: run scontrol)."},
                      {"order", "FILE", "Write the host of every rank to FILE, in the form of SLURM_HOSTFILE."}},
          .run = run_plan,
          .description =
              "Needs no cluster: everything is computed from the configuration. The work of a rank's step is the FLOPs "
              "of its operations, recomputation included, and the minimum number of bytes that they move to and from "
              "memory.\n\nWith --hostfile it places ranks on hosts: each tensor parallel group inside a node, each "
              "data parallel group under as few and as low switches as possible, and the pipeline over the remaining "
              "switches. The output compares the placement with the order of the hosts in the file. If Slurm reports "
              "no switches, one flat network is assumed. Inside a job, set SLURM_HOSTFILE to the file that --order "
              "writes, and run srun as the output shows: newer versions of Slurm refuse --nodes beside "
              "--distribution=arbitrary, so the number of nodes is a variable."};
}

}  // namespace ms::train
