#!/usr/bin/env bash
# ms-diag collect, what ms-diag history makes of the samples, and ms-diag avoid, with a fake root, driver and scontrol.
# shellcheck source=tests/tools/expect.sh
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"
scratch=$(mktemp -d) && cd "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT
driver=$(dirname "$tool")/../lib/libfake_nvml.so
if [ ! -e "$driver" ]; then
  echo "there is no libfake_nvml.so beside the tool"
  exit 77
fi
export SLURMD_NODENAME=node01

put() { mkdir -p "$(dirname "root$1")" && printf '%s\n' "$2" >"root$1"; }
mkdir driver
cp "$driver" driver/libnvidia-ml.so.1
echo "gpus 2" >driver/gpus.txt
put /proc/uptime "5000.00 1000.00"
put /proc/loadavg "0.20 0.18 0.12 1/80 11206"
put /sys/devices/system/edac/mc/mc0/ce_count 3
put /sys/class/net/eth0/device/vendor 0x15b3
put /sys/class/net/eth0/statistics/rx_errors 5
put /dev/kmsg "6,1,1000000,-;Linux version 6.1
3,2,2000000,-;NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus."
cat >policy.toml <<TEXT
[paths]
sysroot = "$scratch/root"
nvml = "$scratch/driver/libnvidia-ml.so.1"
scontrol = "$scratch/scontrol"
[telemetry]
directory = "$scratch/samples"
TEXT
day() { echo "samples/node01/$(date -u +%F).tlm"; }
samples() { "$tool" history --samples node01 --config policy.toml >samples.csv 2>err; }

# ---- what is in a sample, and what is not: missing is not 0
expect 0 '^gpu0 +power_w +71 +W' collect --print --config policy.toml
for line in '^host +load +0.2' '^host +edac_corrected +3' '^net/eth0 +rx_errors +5' '^gpu1 +xids +1' '^gpu1 +last_xid +79' \
  '^gpu0 +xids +0' '^host +log_gpu_xid +1'; do
  grep -Eq "$line" out || fail "collect --print: $line"
done
if grep -Eq 'retired_|fan_rpm|edac_uncorrected' out; then fail "collect --print shows what is not there"; fi
[ ! -e samples ] || fail "collect --print keeps something"
expect 0 '"uuid": "GPU-00000000-0000-0000-0000-000000000001"' collect --json --config policy.toml

# ---- kept, and read
expect 0 'are kept in .*/node01/' collect --config policy.toml
before=$(day)
echo "gpu 1 temperature_c=77 life_correctable=12" >>driver/gpus.txt
expect 0 'are kept' collect --config policy.toml
if [ "$(day)" = "$before" ]; then # not at midnight
  [ "$(find samples -name '*.tlm' | wc -l)" -eq 1 ] || fail "one day is one file"
fi
samples || fail "history --samples"
[ "$(head -n 1 samples.csv)" = "time,node,device,metric,value" ] || fail "the title of the CSV"
grep -Eq '^[0-9]+,node01,gpu1,temperature_c,77$' samples.csv || fail "the CSV has no temperature of 77"
grep -Eq '^[0-9]+,node01,gpu1,ecc_corrected_life,12$' samples.csv || fail "the CSV has no errors"

# ---- a crash in the middle of a record: it is told, cut off, and all else stays
file=$(find samples -name '*.tlm' | sort | tail -n 1)
rows=$(grep -c gpu0,power_w samples.csv)
head -c 60 /dev/urandom >>"$file"
samples || fail "history --samples of a damaged file"
grep -q '60 of .* are damaged' err || fail "the damage is not told"
[ "$(grep -c gpu0,power_w samples.csv)" -eq "$rows" ] || fail "whole samples are lost"
if [ "$file" = "$(day)" ]; then
  expect 0 '60 bytes that an earlier writer did not finish were cut off' collect --config policy.toml
  samples || fail "history --samples after the damage"
  [ ! -s err ] || fail "the damage is still there"
fi

