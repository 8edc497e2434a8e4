#!/usr/bin/env bash
# ms-tracepp on the command line: what it prints of traces of ours and of others, what it refuses, and how it exits.
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source=tests/support/training.sh
. "$(dirname "$0")/../support/training.sh"
bin=${tool%/*}
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'cd / && rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# A run of our own.
training_text 3000 >/dev/null 2>&1 || fail "ms-data encode"
tiny_config mesh.dp=2 mesh.pp=2 train.steps=30 train.eval_every=0 run.sample_tokens=0 train.microbatch= >c.toml
for run in a b; do
  "${tool%/*}/ms-train" run c.toml --set run.dir=$run >out 2>err || fail "ms-train run"
done

expect 0 'ranks +4 of 4, on 1 host' info a/trace
expect 0 '"ranks": ?4' info --json a/trace
expect 0 'steps +0 to 29' info a/trace
expect 0 'began 20[0-9-]+T[0-9:]+Z, last written 20' info a/trace
expect 0 '"done": ?4' info --json a/trace
expect 0 '^ended' info a/trace
grep -q '^earlier' out && fail "a first run has one before it"
mkdir after
cp a/trace/*.mst after
cp b/trace/rank-00000.mst after/rank-00000.mst.previous
expect 0 '^earlier +the steps of the run before this one are in after/[*].previous: ms-tracepp report after/[*].previous$' info after
expect 0 '"run_before": ?"after/[*].previous"' info --json after
expect 0 'on the critical path' report --all a/trace
expect 0 'part of a step' report a/trace
head -n 1 out | grep -Eq '^(Look first at|Nothing|No rank)' || fail "report does not begin with what to look at first"
expect 0 'more: --all' report a/trace
expect 0 'send forward' report --all a/trace
expect 0 '"look_first"' report --json a/trace
expect 0 'a step takes' stragglers a/trace
expect 0 'mean of 2[0-9] measured steps' stragglers a/trace
"$tool" stragglers --json a/trace >out 2>err
python3 -c '
import json
d = json.load(open("out"))
steps = [s["measured_s"] for s in d["steps"]]
assert abs(d["measured_s"] - sum(steps) / len(steps)) < 1e-9
assert all(abs(f["cost_share"] * d["measured_s"] - f["cost_s"]) < 1e-9 for f in d["findings"])
' || fail "seconds of stragglers --json are not of one step"
faults=$(python3 -c '
import json
print(int(any(f["fault"] and f["cost_share"] >= 0.002 for f in json.load(open("out"))["findings"])))')
expect "$faults" 'a step takes' stragglers --check a/trace
expect 0 '"M_W"' stragglers --json a/trace
expect 0 'ended well on 4 ranks' hang a/trace
expect 0 'ended well on 4 ranks' hang --check a/trace
expect 0 '"state": ?"ended"' hang --json a/trace
expect 0 'a step' diff a/trace b/trace
head -n 1 out | grep -Eq '^(no difference|[0-9.e+]+ ms (slower|faster) a step)' || fail "diff does not begin with a verdict"
grep -Eq '[+]0[.]0+%|[+]0[.]000' out && fail "diff prints what did not change"
expect 0 '^no difference: a step takes' diff a/trace a/trace
[ "$(wc -l <out)" -eq 1 ] || fail "a run differs from itself"
expect 0 '"parts"' diff --json a/trace b/trace
expect 0 '"schema": ?1' diff --json a/trace b/trace
expect 0 'wrote run.json, .*[0-9]+ events: open it at' export --format chrome -o run.json a/trace
python3 -c 'import json; assert len(json.load(open("run.json"))["traceEvents"]) > 1000' || fail "run.json is no Chrome trace"
expect 2 'made by ms-tracepp export' info run.json
"$tool" export --format csv -o - --ranks 2 a/trace 2>err | head -n 1 | grep -q '^rank,' || fail "export to standard output"
[ -e ./- ] && fail "a file named - was written"
expect 0 'wrote run.csv, .*[0-9]+ events$' export -o run.csv --ranks 1,3 --steps 3-4 a/trace
[ "$(cut -d, -f1 run.csv | sort -u | tr '\n' ' ')" = "1 3 rank " ] || fail "run.csv has other ranks"
[ "$(cut -d, -f6 run.csv | sort -u | tr '\n' ' ')" = "3 4 step " ] || fail "run.csv has other steps"
expect 0 'wrote run.perfetto' merge -o run.perfetto a/trace
[ -s run.perfetto ] || fail "run.perfetto is empty"
expect 0 'wrote run.json.gz' merge -o run.json.gz a/trace
gzip -t run.json.gz || fail "run.json.gz is no gzip"

# Several files of one trace.
expect 0 'wrote 3 files and index.json in shards, .* [0-9]+ events: open one at' export --shard-steps 10 -o shards a/trace
events=$(sed -n 's/.* \([0-9]*\) events: open one.*/\1/p' out)
python3 -c '
import json, os, sys
files = json.load(open("shards/index.json"))["files"]
assert [(f["first_step"], f["last_step"]) for f in files] == [(0, 9), (10, 19), (20, 29)], files
assert sum(f["events"] for f in files) == int(sys.argv[1]) and all(f["cut_arrows"] == 0 for f in files), files
assert sum(f["bytes"] for f in files) == sum(os.path.getsize("shards/" + f["file"]) for f in files)
assert all(f["bytes"] <= 40 * f["events"] for f in files), files
' "$events" || fail "the index of the shards"
expect 0 'wrote 2 files and index.json' export --format perfetto --shard-dp 1 -o replicas a/trace
grep -q '"ranks": "0,2"' replicas/index.json || fail "a shard is not a whole replica"
expect 2 'shards is not empty' export --shard-steps 10 -o shards a/trace
expect 2 'csv cannot be sharded' export --format csv --shard-steps 10 -o x a/trace
expect 2 'shards are several files' export --shard-steps 10 -o x.perfetto a/trace
expect 2 "shard-dp '0' is not a number from 1 on" export --shard-dp 0 -o x a/trace

# Heat maps: in a file, on terminals with and without colours.
expect 0 '^Ranks by kind of work: more or less of a step' heatmap a/trace
grep -Eq '^computing +[.1-9a-i][ .1-9a-i]*$' out || fail "no row of what the ranks compute"
expect 0 '^Stages and replicas' heatmap --by mesh a/trace
grep -Eq '^pp 1 +[.1-9a-i]' out || fail "no row of a stage"
on_terminal() { python3 -B "$here/terminal.py" 70 24 env -u NO_COLOR "$@" "$tool" heatmap a/trace >screen; }
on_terminal TERM=xterm-256color COLORTERM= || fail "heatmap on a terminal"
grep -q "$(printf '\033')\[48;5;" screen || fail "no colours on a terminal of 256"
on_terminal TERM=xterm-256color COLORTERM=truecolor || fail "heatmap on a terminal"
grep -q "$(printf '\033')\[48;2;" screen || fail "no colours on a terminal of all colours"
on_terminal TERM=xterm-256color NO_COLOR=1 || fail "heatmap without colours"
grep -q "$(printf '\033')" screen && fail "colours although NO_COLOR is set"
[ "$(wc -l <screen)" -lt 24 ] || fail "the map is higher than the terminal"
awk 'length > 70' screen | grep -q . && fail "the map is wider than the terminal"
expect 2 "by 'host' is not known: rank, mesh, experts" heatmap --by host a/trace
mkdir -p moe/trace
cp "$here/expert_loads.jsonl" moe/metrics.jsonl
expect 0 '^Experts by layer: tokens in step 10' heatmap --by experts moe
expect 0 '^13 of 32 experts had less than a tenth' heatmap --by experts moe/trace
expect 2 'no metrics.jsonl with the load of experts' heatmap --by experts a/trace
expect 2 'no metrics.jsonl with the load of experts' heatmap --by experts nowhere
echo '{"traceEvents": [{"ph": "X", "name": "a", "pid": 0, "tid": 0, "ts": 1, "dur": 5}]}' >few.json
expect 0 'one rank was traced: nothing to compare it with' heatmap few.json
expect 2 'does not say how ranks lie' heatmap --by mesh few.json
sed 's/}]}$/}, {"ph": "X", "name": "a", "pid": 0, "tid": 0, "ts": 9, "dur": NaN}]}/' few.json >nan.json
expect 0 '2 problems in the files, most often duration that is no number' heatmap nan.json
echo '{"traceEvents": [{"ph": "B", "name": "a", "pid": 0, "tid": 0, "ts": 1}]}' >open.json
expect 2 'no finished step' heatmap open.json

# One file of many, one that is cut off, one that is not there.
expect 0 'ranks +1 of 4' info a/trace/rank-00002.mst
mkdir cut && cp a/trace/*.mst cut && truncate -s -9000 cut/rank-00001.mst
expect 0 'not used +page of events cut off' info cut
rm cut/rank-00003.mst
expect 0 'ranks +3 of 4' info cut

# Gaps in traces are told first.
"$tool" stragglers a/trace | head -n 1 | grep -q '^a step takes' || fail "something of a whole trace is missing"
for how in removed emptied short; do
  rm -rf gaps && mkdir gaps && cp a/trace/*.mst gaps
  case $how in
    removed) rm gaps/rank-00003.mst && why= ;;
    emptied) : >gaps/rank-00003.mst && why='; gaps/rank-00003.mst: is empty' ;;
    short) truncate -s 100 gaps/rank-00003.mst && why='; gaps/rank-00003.mst has no sound header' ;;
  esac
  expect 0 "^not everything was traced: rank 3 of 4 has no trace$why" stragglers --check gaps
  head -n 1 out | grep -q '^not everything' || fail "stragglers does not begin with what is missing: $how"
  expect 0 '"missing_first": ?[[]' stragglers --json gaps
  expect 0 "^Not everything was traced: rank 3 of 4 has no trace$why" report gaps
  expect 0 "^missing +rank 3 of 4 has no trace$why" info gaps
done
for rank in 0 1 2 3; do
  cp a/trace/rank-0000$rank.mst gaps
  truncate -s "$(($(stat -c %s gaps/rank-0000$rank.mst) * 99 / 100))" gaps/rank-0000$rank.mst
done
expect 2 'on all 2 stages: [0-9]+ pages of events are cut off or damaged, of ranks 0, 1, 2, 3$' stragglers gaps
cp a/trace/*.mst gaps
python3 -c '
data = bytearray(open("gaps/rank-00001.mst", "rb").read())
pages = [at for at in range(0, len(data) - 4095, 4096) if data[at:at + 4] == b"BSTP"]
data[pages[len(pages) // 2] + 100] ^= 1
open("gaps/rank-00001.mst", "wb").write(data)'
expect 0 '^not everything was traced: 1 page of events is cut off or damaged, of rank 1$' stragglers gaps
expect 0 'pages of rank 1 with events of it are lost' stragglers --json gaps

# Flight Recorder dumps: without entries, and of nodes that count their own ranks.
python3 -c '
import json, os, time
now = time.time_ns()
def put(name, rank, entries):
    os.makedirs(os.path.dirname(name), exist_ok=True)
    calls = [{"record_id": i, "process_group": ["0", "default_pg"], "collective_seq_id": i + 1, "state":
              "completed" if i < 5 else "started", "profiling_name": "nccl:all_reduce",
              "time_created_ns": now - (900 - 50 * i) * 10**9 + rank, "time_discovered_completed_ns":
              now - (899 - 50 * i) * 10**9 if i < 5 else None} for i in range(entries)]
    json.dump({"pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}, "pg_status": {},
               "entries": calls}, open(name, "w"))
for rank in range(4):
    put(f"hollow/rank_{rank}", rank, 0)
    put(f"nodes/node{rank // 2}/rank_{rank % 2}", rank, 5 if rank == 3 else 6)
'
expect 1 'nothing tells whether the run is well: .* no entries' hang --check hollow
expect 1 'suspect 50 %: the rank of node1/rank_1: not_issuing' hang --check nodes
expect 0 'not comparable: the first run is dumps' diff nodes nodes
grep -q 'a step' out && fail "diff compares steps of dumps, which have none"

# What lies beside traces, and where results go to.
mkdir odd && cp a/trace/*.mst odd && mkfifo odd/pipe && ln -s /dev/zero odd/zero && ln -s . odd/loop
printf 'x' >"odd/$(printf 'a\033[2Jb')"
expect 0 'ranks +4 of 4' info odd
ln -s /dev/full full
expect 74 'No space left' merge -o full a/trace
[ -c full ] || fail "a file took the place of a device"
"$tool" report a/trace >/dev/full 2>err && fail "a report that could not be written"
"$tool" info "$(printf 'a\033[2Jb')" >out 2>&1 && fail "a file that is not there"
grep -q "$(printf '\033')" out && fail "a control character on the terminal"
head -c 300000000 /dev/zero | tr '\0' '[' | gzip -1 >bomb.json.gz
expect 2 'no traces' info bomb.json.gz

# Refusals.
expect 2 'cannot open' info absent
mkdir empty
expect 2 'empty' report empty
expect 2 'hint: ms-train writes traces to trace.dir' report empty
mkdir above && cp -r a above/run
expect 2 'hint: did you mean above/run/trace' report above
expect 2 'no events in steps 900-901; the trace has 0-29' merge -o x --steps 900-901 a/trace
expect 2 'no events of ranks 99; the trace has 0-3' export -o x --ranks 99 a/trace
[ -e x ] && fail "an empty file was written"
expect 2 'empty is a directory' merge -o empty a/trace
expect 2 '--format csv, but the name x.json says chrome' export --format csv -o x.json a/trace
echo 'no trace' >words
expect 2 'words' info words
expect 2 '--output FILE is missing' merge a/trace
expect 2 "format 'png' is not known" export --format png -o x a/trace
expect 2 'ends before it begins' export -o x --steps 5-3 a/trace
expect 2 'is not a number' export -o x --ranks 1,b a/trace
expect 2 '.' report
expect 0 'stragglers' --help
expect 0 'ms-trace' --man
expect 0 'GLOSSARY' --man
[ "$failures" -eq 0 ]
