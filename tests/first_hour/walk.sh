# shellcheck shell=bash
# What the walks share: a transcript of what somebody does in the first hour, with the seconds since it began. To be sourced.

walk_began=$SECONDS
said=''
note() { printf '%4d s  %s\n' $((SECONDS - walk_began)) "$1"; }
stumble() { note "STUMBLE: $1" && exit 1; }

# does COMMAND...: shows the command and what it says, which stays in $said. A command that fails ends the walk.
does() {
  local status=0
  note "\$ $*"
  said=$("$@" 2>&1 </dev/null) || status=$?
  printf '%s\n' "$said" | tail -n "${shown:-12}" | sed 's/^/        /'
  ((status == 0)) || stumble "it ended with $status"
}

# fails CODE COMMAND...: as does, of a command that has to fail with this code.
fails() {
  local expected=$1 status=0
  shift
  note "\$ $*"
  said=$("$@" 2>&1 </dev/null) || status=$?
  printf '%s\n' "$said" | tail -n "${shown:-12}" | sed 's/^/        /'
  ((status == expected)) || stumble "it ended with $status, and should with $expected"
}

# says PATTERN: what the last command has to have said, for the walk to go on.
says() { grep -Eq -e "$1" <<<"$said" || stumble "nothing here says '$1'"; }
