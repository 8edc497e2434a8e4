# shellcheck shell=bash disable=SC2154 # sourced by checkpoint.sh, after checkpoint_run.sh
# Cases in which something strikes a run while it saves: it is killed, or its disk says no.

# Killed at one call after the other, again and again in the same directory, until a run comes through.
case_kills() {
  reference
  count_calls
  local at what last=-1 kills=0 ats
  mapfile -t ats < <(points "${count:-40}")
  for at in "${ats[@]}"; do
    what=$(one_of kill-before kill-after torn)
    # In the same directory, but for every call in its turn: a resumed run makes fewer.
    if [ "${count:-40}" = all ] || [ "$last" -ge "$steps" ]; then
      rm -rf ck
      last=-1
    fi
    with_fault "$what" "$at" 0 "$bin/ms-train" run c.toml --set "checkpoint.async=$(one_of true false)"
    if [ "$code" -eq 137 ]; then
      kills=$((kills + 1))
    elif [ "$code" -ne 0 ]; then
      fail "$what at call $at ended with $code"
    fi
    after_strike "$last" struck.err
    same_losses
    last=$newest
    # Every third time to the end, from there.
    if [ "${count:-40}" = all ] || [ $((strikes % 3)) -eq 0 ]; then
      resume
      last=$steps
    fi
  done
  [ $((kills * 3)) -ge "$strikes" ] || fail "only $kills of $strikes runs were killed: this tests nothing"
  resume
  echo "$kills kills over $calls_in_all calls of a run"
}

# Waits for the ranks to end, which is theirs to do in time, and for mpiexec. That one may wait for a lock of its own for
# ever (PMIx_server_finalize) where a rank was killed while it connected: then it is ended here.
mpiexec_ends() {
  local deadline=$((SECONDS + 60))
  # shellcheck disable=SC2046 # words
  while kill -0 "$job" 2>/dev/null && ps -o stat= -p $(cat pid.* | paste -s -d ,) | grep -qv '^Z'; do
    [ "$SECONDS" -lt "$deadline" ] || fail "a minute after the kill there are still ranks"
    sleep 0.05
  done
  for ((i = 0; i < 100; i++)); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.05
  done
  kill -KILL "$job" 2>/dev/null && echo "mpiexec had to be killed"
  wait "$job"
  job=
}

# Processes of a real MPI run, killed at any moment: one, or all at once.
case_kills_mpi() {
  [ "$mpiexec" != - ] || skip "built without MPI"
  reference
  local last=-1 kills=0 victim
  for ((round = 0; round < ${count:-10}; round++)); do
    if [ "$last" -ge "$steps" ]; then
      rm -rf ck
      last=-1
    fi
    rm -f pid.*
    # shellcheck disable=SC2016 # for the shell of each rank
    setsid "$mpiexec" --oversubscribe --bind-to none -np 4 sh -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' \
      sh "$bin/ms-train" run c.toml --set "checkpoint.async=$(one_of true false)" >struck.out 2>struck.err </dev/null &
    job=$!
    while [ "$(cat pid.* 2>/dev/null | wc -l)" -lt 4 ] && kill -0 "$job" 2>/dev/null; do sleep 0.01; done
    sleep "0.$(printf %03d $((RANDOM % 600)))"
    victim=$(one_of 0 1 2 3 all)
    if [ "$victim" = all ]; then victim='*'; fi
    # shellcheck disable=SC2046,SC2086 # a pattern, and words
    if kill -KILL $(cat pid.$victim) 2>/dev/null; then kills=$((kills + 1)); fi
    mpiexec_ends
    strikes=$((strikes + 1))
    after_strike "$last" struck.err
    same_losses
    last=$newest
  done
  [ "$kills" -gt 0 ] || fail "no process was killed: this tests nothing"
  # Bit by bit the same over MPI and as threads of one process.
  resume
  echo "$kills kills"
}

