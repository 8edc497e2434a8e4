#!/usr/bin/env bash
# Whom tools accuse on a busy machine: runs faults beside `stress-ng --cpu LOAD` and counts right names, "cannot tell" and
# wrong names. Fails if a name was wrong, or there was no verdict.
# usage: tests/bench/accusations.sh LOAD RUNS [CASE...]
# LOAD 0 runs nothing beside it. CASE is a tool or a case of the table below with hyphens for spaces, as a-rank-exits; without
# one all run but those of ms-driver, which take a minute each. Needs the programs of BUILD (build/release), mpirun, and
# stress-ng unless LOAD is 0. BESIDE runs of a case go at the same time (1); KEEP is a folder for what wrong ones leave.
# shellcheck disable=SC2317 # functions that the table names
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
load=${1:?LOAD} runs=${2:?RUNS} beside=${BESIDE:-1}
shift 2
build=$PWD/${BUILD:-build/release} bin=$PWD/${BUILD:-build/release}/bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset SLURM_JOB_ID SLURM_JOB_NODELIST
work=$(mktemp -d)
stress=
finish() {
  [ -z "$stress" ] || kill "$stress" 2>/dev/null
  cd / && rm -rf "$work"
}
trap finish EXIT
# shellcheck source=tests/support/training.sh
. tests/support/training.sh
cd "$work" || exit 1
if ((load > 0)); then
  stress-ng --cpu "$load" --timeout 3600 --quiet &
  stress=$!
fi

# ms-netcheck takes its libraries from beside itself.
mkdir bin && cp "$bin/ms-netcheck" bin && ln -s "$build/emulated/lib" lib
training_text 4000 >/dev/null 2>&1 || exit 1
tiny_config mesh.dp=2 mesh.tp=2 train.steps=1000000 'run.dir="run"' 'run.comm_timeout="5s"' >four.toml
tiny_config model.layers=4 model.hidden=64 model.seq=64 model.tied_embeddings=false mesh.dp=2 mesh.pp=2 mesh.tp=2 \
  train.steps=60 train.global_batch=16 train.eval_every=0 data.valid_fraction=0 'run.dir="run"' \
  run.sample_tokens=0 'run.comm_timeout="5s"' 'trace.flush="0.2s"' >eight.toml
ranks() { timeout 120 mpirun --oversubscribe --bind-to none -np "$@" >log 2>&1; } # NUMBER COMMAND...

# Each prints the rank that is named, "-" where the tool does not tell, or another text: a wrong name.
netcheck() { # FAULT: of rank 2 of four, on emulated GPUs
  # shellcheck disable=SC2016 # for the ranks' own shells
  FAULT=$1 MS_EMULATED_GPU_MEMORY=200000000 ranks 4 sh -c \
    '[ "$OMPI_COMM_WORLD_RANK" != 2 ] || export "$FAULT"; exec "$@"' sh "$work/bin/ms-netcheck" locate --transport nccl \
    --seconds 50ms --pings 10 --deadline 4s --json
  python3 - <<'PY'
import json
text = open("log").read()
try:
    found = json.JSONDecoder().raw_decode(text[text.index("{\n"):])[0]["findings"]
except ValueError:
    found = []
named = {f["entity"].rsplit(":", 1)[-1] for f in found if f["code"] != "net.undecided"}
print(",".join(sorted(named)) or "-")
PY
}
train() { # FAULT: of four ranks; the verdict, from which ms-driver names a node
  rm -rf run
  MS_FAULT=$1 ranks 4 "$bin/ms-train" run four.toml
  python3 - <<'PY'
import json, os
print(json.load(open("run/verdict.json")).get("rank", "-") if os.path.exists("run/verdict.json") else "no verdict")
PY
}
hang() { # FAULT: of eight ranks; the first suspect, where the tool is sure of one
  rm -rf run
  MS_FAULT=$1 ranks 8 "$bin/ms-train" run eight.toml
  "$bin/ms-tracepp" hang --json run/trace >said 2>/dev/null
  python3 -c 'import json; s = json.load(open("said"))["suspects"]; print(s[0]["rank"] if s and s[0]["confidence"] > 0.5 else "-")'
}
stragglers() { # FAULT: of eight ranks as threads; the rank of the first finding that accuses one of being slow
  rm -rf run
  MS_FAULT=$1 timeout 120 "$bin/ms-train" run eight.toml >log 2>&1
  "$bin/ms-tracepp" stragglers --json run/trace >said 2>/dev/null
  python3 -c '
import json
slow = [f["ranks"] for f in json.load(open("said"))["findings"] if f["code"] == "slow_rank"]
print(slow[0][0] if slow else "-")'
}
diag() { # level 2 on this node, which is healthy: a finding of its performance is a wrong name
  timeout 300 "$bin/ms-diag" run --level 2 --only 'perf.*' --json >said 2>/dev/null
  python3 - <<'PY'
import json
print(",".join(f["code"] for f in json.load(open("said"))["findings"] if f["severity"] != "note") or "-")
PY
}

