# shellcheck shell=bash
# Reads ms-messages(7), and does what it shows. To be sourced.

# each_message PAGE PATTERN: runs every command of the page that matches the extended regular expression, and compares what it
# says, and its code, with the page. Says what differs, and returns how often that was; counts the commands in $shown.
each_message() {
  local line command='' lines=() code got expected differ=0
  shown=0
  while IFS= read -r line; do
    line=${line#'\&'}
    line=${line//\\e/\\}
    case $line in
      '$ '*) command=${line#'$ '} lines=() ;;
      '['[0-9]*']')
        if [[ -z $command || ! $command =~ $2 ]]; then command='' && continue; fi
        shown=$((shown + 1))
        code=${line//[^0-9]/}
        got=0
        timeout 480 bash -c "$command" >out 2>&1 </dev/null || got=$?
        if [ "$got" -ne "$code" ]; then
          echo "$command: exit code $got, the page has $code: $(head -c 2000 out)"
          differ=$((differ + 1))
        fi
        for expected in "${lines[@]}"; do
          if ! grep -Fq -e "$expected" out; then
            echo "$command: the page has '$expected', the program said: $(head -c 2000 out)"
            differ=$((differ + 1))
          fi
        done
        command=''
        ;;
      *) if [ -n "$command" ]; then lines+=("$line"); fi ;;
    esac
  done <"$1"
  return "$differ"
}
