#!/usr/bin/env bash
# Completion as shells do it: the scripts that every tool prints, in bash itself; in zsh and fish where they are installed.
# usage: ms_train_completion_test.sh MS_TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
bin=$(dirname "$tool")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# complete WORD...: what bash offers for the last word of the line, sorted, on one line.
complete_line() {
  # shellcheck disable=SC2016 # for the inner shell
  bash --norc --noprofile -c '
    compopt() { offered_files=yes; } # is an error outside of a completion
    source "$1.bash" && shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) offered_files=""
    function=_${1//-/_}
    "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf "%s\n" "${COMPREPLY[@]}" ${offered_files:+FILES} | sort | paste -sd " "' complete "$1" "$@" 2>&1
}
offers() { # EXPECTED WORD...
  local got
  got=$(complete_line "${@:2}")
  got=${got# }
  [ "$got" = "$1" ] || fail "${*:2}: bash offers '$got', expected '$1'"
}

for path in "$bin"/ms-*; do
  name=${path##*/}
  "$path" --completion bash >"$name.bash" || fail "$name --completion bash"
  bash -n "$name.bash" || fail "$name: bash does not read its completion"
  "$path" --completion zsh >"_$name" || fail "$name --completion zsh"
  "$path" --completion fish >"$name.fish" || fail "$name --completion fish"
  if command -v zsh >/dev/null; then zsh -n "_$name" || fail "$name: zsh does not read its completion"; fi
  if command -v fish >/dev/null; then fish --no-execute "$name.fish" || fail "$name: fish does not read its completion"; fi
done
offers 'plan' ms-train pl
offers '--man' ms-train --m
offers '--set' ms-train run c.toml --s
offers 'FILES' ms-train run ''
offers 'FILES' ms-train simulate c.toml --cluster ''
offers '' ms-train run c.toml --ranks ''
offers 'mpi' ms-netcheck locate --transport m
offers 'mpi' ms-netcheck locate --transport = m
offers 'mpi nccl tcp verbs' ms-netcheck locate --transport = ''
offers 'bash' ms-train --completion b
offers 'FILES' ms-driver run -- ''
"$tool" --completion csh >out 2>err
[ $? -eq 2 ] || fail "csh has no completion"

# What is installed: bash finds a script by the name of the tool, and loads it with its completion.
if grep -q "complete -F _ms_train ms-train" ms-train.bash; then :; else fail "nothing binds the function to the tool"; fi

# The modulefile, in Tcl itself, with stand-ins for the commands of Lmod and Environment Modules.
if command -v tclsh >/dev/null; then
  mkdir -p root/share/ms/modulefiles/ms
  cp "$bin/../modulefile" root/share/ms/modulefiles/ms/0.1.0
  cat >load.tcl <<'TCL'
proc prepend-path {name value} { puts "$name=$value" }
proc setenv {name value} { puts "$name=$value" }
proc conflict {name} {}
proc module-whatis {text} {}
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
TCL
  tclsh load.tcl root/share/ms/modulefiles/ms/0.1.0 >out 2>err || fail "Tcl does not read the modulefile"
  for line in "PATH=$(realpath root)/bin" "MANPATH=$(realpath root)/share/man"; do
    grep -Fxq "$line" out || fail "the modulefile does not say $line"
  done
fi

[ "$failures" -eq 0 ] && echo "all as expected" || exit 1