# ---- a driver that hangs or is not there: the host's values are kept all the same
echo "init error 9" >>driver/gpus.txt
expect 0 'missing are gpus: nvmlInit_v2: Driver Not Loaded' collect --config policy.toml
grep -q 'are kept in' out || fail "collect without a driver"
cat >driver/gpus.txt <<<"gpus 2"
chmod 0777 samples
expect 3 "may be written by others|has mode 0777" collect --config policy.toml
chmod 0755 samples

# ---- the site's trends

expect 0 'samples of 1 node' history --site --config policy.toml
grep -Eq '^ecc_corrected_life +node01 +gpu1 +12 +-$' out || fail "a counter that rises"
if grep -q 'no GPU is hotter' out; then fail "two GPUs are compared"; fi
expect 0 '"column": "ecc_corrected_life"' history --site --json --config policy.toml
mkdir samples/node02
expect 0 'node02: no sample in two days' history --site --config policy.toml

# ---- nodes that are likely to fail are used last
cat >scontrol <<'TEXT'
#!/bin/sh
cd "$(dirname "$0")" || exit 1
if [ "$1" = update ]; then
  shift
  echo "$*" >>updates
  node=${1#NodeName=} weight=${2#Weight=}
  sed -i "s/^$node .*/$node $weight/" weights
else
  while read -r node weight; do echo "NodeName=$node State=IDLE ThreadsPerCore=1 Weight=$weight Owner=N/A Partitions=p"; done <weights
fi
TEXT
chmod +x scontrol
printf 'n%s 1\n' 1 2 3 4 >weights
today=$(($(date +%s) / 86400))
score() { printf '{"schema":1,"skill":true,"day":%s,"units":[{"unit":"n1/gpu0","chance":%s},{"unit":"n2","chance":%s},{"unit":"n9","chance":1}]}\n' "${3:-$today}" "$1" "$2" >scores.json; }
score 0.9 0.2
expect 0 'n1 +0.90 +1 +1000001' avoid scores.json --config policy.toml
grep -q 'nothing was changed: --apply' out || fail "avoid does not say that it did nothing"
grep -q 'not in Slurm: n9' out || fail "avoid does not name a intruder"
[ ! -e updates ] || fail "avoid changed something without --apply"
expect 0 'these weights are set' avoid scores.json --config policy.toml --apply
expect 0 'no weight is to be changed' avoid scores.json --config policy.toml --apply
score 0.1 0.2
expect 0 'n1 .*no longer likely' avoid scores.json --config policy.toml --apply
[ "$(cat updates)" = "NodeName=n1 Weight=1000001
NodeName=n1 Weight=1" ] || fail "avoid: $(cat updates)"

# ---- what is refused
expect 3 "telemetry.directory" collect
expect 3 "telemetry.directory" history --samples node01
expect 3 "give one" history --samples node01 --site
expect 3 "not for --samples" history --samples node01 --json --config policy.toml
expect 3 "cannot open the directory" history --samples node09 --config policy.toml
printf '[telemetry]\nday_size = "1kB"\n' >small.toml
expect 3 "day_size" collect --config small.toml
rm updates
score 0.9 0.2 $((today - 5))
expect 3 "of data that are 5d[0-9]+h old" avoid scores.json --config policy.toml --apply
score 0.9 0.2 99999
expect 3 "is still to come" avoid scores.json --config policy.toml --apply
score 0.9 0.2
sed -i 's/"skill":true,//' scores.json
expect 3 "does not say that the model showed skill" avoid scores.json --config policy.toml --apply
expect 3 "/dev/zero" avoid /dev/zero --config policy.toml --apply
[ ! -e updates ] || fail "avoid acted on what it refuses: $(cat updates)"
echo "[" >scores.json
expect 3 "no JSON" avoid scores.json --config policy.toml
expect 3 "nowhere.json" avoid nowhere.json
expect 3 "chance" avoid scores.json --chance 7

[ "$failures" -eq 0 ] && echo "all passed"
