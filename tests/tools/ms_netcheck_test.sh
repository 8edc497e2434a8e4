#!/usr/bin/env bash
# ms-netcheck as its users see it: what is refused, what is shown, and a small fabric of agents on this host's loopback.
# shellcheck source=tests/tools/expect.sh
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
scratch=$(mktemp -d) && cd "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT
unset SLURM_JOB_ID SLURM_JOB_NODELIST

# Refusals: status 3 is Nagios's UNKNOWN, one line says what, and where it helps what to do.
expect 3 'which nodes\?' locate
expect 3 'not run inside a Slurm job' locate --nodes 'n[1-2]'
expect 3 'more than once' locate --nodes n1,n1 --launch 'sh -c {agent}'
expect 3 'a fabric begins with two' locate --nodes n1 --launch 'true {agent}' --wait 1s
expect 3 '\{agent\}' pairs --nodes n1,n2 --launch 'ssh {node}'
expect 3 'tcp, mpi, verbs or nccl' pairs --nodes n1,n2 --launch '{agent}' --transport ipx
expect 3 'a schedule is' pairs --nodes n1,n2 --launch '{agent}' --schedule often
expect 3 'at most a minute' pairs --nodes n1,n2 --launch '{agent}' --seconds 2h
expect 3 'from 64KiB' pairs --nodes n1,n2 --launch '{agent}' --bytes 1
expect 3 'share between 0 and 1' locate --nodes n1,n2 --launch '{agent}' --slow 2
expect 3 'takes --transport mpi' locate --nodes n1,n2 --launch '{agent}' --by groups
expect 3 'pairs or groups' locate --nodes n1,n2 --launch '{agent}' --by halves
expect 3 'give one' locate --nodes n1,n2 --launch '{agent}' --json --nagios
expect 3 'a single process cannot be measured' pairs --transport mpi
expect 3 'the nodes are those of the launch' pairs --transport mpi --nodes n1,n2
expect 3 'cannot open ./nonexistent' locate --nodes n1,n2 --launch '{agent}' --topology /nonexistent
expect 3 'a single process cannot be measured' pairs --transport nccl
expect 3 'with --transport nccl only' pairs --transport mpi --gpu 1
expect 3 'a second to an hour' pairs --transport mpi --deadline 2h
expect 3 'not run: verbs' ecmp --nodes n1,n2 --transport verbs
expect 3 'a single process cannot be measured' collectives --transport nccl
# A pipe that nobody writes into, and a device without an end, are refused and not waited for.
mkfifo pipe
expect 3 'pipe is not a regular file' nccl-log pipe
expect 3 '/dev/zero is not a regular file' nccl-log /dev/zero
expect 3 'standard input' agent