# ms-ckpt prune, killed at every call: what it was to keep stays, whatever goes is gone or never looked at again.
case_prune() {
  reference
  train --set checkpoint.keep_last=0
  local at keep=(prune --keep-last 2 --keep-every 4 ck) rest
  mv ck ck.all
  cp -a ck.all ck
  with_fault none 0 0 "$bin/ms-ckpt" "${keep[@]}"
  [ "$code" -eq 0 ] || fail "prune ended with $code"
  look
  [ "${complete[*]##*-}" = "00000004 00000008 00000010 00000012" ] || fail "prune left ${complete[*]}"
  local total
  total=$(wc -l <calls)
  [ "$total" -gt 10 ] || fail "the shim saw only $total calls: this tests nothing"
  for ((at = 1; at <= total; at++)); do
    rm -rf ck
    cp -a ck.all ck
    with_fault "$(one_of kill-before kill-after)" "$at" 0 "$bin/ms-ckpt" "${keep[@]}"
    [ "$code" -eq 137 ] || fail "killed at call $at of $total, prune ended with $code"
    look
    none_half
    all_sound
    [ "$newest" -eq "$steps" ] || fail "killed at call $at, prune has left step $newest as the newest"
    "$bin/ms-ckpt" "${keep[@]}" >out 2>err || fail "prune after a kill at call $at failed"
    look
    rest=${complete[*]##*-}
    [ "$rest" = "00000004 00000008 00000010 00000012" ] || fail "prune after a kill at call $at left $rest"
  done
}

# ---- the disk says no

# A call fails, once or from then on: the run goes on and says what it could not save, or ends as a failure of storage,
# saying so once; it never says that it saved what it did not.
case_errors() {
  reference
  count_calls
  local what on at told ats errors=(ENOSPC EIO EROFS) ons=(0 1) went_on=0 ended=0
  mapfile -t ats < <(points "${count:-60}")
  for at in "${ats[@]}"; do
    if [ "${count:-60}" != all ]; then
      errors=("$(one_of ENOSPC EIO EROFS)")
      ons=("$(one_of 0 0 1)")
    fi
    for what in "${errors[@]}"; do
      for on in "${ons[@]}"; do
        rm -rf ck run
        with_fault "$what" "$at" "$on" "$bin/ms-train" run c.toml --set "checkpoint.async=$(one_of true false)"
        case $code in
          0) went_on=$((went_on + 1)) ;;
          2) # a file system that may not be written to where the directory is to be: the path is wrong
            if [ "$what" != EROFS ] || ! sed -n "${at}p" calls | grep -q ' mkdir ck$'; then
              fail "$what at call $at ended with $code"
            fi
            ;;
          74)
            ended=$((ended + 1))
            [ "$(grep -c 'error:' struck.err)" -eq 1 ] || fail "$what at call $at ($(sed -n "${at}p" calls)): not one message"
            ;;
          *) fail "$what at call $at ($(sed -n "${at}p" calls)) ended with $code" ;;
        esac
        after_strike -1 struck.err
        same_losses
        # Of every save it was said what became of it; the last step is saved, or that is an error.
        if [ "$code" -eq 0 ]; then
          [ "$newest" -eq "$steps" ] || fail "$what at call $at: the last step is not saved, exit code 0"
          told=$(sed -nE 's/.*checkpoint of step ([0-9]+)(: committed| failed).*/\1/p' struck.err | sort -u | wc -l)
          [ "$told" -eq $((steps / 2)) ] || fail "$what at call $at: of $((steps / 2)) saves, it is told of $told what became"
        fi
        resume
      done
    done
  done
  [ "$went_on" -gt 0 ] || fail "no run went on after an error of the disk: this tests nothing"
  echo "$went_on runs went on, $ended ended with 74"
}

# The kernel may write less than it is asked to; that is no error.
case_short() {
  reference
  count_calls
  with_fault short 1 1 "$bin/ms-train" run c.toml
  [ "$code" -eq 0 ] || fail "with short writes, the run ended with $code"
  [ "$(grep -c ' p\?write' calls)" -gt "$(grep -c ' p\?write' calls.ref)" ] || fail "no write was short: this tests nothing"
  after_strike -1 struck.err
  same_losses 1 "$steps"
  resume
}

