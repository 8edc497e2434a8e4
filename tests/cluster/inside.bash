# shellcheck shell=bash
# What the suites of ms-driver share: bats loads it.

setup_file() {
  export kit=$BATS_FILE_TMPDIR/kit
  mkdir -p "$kit"
  cp "$BATS_TEST_DIRNAME/../support/training.sh" "$BATS_TEST_DIRNAME"/{driven.sh,preflight.sh,intruders.py,loop.py,ranks.py} "$kit"
}

# shellcheck disable=SC2016 # for the shell on the controller
# inside WORK SPARES <SCRIPT: on the controller of a cluster of so many nodes, in a folder that all of them share.
inside() {
  kit=$kit work=$1 spares=$2 "$BATS_TEST_DIRNAME/run" $(($1 + $2)) -- bash -euo pipefail -c \
    'cp -r "$kit/." "$CLUSTER_DIR/shared"; cd "$CLUSTER_DIR/shared"; . ./training.sh; . ./driven.sh; trap what_failed ERR'$'\n'"$(cat)"
}