# A forecast needs no network. Of two stages under leaf switches of their own, pp passes the spines, and dp does not.
printf '[leaf]\nhosts = 8\nuplinks = 8\n[spine]\nswitches = 8\n' >fabric.toml
holds() { python3 -c "import json; j = json.load(open('out')); assert $1, j" || fail "not so: $1"; }
plan=(plan fabric.toml --dp 8 --pp 2 --tp 8)
expect 0 '"command": "plan"' "${plan[@]}" --json
holds 'j["schema"] == 1 and j["hosts"] == 16 and j["oversubscription"] == 1 and j["starts"] == 32'
holds '[c["axis"] for c in j["collectives"]] == ["dp", "pp"] and j["slowest_axis"] == "pp"'
holds 'j["collectives"][0]["crossing"] == 0 and j["collectives"][0]["slowest_median"] == 1'
holds 'j["collectives"][1]["flows"] == 64 == j["collectives"][1]["crossing"] and 0 < j["collectives"][1]["colliding"] < 1'
holds 'j["collectives"][1]["slowest_90"] <= j["collectives"][1]["slowest_median"] <= j["collectives"][1]["mean"] < 1'
holds 'all(c["set"] and len(c["collectives"]) == 2 for c in j["changes"])'
holds '{c["name"]: c for c in j["changes"]}["adaptive routing"]["collectives"][1]["colliding"] == 0'
cp out first
expect 0 '"command": "plan"' "${plan[@]}" --json
cmp -s first out || fail "two forecasts differ"
expect 0 '"pp"' "${plan[@]}" --json --set-fabric ecmp.hash=adaptive
holds 'j["collectives"][1]["slowest_median"] == 1'
expect 0 '^pp +64 +64 +64 ' "${plan[@]}"
expect 0 'nothing to change' plan fabric.toml --dp 8 --tp 8
expect 0 'no collective passes the network' plan fabric.toml --tp 8
printf '[mesh]\ndp = 8\npp = 2\ntp = 8\n[model]\nlayers = 2\nhidden = 64\nheads = 8\nvocab = 64\n[train]\nglobal_batch = 8\n[data]\ntrain = ["x"]\n' >train.toml
expect 0 '"pp": 2' plan fabric.toml --config train.toml --json
expect 0 '"pp": 1' plan fabric.toml --config train.toml --set mesh.pp=1 --json
expect 3 'two forms of one mesh' plan fabric.toml --config train.toml --dp 8
expect 3 'which ranks form groups' plan fabric.toml
expect 3 'which is not given' plan fabric.toml --dp 8 --set mesh.pp=2
expect 3 'listed, pipelines or random' "${plan[@]}" --placement near
expect 3 'does not divide the 8 uplinks' "${plan[@]}" --set-fabric spine.switches=3
expect 3 "did you mean 'leaf.hosts'" "${plan[@]}" --set-fabric leaf.host=3
expect 3 'nowhere.toml' plan nowhere.toml --dp 8

# Who does not come is a finding, with what the launcher said of it.
# shellcheck disable=SC2016 # for the script that is written
printf '#!/bin/sh\necho "no such node $1" >&2\nexit 1\n' >dead && chmod +x dead
expect 2 'critical net.silent n2: did not take part: no such node n2' locate --nodes n1,n2 --wait 2s --launch './dead {node} {agent}'

# Two agents on the loopback, which are told who they are by the launcher.
agents='env SLURMD_NODENAME={node} {agent}'
expect 0 '2 of 2 nodes measured, 1 round' pairs --nodes a,b --launch "$agents" --seconds 50ms
expect 0 '^  "schema": 1,' pairs --nodes a,b --launch "$agents" --seconds 50ms --json --html map.html --prometheus metrics
grep -q '^ms_netcheck_nodes 2$' metrics || fail "no metrics"
grep -q '<svg' map.html || fail "no heat map"
expect 0 '^OK - 2 nodes' pairs --nodes a,b --launch "$agents" --seconds 50ms --nagios
expect 3 'not run: verbs: on no node: no RDMA port is active' pairs --nodes a,b --launch "$agents" --transport verbs
expect 0 'even' ecmp --nodes a,b --launch "$agents" --seconds 400ms --flows 2 --rolls 1 --max-rate 0.01
expect 0 'all_reduce +4092 ' collectives --transport threads --ranks 3 --from 4KiB --to 4KiB --what all_reduce

# The secret reaches agents by standard input alone: neither arguments nor environments of any process have it.
cat >spy <<'TEXT'
#!/usr/bin/env bash
node=$1
shift
exec 3<&0
tee "invitation.$node" <&3 | env SLURMD_NODENAME="$node" "$@" &
agent=$!
until [ -s "invitation.$node" ]; do sleep 0.01; done
secret=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["secret"])' "invitation.$node")
[ ${#secret} -eq 64 ] && echo "$node" >>looked
for entry in /proc/[0-9]*; do
  if grep -qsF "$secret" "$entry/cmdline" "$entry/environ"; then tr '\0' ' ' <"$entry/cmdline" >>told; fi
done
wait $agent
TEXT
chmod +x spy
expect 0 '2 of 2 nodes measured' pairs --nodes a,b --launch './spy {node} {agent}' --seconds 50ms
[ "$(sort -u looked | wc -l)" -eq 2 ] || fail "nobody looked for the secret"
[ ! -s told ] || fail "others may read the secret: $(cat told)"

exit $((failures > 0))
