#!/usr/bin/env bash
# ms-diag fleet on simulated nodes: each answers with this machine's facts under its own name, after half a second, through a
# stand-in for ssh; some have another kernel. Prints the seconds and the memory of asking all and of reading a file of answers,
# and fails where other nodes than these are named.
# usage: tests/bench/fleet_scale.sh [NODES [DIFFERENT]] (default 1000 5)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
nodes=${1:-1000} different=${2:-5}
build=$(realpath "${BUILD:-build/release}")
cmake --build "$build" --target ms-diag >/dev/null
export work
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/policy.toml"
"$build/bin/ms-diag" facts --config "$work/policy.toml" >"$work/facts"
step=$((nodes / different))
cat >"$work/ssh" <<'SH'
#!/bin/bash
# ssh OPTIONS... HOST ms-diag facts...
for word; do if [[ $word =~ ^n([0-9]+)$ ]]; then host=$word number=${BASH_REMATCH[1]}; fi; done
read -r answer <"$work/facts"
read -t 0.5 -r <><(:) || true
printf -v now '%(%s)T' -1
[[ $answer =~ ^(.*\"node\":\")[^\"]*(\",\"wall_s\":)[0-9.]+(.*)$ ]]
answer=${BASH_REMATCH[1]}$host${BASH_REMATCH[2]}$now${BASH_REMATCH[3]}
if ((10#$number % STEP == 1)); then answer=${answer/\"kernel\":\"/\"kernel\":\"9.}; fi
printf '%s\n' "$answer"
SH
sed -i "s/STEP/$step/" "$work/ssh"
chmod +x "$work/ssh"
width=${#nodes}
expected=()
for ((i = 1; i <= nodes; i += step)); do expected+=("$(printf 'n%0*d' "$width" "$i")"); done

timed() { # NAME COMMAND...
  local name=$1 status=0
  shift
  /usr/bin/time --format '%e %M' --output "$work/time" "$@" >"$work/out.json" 2>"$work/err" || status=$?
  if ((status > 1)); then cat "$work/err" >&2 && return 1; fi
  read -r seconds kib < <(tail -n 1 "$work/time")
  printf '%-24s %d nodes: %6.2f s, %d MiB\n' "$name" "$nodes" "$seconds" $((kib / 1024))
  python3 -B - "$work/out.json" "${expected[@]}" <<'PY'
import json, sys
said = json.load(open(sys.argv[1]))
named = {node for row in said["differences"] for other in row["others"] for node in other["nodes"]}
if named != set(sys.argv[2:]):
    sys.exit(f"named {sorted(named)}, and not {sys.argv[2:]}")
PY
}
range="n[$(printf '%0*d' "$width" 1)-$nodes]"
timed 'asked by ssh' env PATH="$work:$PATH" "$build/bin/ms-diag" fleet -w "$range" --config "$work/policy.toml" --json \
  --html "$work/asked.html"
for ((i = 1; i <= nodes; i++)); do
  "$work/ssh" "$(printf 'n%0*d' "$width" "$i")" &
  if ((i % 50 == 0)); then wait; fi
done >"$work/answers"
wait
timed 'read from a file' "$build/bin/ms-diag" fleet --from "$work/answers" --config "$work/policy.toml" --json --html "$work/read.html"
printf 'page: %d KiB\n' $(($(stat --format %s "$work/read.html") / 1024))
