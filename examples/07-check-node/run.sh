#!/usr/bin/env bash
# Checks this machine, then checks it against a policy that requires a mount that does not exist.
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin 07-check-node
may_find() { # COMMAND...: exit status 1 is a warning, 2 is critical, as for Nagios; both are results here
  local status=0
  show "$@" || status=$?
  echo "exit status $status"
  ((status <= 2))
}

show ms-diag list
may_find ms-diag run --verbose
may_find ms-diag run --config "$examples/07-check-node/policy.toml"
may_find ms-diag run --config "$examples/07-check-node/policy.toml" --nagios
show ms-diag explain disk.mounts
