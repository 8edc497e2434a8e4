#!/usr/bin/env bash
# Token files in moto's S3, which is of PyPI and checks signatures.  usage: objects_peer.sh MS-DATA
set -euo pipefail
tool=$1
dir=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet 'moto[server]' boto3
head -c 1500000 /dev/urandom | base64 -w 64 >noise
"$tool" encode --tokenizer byte --by-line -o noise noise >/dev/null 2>&1
# Requests after the 7 that prepare it are checked.
INITIAL_NO_AUTH_ACTION_COUNT=7 venv/bin/moto_server -H 127.0.0.1 -p 0 >server.log 2>&1 &
server=$!
until port=$(grep -om1 'Running on http://127.0.0.1:[0-9]*' server.log); do
  kill -0 "$server"
  sleep 0.2
done
export AWS_ENDPOINT_URL=${port#Running on } AWS_REGION=us-east-1 MS_DATA_CACHE=$dir/cache
AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any venv/bin/python - >key <<'PYTHON'
import boto3, json, os
client = {name: boto3.client(name, endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1") for name in ("iam", "s3")}
client["iam"].create_user(UserName="reader")
key = client["iam"].create_access_key(UserName="reader")["AccessKey"]
allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
client["iam"].put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=json.dumps(allowed))
client["s3"].create_bucket(Bucket="bucket")
for suffix in ("bin", "idx", "meta.json"):
    client["s3"].upload_file(f"noise.{suffix}", "bucket", f"some folder/a+b.{suffix}")
print(key["AccessKeyId"], key["SecretAccessKey"])
PYTHON
read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY <key
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
object='s3://bucket/some folder/a+b'
"$tool" verify "$object" | grep 'all sound'
[ "$("$tool" show "$object" --document 5)" = "$("$tool" show noise --document 5)" ]
code=0
AWS_SECRET_ACCESS_KEY=wrong "$tool" info "$object" 2>err || code=$?
cat err
[ "$code" -eq 2 ] && grep -q '403 SignatureDoesNotMatch' err
