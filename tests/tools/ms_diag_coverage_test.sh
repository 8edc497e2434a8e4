#!/usr/bin/env bash
# diag_coverage.txt holds what it says: every code that it names is a check, every check is named, no row lacks a reason. Prints
# the coverage, ours beside each tool.
# shellcheck source=tests/tools/expect.sh
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
table=$(realpath "$(dirname "${BASH_SOURCE[0]}")/diag_coverage.txt")
scratch=$(mktemp -d) && cd "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT
"$tool" list --json 2>/dev/null | sed -n 's/.*"code":"\([^"]*\)".*/\1/p' | sort >codes
grep -v '^#' "$table" >rows
cut -d'|' -f3 rows | grep -oE '\b(gpu|host|disk|net|slurm|site|perf|soak|env)\.[a-z0-9]+' | sort -u >named
# slurm.gres is our own: no tool of the table has it.
comm -13 codes named >unknown
comm -23 codes named | grep -v '^slurm.gres$' >missing
[ -s unknown ] && fail "no such checks: $(paste -sd' ' unknown)"
[ -s missing ] && fail "checks that no row names: $(paste -sd' ' missing)"
grep -E '^[^|]*\|[^|]*\|(partly [^:]*|no)$' rows && fail "rows without a reason"
awk -F'|' '
  { rows++; full += $3 !~ /^(partly|no)/; part += $3 ~ /^partly/
    n = split($2, tools, ","); for (i = 1; i <= n; i++) if (tools[i] != "-") count[tools[i]]++ }
  END { printf "ms: %d of %d rows whole, %d partly\n", full, rows, part
        for (tool in count) printf "%s: %d\n", tool, count[tool] }' rows
[ "$failures" -eq 0 ] && echo "all passed"
[ "$failures" -eq 0 ]
