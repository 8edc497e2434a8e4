"""A store with S3's API for tests: serves the files below DIRECTORY as objects, BUCKET/KEY, to requests that KEY signed.
usage: s3_server.py DIRECTORY ID SECRET [FAULT...]

Prints its port. It computes the signature of each request itself (AWS Signature Version 4), from the request as it arrived.
Each FAULT is one of: busy (every third reply is 503), cut (every fifth ends in the middle), token=T (requests need this
session token), replaced=N (after N replies every object has another ETag), blind (If-Match is ignored), shifted (a part
begins a byte late, and its range says so), hidden (what does not exist is 403, as for keys without s3:ListBucket). DIRECTORY/requests.log has a line a request.
"""

import hashlib
import hmac
import http.server
import pathlib
import re
import sys
import urllib.parse

root, key_id, secret = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
faults = dict((word.split("=", 1) + [""])[:2] for word in sys.argv[4:])
replies = 0


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(request, scope, signed):
    """The signature that a request with this scope and these signed headers must have."""
    path, _, query = request.path.partition("?")
    headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in signed)
    canonical = "\n".join([request.command, path, query, headers, ";".join(signed), request.headers["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope,
                      hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = mac(key, part)
    return mac(key, text).hex()


def problem(request):
    """Returns the code with which S3 would refuse the request; None if it would not."""
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]+)",
                         request.headers.get("Authorization", ""))
    if not match:
        return "AccessDenied"
    name, scope, signed, given = match.groups()
    signed = signed.split(";")
    if name != key_id:
        return "InvalidAccessKeyId"
    if not {"host", "x-amz-content-sha256", "x-amz-date"} <= set(signed) or scope.split("/")[2:] != ["s3", "aws4_request"]:
        return "AuthorizationHeaderMalformed"
    if "token" in faults and ("x-amz-security-token" not in signed or
                              request.headers["x-amz-security-token"] != faults["token"]):
        return "InvalidToken"
    return None if hmac.compare_digest(signature(request, scope, signed), given) else "SignatureDoesNotMatch"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def refuse(self, status, code):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>refused by the test</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        global replies
        replies += 1
        with open(root / "requests.log", "a") as log:
            log.write(f"{self.path} {self.headers.get('Range')}\n")
        if "busy" in faults and replies % 3 == 0:
            return self.refuse(503, "SlowDown")
        code = problem(self)
        if code:
            return self.refuse(403, code)
        path = root / urllib.parse.unquote(self.path).lstrip("/")
        if not path.is_file():
            return self.refuse(403, "AccessDenied") if "hidden" in faults else self.refuse(404, "NoSuchKey")
        data = path.read_bytes()
        etag = hashlib.md5(data).hexdigest()
        if "replaced" in faults and replies > int(faults["replaced"]):
            etag = "replaced"
        if "blind" not in faults and self.headers.get("If-Match", f'"{etag}"') != f'"{etag}"':
            return self.refuse(412, "PreconditionFailed")
        begin, end = (int(number) for number in re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        if begin >= len(data):
            return self.refuse(416, "InvalidRange")
        if "shifted" in faults and self.path.endswith(".bin") and end > begin:
            begin, end = begin + 1, end + 1
        part = data[begin:end + 1]
        self.send_response(206)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if "cut" in faults and replies % 5 == 0:
            self.wfile.write(part[:len(part) // 2])
            self.close_connection = True
        else:
            self.wfile.write(part)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
