#!/usr/bin/env bash
# Finds why a PyTorch job is slow, in traces of torch.profiler of its four ranks.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 14-pytorch-trace

traces=$examples/14-pytorch-trace/traces
show ms-tracepp report "$traces"
show ms-tracepp report --output report.html "$traces" # open it in a browser