# The disk is full for more saves than any run used to survive: it trains on, says so, and saves again when there is room. With
# checkpoint.max_failed it ends.
case_freed() {
  unshare -m true 2>/dev/null || skip "no mount namespace to be had"
  mkdir -p ck
  cat >inner.sh <<'SH'
mount -t tmpfs -o size=4m none ck || exit 77
dd if=/dev/zero of=ck/ballast bs=1k status=none 2>/dev/null
"$1" run c.toml --set checkpoint.max_failed=2 --set train.steps=100000 >out 2>err
echo $? >code.ended
"$1" run c.toml --set train.steps=100000 >struck.out 2>struck.err &
job=$!
for _ in $(seq 300); do
  [ "$(grep -c 'failed, and another is tried' struck.err)" -ge 5 ] && break
  sleep 0.1
done
rm ck/ballast
for _ in $(seq 300); do
  grep -q 'committed' struck.err && break
  sleep 0.1
done
kill -USR2 $job
wait $job
echo $? >code.freed
SH
  timeout 400 unshare -m sh inner.sh "$bin/ms-train" </dev/null >inner.err 2>&1
  [ "$?" -ne 77 ] || skip "no tmpfs to be had"
  strikes=2
  [ "$(cat code.ended)" -eq 74 ] || fail "with max_failed = 2, the run ended with $(cat code.ended)"
  grep -q 'error: .*, the second failure in a row: .*No space left' err || fail "with max_failed = 2, it does not say why"
  [ "$(cat code.freed)" -eq 75 ] || fail "the run ended with $(cat code.freed), not 75 with a checkpoint"
  [ "$(grep -c 'failed, and another is tried: .*No space left' struck.err)" -ge 5 ] || fail "fewer than 5 saves failed"
  grep -q 'checkpoint of step [0-9]*: committed' struck.err || fail "nothing was saved when there was room again"
}
# A file system that is full, then read-only, as the kernel has it and not the shim: the run goes on, the checkpoints that
# are there stay.
case_full() {
  unshare -m true 2>/dev/null || skip "no mount namespace to be had"
  reference
  local size
  size=$(du -sk ck.ref/step-00000012 | cut -f 1)
  mkdir -p ck
  cat >inner.sh <<'SH'
mount -t tmpfs -o size="$2k" none ck || exit 77
"$1" run c.toml >struck.out 2>struck.err
echo $? >code.full
cp -a ck ck.full
cp run/metrics.jsonl metrics.full
mount -o remount,ro ck
"$1" run c.toml >readonly.out 2>readonly.err
echo $? >code.readonly
SH
  timeout 900 unshare -m sh inner.sh "$bin/ms-train" $((size * 5 / 2)) </dev/null >err 2>&1
  [ "$?" -ne 77 ] || skip "no tmpfs to be had"
  strikes=1
  rm -rf ck
  mv ck.full ck
  [ "$(cat code.full)" -eq 74 ] || fail "on a full disk, the run ended with $(cat code.full), not 74: its last step is not saved"
  [ "$(grep -c 'error:' struck.err)" -eq 1 ] || fail "on a full disk: not one message"
  grep -q 'No space left on device' struck.err || fail "on a full disk: no word of it"
  cp metrics.full run/metrics.jsonl
  same_losses
  look
  all_sound
  if [ "$newest" -lt 2 ] || [ "$newest" -ge "$steps" ]; then fail "on a full disk, the newest checkpoint is of step $newest"; fi
  cp readonly.err struck.err
  [ "$(cat code.readonly)" -eq 74 ] || fail "on a read-only disk, the run ended with $(cat code.readonly), not 74"
  [ "$(grep -c 'error:' readonly.err)" -eq 1 ] || fail "on a read-only disk: not one message"
  resume
}

# ---- the protocol, as the calls show it

# What is renamed into place was synced before, file by file and the directory too; and before anything is deleted, the
# rename is on the disk.
case_order() {
  reference
  rm -rf ck
  with_fault none 0 0 "$bin/ms-train" run c.toml
  [ "$code" -eq 0 ] || fail "the run ended with $code"
  python3 - "$dir/ck" <<'PYTHON' || fail "the order of calls is wrong"
import os, sys
top = sys.argv[1]
dirty, entries, renamed, commits, deletions = set(), set(), False, 0, 0  # files; directories with new names in them
clean = os.path.abspath
for line in open("calls"):
    number, name, *paths = line.split()
    paths = [clean(path) for path in paths]
    if name.startswith(("open", "creat", "fopen")):
        dirty.add(paths[0]); entries.add(os.path.dirname(paths[0]))
    elif "write" in name or "truncate" in name or "allocate" in name:
        dirty.add(paths[0])
    elif name.startswith("mkdir"):
        entries.add(os.path.dirname(paths[0]))
    elif name in ("fsync", "fdatasync", "syncfs"):
        dirty.discard(paths[0]); entries.discard(paths[0])
        if paths[0] == top: renamed = False
    elif name.startswith("rename"):
        source, to = paths
        if os.path.dirname(to) == top:
            assert not renamed, f"call {number}: the rename before this one is not on the disk yet"
            inside = {path for path in dirty if path.startswith(source + "/")}
            if os.path.basename(to).startswith("step-"):
                assert not inside, f"call {number}: {to} is published, not on the disk: {inside}"
                assert source not in entries, f"call {number}: {to} is published, its directory is not on the disk"
                commits += 1
            renamed = True
        else:
            assert source not in dirty, f"call {number}: {to} is renamed before it is on the disk"
            dirty.discard(source); entries.add(os.path.dirname(to))
    elif name.startswith(("unlink", "rmdir", "remove")):
        path = paths[0]
        if "/step-" in path or "/deleting-" in path or not path.startswith(top):
            assert not renamed, f"call {number}: {path} is deleted before the rename is on the disk"
            deletions += 1
        dirty.discard(path)
assert not renamed, "the last rename was not synced"
assert commits == 6, f"{commits} commits"
assert deletions > 0, "nothing was pruned"
print(f"{commits} commits, {deletions} deletions")
PYTHON
}
