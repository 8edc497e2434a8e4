#!/usr/bin/env bash
# Token files in an object store, from the outside.  usage: ms_data_objects_test.sh MS-DATA
set -u
# shellcheck source=tests/tools/expect.sh
. "$(dirname "$0")/expect.sh"
python=$(cd "$(dirname "$0")/../../python" && pwd)
support=$(cd "$(dirname "$0")/../support" && pwd)
training_directory

# A store with the key "id" and the secret "secret/+"; 12 MB of tokens are 47 blocks of the cache.
mkdir -p "store/bucket/a b+" cache
head -c 4500000 /dev/urandom | base64 -w 64 >noise
"$tool" encode --tokenizer byte --by-line -o "store/bucket/a b+/noise" noise >/dev/null 2>&1 || fail "no token file"
for suffix in bin idx meta.json; do cp "store/bucket/a b+/noise.$suffix" "local.$suffix"; done
export AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=secret/+ AWS_REGION=eu-test-1 MS_DATA_CACHE=$dir/cache
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE http_proxy https_proxy all_proxy
object="s3://bucket/a b+/noise"

server=
# serve FAULT...: another server, with an empty log of requests.
serve() {
  stop_server
  : >store/requests.log
  python3 -B "$support/s3_server.py" store id secret/+ "$@" >port 2>server.err &
  server=$!
  until [ -s port ]; do
    kill -0 "$server" 2>/dev/null || { fail "no server" && exit 1; }
    sleep 0.05
  done
  AWS_ENDPOINT_URL=http://127.0.0.1:$(cat port)
  export AWS_ENDPOINT_URL
  : >port
}
stop_server() {
  [ -z "$server" ] && return
  kill "$server"
  wait "$server" 2>/dev/null
  server=
}
trap 'stop_server; rm -rf "$dir"' EXIT
requests() { grep -c 'noise.bin' store/requests.log; }

serve
expect 0 'all sound' verify "$object"
[ "$(requests)" -gt 46 ] || fail "the tokens were not fetched in blocks"
expect 0 '' info "$object" --json
"$tool" info local --json >expected || fail "info local"
diff <(grep -v prefix out) <(grep -v prefix expected) || fail "info of the object differs"
fetched=$(requests)
expect 0 'all sound' verify "$object"
[ $(($(requests) - fetched)) -eq 1 ] || fail "what is in the cache was fetched again"

# Whatever is damaged in the cache is fetched again.
blocks=$(find cache -name "*.blocks" -size +1000k)
printf 'damaged' | dd of="$blocks" bs=1 seek=300000 conv=notrunc status=none
fetched=$(requests)
expect 0 'all sound' verify "$object"
[ $(($(requests) - fetched)) -eq 2 ] || fail "a damaged block of the cache was taken, or more than that was fetched"

# The samples of a run, and a run, are those of local files.
tiny_config model.vocab=257 model.seq=128 train.steps=6 train.global_batch=8 'data.valid_fraction=0.1' 'run.dir="run"' \
  'data.train=["local"]' >c.toml
"$tool" sample c.toml --step 2 --json | grep -v "\"source\"" >expected
"$tool" sample c.toml --step 2 --json --set "data.train=[\"$object\"]" 2>err | grep -v "\"source\"" >out
diff out expected >difference || fail "samples of the object differ: $(head -3 difference)"
rm -rf cache/*
serve busy cut
"$bin/ms-train" run c.toml --set 'run.dir="near"' >out 2>err || fail "training on files"
"$bin/ms-train" run c.toml --set 'run.dir="far"' --set "data.train=[\"2 $object\"]" >out 2>err || fail "training on an object"
python3 - <<'PYTHON' || fail "other losses"
import json
near, far = ([json.loads(line)["loss"] for line in open(f"{run}/metrics.jsonl")] for run in ("near", "far"))
assert near == far and len(near) == 6, (near, far)
PYTHON

# So does another program.
rm -rf cache/*
MS_DATA=$tool PYTHONPATH=$python python3 -B - "$object" <<'PYTHON' || fail "ms_loader has other rows"
import sys
import ms_loader
rows = []
for train in (sys.argv[1], "local"):
    with ms_loader.Loader(train, seq=512, global_batch=16, seed=3) as loader:
        rows.append([next(loader).rows.tolist() for _ in range(4)])
assert rows[0] == rows[1]
PYTHON

# The copy of the index is not taken if it is damaged.
index=$(find cache -name "*.whole" -size +1000k)
printf 'damaged' | dd of="$index" bs=1 seek=3000 conv=notrunc status=none
serve
expect 0 'all sound' verify "$object"

# What is wrong.
expect 2 's3://bucket/none.idx does not exist' info s3://bucket/none
AWS_SECRET_ACCESS_KEY=wrong expect 2 '403 SignatureDoesNotMatch' info "$object"
AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' HOME=$dir expect 2 'the request was not signed' info "$object"
AWS_SECRET_ACCESS_KEY='' expect 2 'belong together' info "$object"
AWS_ACCESS_KEY_ID='' AWS_PROFILE=none HOME=$dir expect 2 "AWS_PROFILE is 'none'" info "$object"
mkdir -p .aws
printf '[other]\naws_access_key_id = x\n[mine]\n# a comment\naws_access_key_id = id\naws_secret_access_key = secret/+\n' >.aws/credentials
AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' AWS_PROFILE=mine HOME=$dir expect 0 'tokens' info "$object"
mkdir shared
chmod 777 shared
MS_DATA_CACHE=$dir/shared expect 2 'has mode 0777' info "$object"
MS_DATA_CACHE=$dir/c.toml expect 2 'c.toml' info "$object"
expect 2 "use 's3://bucket/a b\\+/noise'" info "$object.bin"
serve token=sesame
expect 2 '403 InvalidToken' info "$object"
AWS_SESSION_TOKEN=sesame expect 0 'tokens' info "$object"
rm -rf cache/*
serve replaced=6
expect 74 'was replaced while it was read' verify "$object"
rm -rf cache/*
serve replaced=6 blind
expect 74 'was replaced while it was read' verify "$object"
rm -rf cache/*
serve hidden # the note is missed, no more
rm "store/bucket/a b+/noise.meta.json"
expect 0 'all sound' verify "$object"
expect 2 'without s3:ListBucket' info s3://bucket/none
expect 2 'expected s3://BUCKET/KEY' info s3://bucket
expect 2 'only read' encode --tokenizer byte -o s3://bucket/new noise
AWS_ENDPOINT_URL=http://me:secret@127.0.0.1 expect 2 'without a user and password' info "$object"
grep -q secret err && fail "a password is printed"
rm -rf cache/*
serve shifted
expect 74 'bytes 0 to 262143 were requested' verify "$object"
stop_server
AWS_ENDPOINT_URL=http://127.0.0.1:1 expect 74 'cannot be read from http://127.0.0.1:1' info "$object"

exit $((failures > 0))
