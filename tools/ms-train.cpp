// ms-train: the training engine's command line. A table of commands, each in libms/engine/train/commands.
#include "base/man.h"
#include "cost/cluster.h"
#include "optim/muon.h"
#include "slurm/launch.h"
#include "train/commands/commands.h"
#include "train/run/gpu_environment.h"
#include "train/run/step_metrics.h"
#include "train/simulate/goodput.h"
#include "watch/fault.h"

namespace {

using namespace ms;  // NOLINT: a main

std::string cluster_manual() {
  cost::Cluster cluster;
  ConfigSchema schema;
  cost::bind(schema, cluster);
  return man::config_page(
      {.name = "ms-cluster",
       .summary = "description of a simulated cluster",
       .description = "Describes the machines for ms-train simulate and ms-train tune: the speed of their devices, "
                      "links and network. An efficiency curve is a list of \"size:share\" points. Between two points "
                      "the share of the peak is interpolated over the logarithm of the size; beyond the first and the "
                      "last point it is constant. --set-cluster SECTION.KEY=VALUE overrides the file.",
       .see_also = {"ms-train(1)"}},
      schema.reference());
}

std::string config_manual() {
  train::Settings settings;
  ConfigSchema schema;
  train::bind(schema, settings);
  return man::config_page({.name = "ms.toml",
                           .summary = "configuration of ms-train",
                           .description = "The model, the layout and the training loop of ms-train. --set "
                                          "SECTION.KEY=VALUE overrides the file, and the file overrides the default.",
                           .see_also = {"ms-train(1)", "ms-exit(7)"}},
                          schema.reference());
}

const Tool kTool{
    .name = "ms-train",
    .summary = "train a language model with 3D parallelism",
    .commands = {train::run_command(), train::eval_command(), train::generate_command(), train::plan_command(),
                 train::simulate_command(), train::tune_command(), train::calibrate_command(), train::check_command(),
                 train::explain_command()},
    .description =
        "Trains GPT and Llama models, the latter also with a mixture of experts, with tensor, sequence, pipeline and "
        "data parallelism, on CPUs and on NVIDIA GPUs. It has been measured on one H200, see ms-performance(7); "
        "several "
        "GPUs have only been emulated.\n\nDropout, context parallelism and FSDP are not supported.",
    .examples =
        {{"ms-train run configs/tiny-3d.toml", "Train with eight ranks as threads:"},
         {"mpirun -np 8 ms-train run configs/tiny-3d.toml", "Train with eight processes:"},
         {"ms-train plan configs/gpt-175b.toml", "Show what a run needs, on any machine:"},
         {"ms-train simulate configs/gpt-175b.toml --cluster configs/clusters/a100-8x200g.toml --failures 0.004:12h "
          "--days 60 --spares 8",
          "Estimate what failures cost in two months of training: repeated steps, checkpoints and spare nodes:"},
         {"ms-train eval runs/a/ckpt --data wiki=data/wiki",
          "Compute the perplexity of the newest checkpoint on a token file:"},
         {"ms-train generate runs/a/ckpt --prompt 'The cluster' --temperature 0.7 --top-p 0.9",
          "Let a model continue a prompt:"},
         {"ms-train plan run.toml --hostfile slurm --order order",
          "In a job, place ranks by Slurm's network topology:"},
         {"ms-train explain 76", "Print what a job's exit code means:"}},
    .see_also = {"ms-data(1)", "ms.toml(5)", "ms-cluster(5)", "ms-performance(7)"},
    .environment = {{"MS_FAULT", watch::fault_manual()},
                    {"OMP_NUM_THREADS", "Threads that compute on the CPU, if run.cpu_threads is 0."},
                    {"CUDA_*, NCCL_*", train::gpu_environment_manual()}},
    .extra_pages = {{.option = "--man-config", .text = config_manual},
                    {.option = "--man-cluster", .text = cluster_manual}},
    .sections =
        {{"METRICS", train::metrics_manual()},
         {"REPRODUCIBILITY",
          {{"the same bits",
            "A configuration computes the same losses and weights, to the last bit, in every run: with ranks as "
            "threads or as processes, with the overlap of pp and dp on or off, and after a resume in the same layout."},
           {"other bits",
            "Another layout, the overlap of tp, another instruction set or model of GPU, other choices in "
            "run.matmul_choices, and run.deterministic = false change the order of sums."}}},
         {"MUON", optim::muon_manual()},
         {"RECOVERY", train::recovery_manual()}},
    .before_error = slurm::let_rank_0_report_first};

}  // namespace

int main(int argc, char** argv) { return run_tool(kTool, argc, argv); }