driver() { # FAULT: a row of the driver's table, on a Slurm of its own (as root): whom the first attempt accuses
  local located
  located=$("$build/../../tests/cluster/driver_faults.sh" "$build" "$1" 2>log | tail -n 1 | cut -d '|' -f 3 | tr -d ' ')
  case $located in undecided | -) echo - ;; *) echo "${located:-failed}" ;; esac
}

# tool | case | right name | command
cases() {
  cat <<'TABLE'
ms-netcheck | a transfer hangs | 2 | netcheck MS_EMULATED_NCCL_HANG=30
ms-netcheck | a connection hangs | 2 | netcheck MS_EMULATED_NCCL_CONNECT_HANGS=2
ms-netcheck | a rank is stopped | 2 | netcheck MS_EMULATED_NCCL_STOPS=30
ms-netcheck | a rank dies | 2 | netcheck MS_EMULATED_NCCL_DIES=30
ms-train | a rank hangs | 3 | train "step=5 rank=3 hang"
ms-train | a rank exits | 2 | train "step=5 rank=2 exit"
ms-train | a rank is killed | 1 | train "step=5 rank=1 kill"
ms-tracepp | a rank hangs | 3 | hang "step=30 rank=3 hang"
ms-tracepp | a rank is killed | 4 | hang "step=30 rank=4 kill"
ms-tracepp | a slow rank | 5 | stragglers "step=10 rank=5 slow=1.5"
ms-tracepp | a very slow rank | 5 | stragglers "step=10 rank=5 slow=4"
ms-tracepp | a healthy run | - | stragglers "step=59 rank=5 restart=9 slow=4"
ms-diag | a healthy node | - | diag
ms-driver | a rank is stopped | right | driver rank-stopped
ms-driver | an endless loop | right | driver endless-loop
ms-driver | a collective is never entered | right | driver never-enters-a-collective
ms-driver | a rank exits | right | driver rank-exits
TABLE
}

failed=0
echo "tool | case | load | runs | right | cannot tell | wrong"
while IFS='|' read -r tool name right command; do
  tool=${tool// /} right=${right// /} name=$(xargs <<<"$name")
  if (($# > 0)) && [[ " $* " != *" $tool "* && " $* " != *" ${name// /-} "* ]]; then continue; fi
  if (($# == 0)) && [[ $tool == ms-driver ]]; then continue; fi
  good=0 unsure=0 wrong=()
  rm -rf run-*
  for ((i = 0; i < runs; i += beside)); do
    for ((j = i; j < runs && j < i + beside; ++j)); do
      mkdir "run-$j"
      (cd "run-$j" && ln -s ../text* ../*.toml . && eval "$command" >named 2>&1 </dev/null) &
    done
    for job in $(jobs -p); do [ "$job" = "$stress" ] || wait "$job"; done
  done
  for ((i = 0; i < runs; ++i)); do
    named=$(cat "run-$i/named")
    case $named in
      "$right") good=$((good + 1)) ;;
      -) unsure=$((unsure + 1)) ;;
      *)
        wrong+=("$named")
        [ -z "${KEEP:-}" ] || cp -r "run-$i" "$KEEP/${name// /-}-$load-$i"
        ;;
    esac
  done
  echo "$tool | $name | $load | $runs | $good | $unsure | ${#wrong[@]}${wrong[*]:+ (${wrong[*]})}"
  ((${#wrong[@]} == 0)) || failed=1
done < <(cases)
exit "$failed"
