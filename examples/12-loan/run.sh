#!/usr/bin/env bash
# Replays a day of jobs on a small cluster with inference nodes that are idle at night, for each scheduler, with and without loans.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 12-loan

files=(--jobs "$examples/12-loan/jobs.csv" --demand "$examples/12-loan/demand.csv" --policy "$examples/12-loan/policy.toml")
show head -n 4 "$examples/12-loan/jobs.csv" "$examples/12-loan/demand.csv"
show ms-loan simulate "${files[@]}"
show ms-loan simulate "${files[@]}" --scheduler both --samples samples.csv
show head -n 4 samples.csv
