# shellcheck shell=bash
# What the tests of the tools share; sourced by a script whose first argument is the tool. Counts in $failures.
tool=$1
failures=0

fail() {
  echo "FAILED: $1"
  [ -s out ] && sed 's/^/  out: /' out
  [ -s err ] && sed 's/^/  err: /' err
  failures=$((failures + 1))
}

# expect CODE PATTERN ARGS...: exit code, and an extended regular expression in what stdout and stderr say together.
expect() {
  local code=$1 pattern=$2
  shift 2
  "$tool" "$@" >out 2>err </dev/null
  local got=$?
  if [ "$got" -ne "$code" ]; then
    fail "${tool##*/} $*: exit code $got, expected $code"
  elif ! cat out err | grep -Eq -- "$pattern"; then
    fail "${tool##*/} $*: expected to see '$pattern'"
  fi
}

# training_directory: an empty directory to work in, gone at exit, with the token files "text"; $bin has the other tools.
training_directory() {
  # shellcheck source=tests/support/training.sh
  . "$(dirname "${BASH_SOURCE[0]}")/../support/training.sh"
  bin=$(dirname "$tool")
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  cd "$dir" || exit 1
  training_text 400 >/dev/null 2>&1 || fail "ms-data encode"
}
