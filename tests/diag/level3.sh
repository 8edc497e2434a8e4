#!/usr/bin/env bash
# Level 3 as a person runs it: soaks for the time that is asked for, a disk only where a directory is named, and nothing of
# either where it is not; a killed test leaves no file behind. GPUs are an emulated one, RDMA adapters and perftest fakes.
# usage: level3.sh MS-DIAG EMULATED-GPU-LIBRARIES|none
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/../tools/expect.sh"
emulated=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir disk
: >policy.toml

expect 3 "level: .*3|--level" run --level 4
expect 3 'soak is for checks of level 3' run --level 2 --soak 5s
expect 3 "'tiny' is no size" run --level 3 --memory tiny
expect 0 'skip +perf.disk: --directory names no directory' run --level 3 --only 'env.*,perf.disk' --config policy.toml

expect 0 'perf.disk: write [0-9.]+ GB/s, read [0-9.]+ GB/s, fdatasync' \
  run --level 3 --only perf.disk --directory disk --config policy.toml
[ -z "$(ls -A disk)" ] || fail "perf.disk left $(ls -A disk)"
expect 3 'broken +perf.disk: cannot write in /nowhere: No such file' \
  run --level 3 --only perf.disk --directory /nowhere --config policy.toml
printf '[active]\ndisk_write_gbps = 1e6\n' >much.toml
expect 2 'critical perf.disk write' run --level 3 --only perf.disk --directory disk --config much.toml

# Killed in the middle: the file has no name, and the check's process ends with ms-diag.
"$tool" run --level 3 --only perf.disk --directory "$dir/disk" --config policy.toml >/dev/null 2>&1 &
killed=$!
opened() { find /proc/[0-9]*/fd -lname "$dir/disk/*" 2>/dev/null | grep -q .; }
for ((i = 0; i < 3000; ++i)); do
  opened && break
  kill -0 "$killed" 2>/dev/null || break
  sleep 0.02
done
kill -9 "$killed"
wait "$killed" 2>/dev/null
for ((i = 0; i < 3000; ++i)); do opened || break; sleep 0.02; done
opened && fail "the test of the disk outlives ms-diag"
[ -z "$(ls -A disk)" ] || fail "a killed perf.disk left $(ls -A disk)"

expect 0 'soak.memory: [0-9]+ passes of 6 patterns over' \
  run --level 3 --only soak.memory --soak 100ms --memory 16MiB --config policy.toml
expect 0 'soak.cpu: [0-9]+ GEMMs of 384 x 384 compared' run --level 3 --only soak.cpu --soak 100ms --config policy.toml
expect 3 'asks for .*, and .* are free' run --level 3 --only soak.memory --memory 100TiB --config policy.toml
CUDA_LAUNCH_BLOCKING=1 expect 1 'warning +env.cuda CUDA_LAUNCH_BLOCKING: is 1' run --level 2 --only env.cuda --config policy.toml

if [ "$emulated" = none ]; then
  expect 0 'skip +perf.gpu: ' run --level 2 --only 'env.*,perf.gpu' --config policy.toml
  exit $((failures > 0))
fi
# ms-diag takes its libraries from beside itself.
mkdir bin lib
cp "$tool" bin/ms-diag
cp -L "$(dirname "$tool")/../lib/libfake_nvml.so" lib/libfake_nvml.so
ln -s "$emulated"/lib* lib/
tool=$dir/bin/ms-diag
export MS_EMULATED_GPU_COUNT=2 MS_EMULATED_GPU_MEMORY=268435456
printf 'gpus 2\n' >lib/gpus.txt
printf '[paths]\nnvml = "%s/lib/libfake_nvml.so"\n' "$dir" >gpu.toml
expect 0 'perf.gpu: gpu 0 fp32 .* TFLOP/s, gpu 0 bf16 .*, gpu 0 memory .* GB/s, gpu 1 fp32' \
  run --level 2 --only perf.gpu --config gpu.toml
expect 0 'perf.gpucopy: gpu 0 h2d .*, gpu 1 d2h .*, gpu 0 to gpu 1 .*, gpu 1 to gpu 0 .* \(pinned memory\)' \
  run --level 2 --only perf.gpucopy --config gpu.toml
