#!/usr/bin/env bash
# Slows rank 5 down by a factor of 2 from step 10 on, and finds it in the traces of the run.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 06-slow-rank

encode_text
show env MS_FAULT="step=10 rank=5 slow=2" ms-train run "$examples/tiny.toml"
show ms-tracepp stragglers run/trace
show ms-tracepp report run/trace
show ms-tracepp merge --output run.json.gz --steps 20-22 run/trace # open it in ui.perfetto.dev or chrome://tracing
