#!/usr/bin/env bash
# What root and Slurm load is bare: it needs no library but libc's and GCC's, and the plugin shows Slurm only what Slurm
# looks for and asks of it only what the plugin interface has.
# usage: plugin_symbols.sh [--plugin FILE] FILE...
set -euo pipefail

bare='libc\.so\.6|libm\.so\.6|libstdc\+\+\.so\.6|libgcc_s\.so\.1|ld-linux[-a-z0-9_]*\.so\.[0-9]+'
exported='plugin_(name|type|version)|slurm_spank_[a-z_]+'
asked='spank_[a-z_]+|slurm_(info|error|spank_log)'
failed=0

# none WHAT LINES: complains if there are any, and shows the first.
none() {
  if [[ -z $2 ]]; then return 0; fi
  printf '%s:\n%s\n' "$1" "$(sed 10q <<<"$2")"
  failed=1
}

if [[ $1 == --plugin ]]; then
  shift
  names=$(nm -D --defined-only --format=posix "$1" | cut -d' ' -f1)
  [[ $names == *slurm_spank_job_prolog* ]] || none "$1 shows no job_prolog, only" "${names:-nothing}"
  none "$1 shows what is not Slurm's business" "$(grep -vxE "$exported" <<<"$names" || true)"
  # What libc has carries a version. The compiler's own weak symbols may be absent; Slurm's may not be asked for even so.
  wanted=$(nm -D --undefined-only "$1" | awk '$2 !~ /@/ && ($1 == "U" || $2 ~ /^s(lurm|pank)_/) { print $2 }')
  none "$1 asks its host for what is no plugin's" "$(grep -vxE "$asked" <<<"$wanted" || true)"
fi
for file in "$@"; do
  needed=$(readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  [[ -n $needed ]] || none "$file" "needs no library at all: is it a dynamic program?"
  none "$file needs" "$(grep -vxE "$bare" <<<"$needed" || true)"
  none "$file looks for libraries in" "$(readelf -dW "$file" | grep -E 'R(UN)?PATH' || true)"
done
exit $failed
