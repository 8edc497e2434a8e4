#!/usr/bin/env bash
# The loader of a node beside ms-train: who opens files, every layout's samples, and what happens when it dies.
# usage: ms_train_loader_test.sh MS-TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
training_directory
tiny_config model.layers=4 train.steps=12 train.eval_every=5 train.microbatch=1 'run.dir="run"' >c.toml
chain_of() { "$bin/ms-data" sample c.toml --set train.steps="$1" --step "$1" --chain | tail -n 1 | cut -d ' ' -f 5; }
chain=$(chain_of 12)
[ "${#chain}" -eq 16 ] || fail "ms-data sample gives no chain"
chain_is() {
  tail -n 1 run/metrics.jsonl | grep -q "^{\"step\":$2,.*\"data_chain\":\"$1\"" ||
    fail "$3 has another chain than its configuration"
}

# Ranks share a loader, and all get the sampler's samples, those of the validation between them.
for mesh in '1 1 1' '8 1 1' '1 8 1' '1 1 4' '2 2 2'; do
  read -r dp tp pp <<<"$mesh"
  expect 0 'step 12 of 12' run c.toml --set mesh.dp="$dp" --set mesh.tp="$tp" --set mesh.pp="$pp" --set model.heads=8
  chain_is "$chain" 12 "a run of dp $dp, tp $tp and pp $pp"
  grep -o 'valid [0-9.]*' err | tail -n 1 >"valid-$dp$tp$pp"
done
cmp -s valid-111 valid-811 || fail "another validation loss with eight dp ranks: $(cat valid-*)"
if command -v mpirun >/dev/null; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  if mpirun --oversubscribe -np 4 "$tool" run c.toml --set mesh.dp=2 --set mesh.pp=2 >out 2>err; then
    chain_is "$chain" 12 "a run of four processes"
  else
    grep -q 'built without MPI' err || fail "a run of four processes"
  fi
fi

# long ARGS...: starts a run, and waits until its loader reads. Sets $run, $standby and $loader, their processes.
child() {
  local first=''
  read -r first _ 2>/dev/null <"/proc/$1/task/$1/children"
  echo "$first"
}
long() {
  rm -rf run
  "$tool" run c.toml --set train.eval_every=0 "$@" >out 2>err </dev/null &
  run=$!
  for ((i = 0; i < 1000; ++i)); do
    standby=$(child "$run")
    loader=$(child "${standby:-none}")
    [ -n "$loader" ] && grep -q '"step":2,' run/metrics.jsonl 2>/dev/null && return
    sleep 0.01
  done
  fail "no loader has begun"
  exit 1
}

# Waits until another loader reads; sets $loader.
next_loader() {
  local before=$loader
  for ((i = 0; i < 1000; ++i)); do
    loader=$(child "$standby")
    [ -n "$loader" ] && [ "$loader" != "$before" ] && return
    sleep 0.01
  done
  fail "there is no other loader"
}

# Killed or stopped, it is replaced, and nothing is lost or read twice.
long --set train.steps=800
[ "$(cat "/proc/$loader/comm") $(cat "/proc/$standby/comm")" = 'ms-loader ms-load-standby' ] || fail "processes without names"
grep -q 'text.bin' "/proc/$loader/maps" || fail "the loader has no file open"
grep -q 'text.bin' "/proc/$run/maps" && fail "a rank has opened the data"
for signal in KILL KILL STOP; do
  kill "-$signal" "$loader"
  next_loader
done
wait "$run" || fail "a run whose loader was killed"
[ "$(grep -c 'the loader, process [0-9]*, has ended: killed by signal 9.*another takes over' err)" -eq 3 ] || fail "nothing is said"
grep -q 'the loader, process [0-9]*, was stopped by signal 19' err || fail "no word of the loader that was stopped"
chain_is "$(chain_of 800)" 800 "a run whose loader was killed"

# Without its standby there is no other: the node is at fault, and the verdict says so.
long --set train.steps=1000000
kill -KILL "$standby"
wait "$run"
code=$?
[ "$code" -eq 69 ] || fail "exit code $code after the standby was killed, expected 69"
grep -q 'the process that loads data for this node' err || fail "no word of the loader"
grep -q 'loads data for this node' run/verdict.json || fail "the verdict does not name the loader"

# The loader ends with its run, however that ends.
long --set train.steps=1000000
kill -KILL "$run"
wait "$run" 2>/dev/null
for ((i = 0; i < 300; ++i)); do
  [ -d "/proc/$loader" ] || break
  grep -qs '^State:.Z' "/proc/$loader/status" && break # whoever inherits it has not looked yet
  sleep 0.01
done
[ "$i" -lt 300 ] || fail "the loader outlives its run"

# A file that shrinks while it is read: named, and the fault of its storage.
long --set train.steps=1000000
truncate -s 1000 text.bin
wait "$run"
code=$?
[ "$code" -eq 74 ] || fail "exit code $code after a file was cut, expected 74"
grep -q 'text.bin was cut while it was in use' err || fail "no word of the file that was cut"

exit "$((failures > 0))"
