#!/usr/bin/env bash
# ms-driver under floods, on the test cluster: a command that writes lines as fast as srun passes them on, and silent
# connections to the driver's port as fast as two processes of another node can open them. How old its status is, how long
# SIGUSR2 (a time limit) takes to the end of the driver, and how long an agent that was killed takes to be back.
# usage: tests/bench/driver_flood.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
build=$(realpath "${BUILD:-$here/../../build/release}")
cmake --build "$build" --target ms-driver ms-diag >/dev/null
export CLUSTER_BUILD=$build
# shellcheck disable=SC2016 # for the shell on the controller
exec "$here/../cluster/run" 2 --cpus 2 -- bash -euo pipefail -c '
cd "$CLUSTER_DIR/shared"
# begin LINE: a job whose one rank writes the line for ever.
begin() {
  printf "%s" "$1" >line
  cat >job.sh <<TEXT
#!/bin/bash
exec ms-driver run --spares 1 --run-dir $PWD/r -- bash -c "trap \"exit 0\" USR2; yes \"\$(cat line)\" & wait"
TEXT
  job=$(sbatch --parsable --no-kill --exclusive --nodes=2 --ntasks-per-node=1 -o job.log job.sh)
  wait-until 60 test -s r/driver/attempt-1.log
}
status_age() {
  timeout 10 ms-driver status r >/dev/null
  python3 -c "import json, time; print(time.time() - json.load(open(\"r/driver/status.json\"))[\"written_s\"])"
}
worst_age() { for _ in {1..20}; do status_age; sleep 0.2; done | sort -n | tail -n 1; }
end() {
  local begin=$EPOCHREALTIME
  scancel --batch --signal=USR2 "$job"
  wait-until 60 bash -c "[[ \$(squeue -h -t running -j $job) == \"\" ]]"
  awk "BEGIN { print $EPOCHREALTIME - $begin }"
  rm -rf r job.log
}
for length in 0 200 4000; do
  begin "$(printf "%${length}s" "" | tr " " x)"
  sleep 5
  before=$(stat -c %s r/driver/attempt-1.log)
  sleep 5
  after=$(stat -c %s r/driver/attempt-1.log)
  printf "lines of %d bytes | %d MB/s | status at most %.1f s old | SIGUSR2 to the end %.1f s\n" "$length" \
    $(((after - before) / 5000000)) "$(worst_age)" "$(end)"
done

begin quiet
sleep 1
cat >flood.py <<TEXT
import json, socket, sys, time
state = json.load(open("r/driver/state.json"))
host, port = state["addresses"][-1].rsplit(":", 1)
opened, kept, end = 0, [], time.time() + 12
while time.time() < end:
    try:
        s = socket.socket(); s.settimeout(1); s.connect((host, int(port))); kept.append(s); opened += 1
    except OSError: pass
    if len(kept) > 200: kept.pop(0).close()
print(opened / 12)
TEXT
for flood in 1 2; do on-node node02 python3 flood.py >flood.$flood & done
sleep 2
before=$(grep -c "the agent of node02 is here" job.log)
begin_s=$EPOCHREALTIME
on-node node02 pkill -KILL -f "ms-driver agent"
wait-until 30 bash -c "[[ \$(grep -c \"the agent of node02 is here\" job.log) -gt $before ]]"
back_s=$(awk "BEGIN { print $EPOCHREALTIME - $begin_s }")
age_s=$(worst_age)
wait
printf "connections | %.0f a second | status at most %.1f s old | an agent is back after %.1f s\n" \
  "$(awk "{ n += \$1 } END { print n }" flood.1 flood.2)" "$age_s" "$back_s"
'
