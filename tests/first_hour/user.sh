#!/usr/bin/env bash
# A new user on a fresh Debian who has the packages and README.md: what it says under "Train on your own text", in small, then
# Ctrl-C, resume and report, then the first example; as a user who is not root. Takes root and Debian's mirror: for the night.
# usage: user.sh CPACK BUILD
set -euo pipefail
cpack=$1 build=$(realpath "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tests/packages/tree.sh
. "$here/../packages/tree.sh"
# shellcheck source=tests/first_hour/walk.sh
. "$here/walk.sh"
make_packages "$own"
make_tree "$own" procps

walk_began=$SECONDS
note 'a fresh Debian; the packages are in /debs'
shown=2 does in_tree apt-get -qq -o Dpkg::Use-Pty=0 -y --no-install-recommends install "$(deb ms-ops)" "$(deb ms-tools)" "$(deb ms-doc)"
in_tree useradd --create-home --shell /bin/bash ada
as_ada() { in_tree su - ada -c "set -euo pipefail; $1"; }
# shellcheck disable=SC2016 # for the shell of ada
as_ada 'mkdir mytext; for f in /usr/share/common-licenses/[A-Z]*; do cp "$f" "mytext/$(basename "$f").txt"; done'

# The block of README.md, word for word; what is made smaller comes behind it.
mapfile -t commands < <(sed -n '/^## Train on your own text/,/^## /s/^    //p' "$here/../../README.md")
((${#commands[@]} >= 4)) || stumble 'README.md has no block on own text'
# shellcheck disable=SC2016 # the backquotes are the text's
share=$(sed -n 's/.*are in `\(\/usr[^`]*\)`.*/\1/p' "$here/../../README.md" | head -n 1)
[[ -n $share ]] || stumble 'README.md does not say where the packages have the configurations'
for command in "${commands[@]}"; do
  case $command in
    'export PATH='*) continue ;; # of a build; packages are on the path
    'ms-train run configs/'*)
      command=${command/configs/$share/configs}' --set train.steps=12 --set run.sample_tokens=8 --set train.eval_samples=8'
      train=$command
      ;;
  esac
  does as_ada "$command"
  if [[ $command == 'ms-train run '* ]]; then says '^checkpoint +mymodel/step-00000012'; fi
done

note 'a longer run, stopped by Ctrl-C'
long=${train/train.steps=12/train.steps=100000}
fails 75 as_ada "env --default-signal=INT $long & run=\$!; until grep -qs '\"step\":14,' runs/*/metrics.jsonl; do sleep 0.2; done; kill -INT \$run; wait \$run"
says 'stopped'
does as_ada "steps=\$(tail -n 1 runs/*/metrics.jsonl | sed 's/.*\"step\":\([0-9]*\),.*/\1/'); ${train/train.steps=12/train.steps=\$((steps + 2))}"
says 'resuming from mymodel/step-'
does as_ada 'ms-tracepp report runs/tiny-3d/trace'
says '^mesh +dp 2 x pp 2 x tp 2'
does as_ada 'ms-ckpt ls mymodel'
does as_ada 'MS_LOG=warn /usr/share/ms/examples/01-threads/run.sh'
says '"code": 0'
does as_ada 'ms-train explain 75'
note 'done'
