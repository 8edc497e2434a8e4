#!/usr/bin/env bash
# A healthy node that other programs keep busy is not accused: level 2 runs again and again beside programs that compute
# all the time, and beside one that moves memory. A finding that the node has on its own, before they come, is not
# counted; what is asserted is that no other one appears. Prints a line for each kind of load.
# usage: busy.sh MS-DIAG RUNS [CODES]
set -u
diag=$1
runs=$2
codes=${3:-*}
dir=$(mktemp -d)
others=()
end() {
  ((${#others[@]} == 0)) || kill "${others[@]}" 2>/dev/null
  wait 2>/dev/null
  others=()
}
trap 'end; rm -rf "$dir"' EXIT
printf '[active]\nmin_fraction = 0.75\n' >"$dir/policy.toml"

# findings FILE: those of the run, one a line.
findings() {
  python3 -c '
import json, sys
report = json.load(open(sys.argv[1]))
for finding in report["findings"]:
    print(finding["severity"], finding["code"], finding["entity"], finding["message"])
for check in report["checks"]:
    if check["outcome"] == "broken": print("broken", check["code"], check["note"])
' "$1"
}
look() { "$diag" run --level 2 --only "$codes" --json --config "$dir/policy.toml" >"$dir/out" 2>"$dir/err" </dev/null; }
measured() { python3 -c '
import json, sys
checks = [c for c in json.load(open(sys.argv[1]))["checks"] if c["code"].startswith("perf.")]
print(sum(c["outcome"] == "pass" for c in checks), sum(c["note"].startswith("not measured: ") for c in checks))' "$dir/out"; }

look
findings "$dir/out" | cut -d ' ' -f 1-3 | sort -u >"$dir/own"
wrong=0
for load in compute:4 compute:10 memory:2; do
  kind=${load%:*}
  for ((i = 0; i < ${load#*:}; ++i)); do
    if [ "$kind" = compute ]; then
      python3 -c 'while True: pass' &
    else
      python3 -c 'a, b = bytearray(64 << 20), bytearray(64 << 20)
while True: a[:] = b' &
    fi
    others+=($!)
  done
  accused=0 passed=0 not_measured=0
  for ((run = 0; run < runs; ++run)); do
    look
    if findings "$dir/out" | grep -Fvf "$dir/own" >"$dir/new"; then
      accused=$((accused + 1))
      sed "s/^/$load: /" "$dir/new"
    fi
    read -r pass not < <(measured)
    passed=$((passed + pass)) not_measured=$((not_measured + not))
  done
  end
  echo "beside $load: $runs runs, $accused with a finding; checks: $passed passed, $not_measured not measured"
  wrong=$((wrong + accused))
done
exit $((wrong > 0))
