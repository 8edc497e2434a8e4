#!/bin/sh
# The suspects that ms-tracepp names in synthetic runs with a known fault, of 64 and of 4,096 ranks: how often right at
# the first try and within two, how many other findings there were (false alarms), and seconds of analysis.
# Usage: tests/bench/straggler_accuracy.sh BUILD-FOLDER [seeds] [healthy runs]
set -eu
build=${1:?usage: straggler_accuracy.sh BUILD-FOLDER [seeds] [healthy runs]}
exec "$build/bin/straggler_accuracy" --seeds "${2:-10}" --healthy "${3:-100}" --ranks 64 --ranks 4096
