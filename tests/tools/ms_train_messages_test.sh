#!/usr/bin/env bash
# ms-messages(7): each command of the page that needs no Slurm is run, and says what the page shows. (tests/cluster/jobscripts.bats
# runs the others.) usage: ms_train_messages_test.sh MS_TRAIN
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source=tests/support/messages.sh
. "$(dirname "$0")/../support/messages.sh"
page=$(cd "$(dirname "$0")/../../man" && pwd)/ms-messages.7
training_directory
export PATH=$bin:$PATH
tiny_config train.steps=2 mesh.dp=2 'run.dir="runs/a"' >c.toml
printf '[model\nlayers = 2\n' >syntax.toml
printf '[acts]\nmode = "act"\n' >policy.toml
printf '{"text":"a"}\nbroken\n' >lines.jsonl
echo hello >notes.txt
ms-train run c.toml --set checkpoint.dir=ckpt >log 2>&1 || { cat log && fail "the run that the page speaks of"; }

# The notifier's sentence is for root alone.
pattern='^(env|ms-(ckpt|data|diag [^u]|driver|loan|netcheck|tracepp|train))'
if [ "$(id -u)" -ne 0 ]; then pattern='^(env|ms-(ckpt|data|diag [^nu]|driver|loan|netcheck|tracepp|train))'; fi
each_message "$page" "$pattern" || fail "what the programs say is not what the page shows"
[ "$shown" -ge 40 ] || fail "the page shows $shown mistakes, and is to show 40"

[ "$failures" -eq 0 ] && echo "$shown messages are as the page shows them" || exit 1
