#include "tracepp/commands.h"

namespace ms::tracepp {
namespace {

constexpr const char* kDumpSnippet =
    R"(For hang. PyTorch keeps the last collectives of each rank in a ring buffer. When
a collective times out, each rank writes its buffer to a file. Set these variables before the processes start. The
directory must be on storage that all nodes share:

    mkdir -p $PWD/flight
    export TORCH_FR_BUFFER_SIZE=2000  # collectives per rank
    export TORCH_NCCL_DUMP_ON_TIMEOUT=1
    export TORCH_FR_DUMP_TEMP_FILE=$PWD/flight/rank_
    export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=$PWD/flight/rank_

After the timeout, run:

    ms-tracepp hang flight

PyTorch appends the number of the rank to the name of the file. TORCH_NCCL_DEBUG_INFO_TEMP_FILE is the older name of
TORCH_FR_DUMP_TEMP_FILE. Before PyTorch 2.9, set TORCH_NCCL_TRACE_BUFFER_SIZE=2000 instead of TORCH_FR_BUFFER_SIZE. The
timeout is an argument of init_process_group; its default for NCCL is ten minutes.)";

constexpr const char* kOnDemand = R"(For hang, before the timeout. Set this variable beside those above. Each rank over
NCCL then makes a named pipe on its own node when it starts:

    export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr_$SLURM_JOB_ID.

A rank writes its dump when you write a line to its pipe. For all ranks of job 1234 on its 16 nodes:

    srun --jobid=1234 --overlap --nodes=16 --ntasks=16 sh -c '
      for pipe in /tmp/fr_1234.*.pipe; do
        echo | timeout 2 tee $pipe
      done'

jobscripts/pytorch.sbatch sets all of these variables, and ms-driver writes to the pipes when a run hangs. Gloo makes no
pipe: answer_driver() of examples/10-driver/heartbeat.py makes one and answers it.)";

constexpr const char* kProfiler = R"(For report, diff and merge. Trace the same ten steps on every rank, after the first
ones:

    import os, torch
    from torch.profiler import profile, schedule
    rank = torch.distributed.get_rank()
    os.makedirs("traces", exist_ok=True)

    def write(profiler):
        profiler.export_chrome_trace(
            f"traces/rank-{rank}.json.gz")

    with profile(
            schedule=schedule(wait=20, warmup=2, active=10, repeat=1),
            on_trace_ready=write, record_shapes=True) as profiler:
        for batch in batches:
            train_step(batch)
            profiler.step()  # marks the end of a step

Then run:

    ms-tracepp report -o report.html traces

Keep the default activities, CPU and CUDA. To name a rank that others wait for, report needs the traces of all ranks and
at least eight steps. with_stack=True adds the Python lines at which the host was, and makes the files larger.
ms-tracepp does not use what profile_memory adds.)";

constexpr const char* kMegatron = R"(For report, diff and merge. With 64 ranks, add these options to pretrain_gpt.py:

    --profile --use-pytorch-profiler \
    --profile-step-start 20 --profile-step-end 30 \
    --profile-ranks $(seq 0 63) --tensorboard-dir $PWD/tb

Name all ranks: without --profile-ranks, some releases trace rank 0 only. The traces are in torch_profile, beside the
directory tb; older releases write them into tb. For hang, set the variables of the flight recorder above.)";

constexpr const char* kOnline =
    R"(For report, diff and merge, without a change to the program. The daemon dynolog must run
on every node, with --enable_ipc_monitor, and the processes must start with this variable:

    export KINETO_USE_DAEMON=1

Trace ten steps of job 1234 on its 16 nodes into a directory that they share:

    mkdir -p traces
    srun --jobid=1234 --overlap --nodes=16 --ntasks=16 sh -c '
      dyno gputrace --job-id 1234 --iterations 10 \
        --log-file $PWD/traces/$(hostname).json'

dynolog adds the number of the process to each name. If ms-tracepp report shows process numbers as ranks, the traces do
not name their ranks: rename the files to rank-0.json, rank-1.json and so on.)";

constexpr const char* kNsys =
    R"(For report, diff and merge. Profile each rank into a file with its number, with the steps as
NVTX ranges, such as torch.cuda.nvtx.range_push(f"step {i}"):

    srun sh -c 'nsys profile --trace=cuda,nvtx \
      -o traces/rank$SLURM_PROCID python train.py'

Export the reports, and give ms-tracepp the directory of the exports:

    mkdir -p exports
    for report in traces/*.nsys-rep; do
      nsys export --type sqlite \
        -o exports/$(basename $report .nsys-rep).sqlite $report
    done
    ms-tracepp report exports

Exports as JSON lines (--type jsonlines) are read, too. A report of several processes has a rank for each process with
work on a GPU; their numbers are not known then. Exports do not tell the process groups of collectives.)";

constexpr const char* kTested = R"(The tests read dumps and traces that PyTorch 2.15 wrote in gloo jobs, and dumps that
a script writes in the form of the NCCL backend. Profiler traces of GPU jobs, published with Holistic Trace Analysis, give
the same numbers as it. Exports of Nsight Systems are made by a script from its documented tables: none was at hand.
Megatron-LM, nsys and dynolog have not been run.)";

}  // namespace

ManSection recording_manual() {
  return {"recording",
          {{"ms-train",
            "For all commands. Every rank writes a trace to run.dir/trace while it runs, unless trace.enabled is "
            "false; see ms.toml(5)."},
           {"PyTorch flight recorder", kDumpSnippet},
           {"Flight recorder on demand", kOnDemand},
           {"PyTorch profiler", kProfiler},
           {"Nsight Systems", kNsys},
           {"Megatron-LM", kMegatron},
           {"A run that has started", kOnline},
           {"What was tested", kTested}}};
}

}  // namespace ms::tracepp