expect 0 'perf.gpubits: [0-9]+ GEMMs of 128 x 128 compared on 2 GPUs' run --level 2 --only perf.gpubits --config gpu.toml
MS_EMULATED_FLIP=21 expect 1 'warning +perf.gpubits gpu [01]: 1 of [0-9]+ (fp32|bf16) on emulated GPU GEMMs differ' \
  run --level 2 --only perf.gpubits --config gpu.toml
MS_EMULATED_GPU_FAULT=ecc@matmul expect 1 'warning +perf.gpu gpu 0: it failed: .*ECC' \
  run --level 2 --only perf.gpu --config gpu.toml
printf '[active]\ngpu_h2d_gbps = 1e6\n' >much.toml
expect 1 'warning +perf.gpucopy gpu 0 h2d: .* of 1000000 expected' run --level 2 --only perf.gpucopy --config much.toml
# Over NCCL, if it was built in. Two GPUs are told apart by nobody, so that a loaded machine accuses none of them.
nccl() { expect "$1" "$2" run --level 3 --only "$3" --config "${4:-gpu.toml}"; }
"$tool" run --level 2 --only perf.nccl --config gpu.toml >out 2>err
if ! grep -q 'built without NCCL' out; then
  nccl 0 'perf.nccl: gpu 0 .* GB/s, gpu 1 .* GB/s .NCCL, each way between 2 GPUs' perf.nccl
  nccl 0 'perf.ncclnet: gpu 0 .* GB/s, gpu 1 ' perf.ncclnet
  printf '[active]\ngpu_a2a_gbps = 1e6\ngpu_net_gbps = 1e6\n' >much.toml
  nccl 1 'warning +perf.nccl gpu 1: .* of 1000000 expected' perf.nccl much.toml
  nccl 1 'warning +perf.ncclnet gpu 0: .* of 1000000 expected' perf.ncclnet much.toml
  MS_EMULATED_GPU_COUNT=1 nccl 3 'skip +perf.nccl: this process sees one GPU' perf.nccl
  export MS_EMULATED_GPU_COUNT=4
  # Slow within the node, or over its cards only: each check finds its own. Again where a busy machine makes all GPUs slow.
  names() { # CHECK GPU
    local try
    for try in 1 2 3 4 5; do
      "$tool" run --level 3 --only "$1" --config gpu.toml >out 2>err </dev/null
      grep -Eq "warning +$1 gpu $2: slow with every other GPU: .*, and pairs without it" out && return
    done
    fail "$1 does not name gpu $2 in $try tries"
  }
  MS_EMULATED_NCCL_SLOW=2@1000000 names perf.nccl 2
  MS_EMULATED_NCCL_NET_SLOW=1@1000000 names perf.ncclnet 1
  export MS_EMULATED_GPU_COUNT=3
  MS_EMULATED_NCCL_NET_SLOW=1@4000000 nccl 0 'perf.nccl: gpu 0 ' perf.nccl
  MS_EMULATED_NCCL_WRONG=1 nccl 1 'warning +perf.nccl gpu 1: [0-9]+ words that it sent arrived wrong at all other GPUs' perf.nccl
  MS_EMULATED_NCCL_NO_NET=1 nccl 1 'warning +perf.ncclnet all-to-all: it failed: joining group .*NCCL: unhandled system error' perf.ncclnet
  MS_EMULATED_NCCL_NO_NET=1 nccl 0 'perf.nccl: gpu 0 ' perf.nccl
  MS_EMULATED_NCCL_REFUSES=3@0 nccl 1 'warning +perf.nccl gpu [012]: it failed: .*it was to be refused' perf.nccl
  export MS_EMULATED_GPU_COUNT=2
fi
MS_EMULATED_GPU_COUNT=1 MS_EMULATED_GPU_MEMORY=67108864 expect 0 'soak.hbm: gpu 0 [0-9]+ passes over 48.0 MiB' \
  run --level 3 --only soak.hbm --soak 50ms --config gpu.toml
printf 'gpus 2\ngpu 1 clocks_event_reasons=0x40 temperature_c=91 power_mw=650000\n' >lib/gpus.txt
expect 1 'warning +soak.gpu gpu 1: slowed down under load by heat, 345 MHz at least, 91 C at most, 650 W at most' \
  run --level 3 --only soak.gpu --soak 2s --config gpu.toml
exit $((failures > 0))
