"""Visits ms-tracepp report --follow as others may: follow_visits.py TOOL HALF WHOLE CONFIG CLUSTER, where HALF and WHOLE are
trace directories of one run with that CONFIG, the second one with more steps, and CLUSTER says what its machines can do. Exits
with 1 where a check fails."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE_S = 120  # for all that comes in time on a machine that is not busy
failures = []


def check(passed, what):
    if not passed:
        failures.append(what)
        print("FAILED:", what)


class Followed:
    """The program, serving; its socket (or port) and token."""

    def __init__(self, tool, *arguments):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [tool, "report", "--follow", *arguments], stdout=subprocess.PIPE, stderr=self.errors, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a test in the background ignores it
        said = ""
        for line in self.process.stdout:
            said += line
            if line.startswith("Ctrl-C"):
                break
        found = re.search(r"ssh -N -L \d+:(\S+) \S+", said)
        if not found:
            raise SystemExit(f"it does not serve: {said}{self.said()}")
        self.address = found.group(1)
        self.url = re.findall(r"http://\S+", said)[0]
        self.token = re.search(r"[?]token=([0-9a-f]{32})", said).group(1)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def connect(self):
        host, _, port = self.address.rpartition(":")
        if host:
            visitor = socket.create_connection((host, int(port)), PATIENCE_S)
        else:
            visitor = socket.socket(socket.AF_UNIX)
            visitor.settimeout(PATIENCE_S)
            visitor.connect(self.address)
        return visitor

    def ask(self, request):
        """The whole answer. A visitor whom a busy machine makes too slow for the server comes again."""
        end = time.monotonic() + PATIENCE_S
        while True:
            with self.connect() as visitor:
                try:
                    visitor.sendall(request.encode())
                except (BrokenPipeError, ConnectionResetError):
                    pass
                answer = everything(visitor)
            if answer and not answer.endswith("(reset)") or time.monotonic() > end:
                return answer

    def get(self, path="/", token=None, host="localhost:8000"):
        token = self.token if token is None else token
        answer = self.ask(f"GET {path}?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n")
        return answer.split("\r\n\r\n", 1)

    def state(self):
        return json.loads(self.get("/state")[1])

    def until(self, fulfils, what):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            state = self.state()
            if fulfils(state):
                return state
            time.sleep(0.2)
        check(False, f"{what}: {self.state()}")
        return self.state()

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)


def everything(visitor):
    """What comes until the other end closes."""
    parts = []
    try:
        while part := visitor.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        parts.append(b"(reset)")
    return b"".join(parts).decode()


def put(source, target):
    """Puts the files of a later trace in place of those that are there."""
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        shutil.copyfile(os.path.join(source, name), os.path.join(target, "." + name))
        os.rename(os.path.join(target, "." + name), os.path.join(target, name))


def steps_of(page):
    return json.loads(re.search(r'id="run">(.*?)</script>', page).group(1))["steps"]["numbers"]


def others(followed):
    for what, request, status in (
            ("no token", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "403"),
            ("no token", "GET /state HTTP/1.1\r\nHost: localhost\r\n\r\n", "403"),
            ("an empty token", "GET /?token= HTTP/1.1\r\nHost: localhost\r\n\r\n", "403"),
            ("a wrong token", f"GET /?token={'0' * 32} HTTP/1.1\r\nHost: localhost\r\n\r\n", "403"),
            ("a token and more", f"GET /?token={followed.token}0 HTTP/1.1\r\nHost: localhost\r\n\r\n", "403"),
            ("another site", f"GET /?token={followed.token} HTTP/1.1\r\nHost: evil.example:8000\r\n\r\n", "403"),
            ("no host", f"GET /?token={followed.token} HTTP/1.1\r\n\r\n", "403"),
            ("another path", f"GET /../etc/passwd?token={followed.token} HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
            ("POST", f"POST /?token={followed.token} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", "405"),
            ("a huge header", f"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {'x' * 100000}", "431"),
            ("no HTTP", "hello\r\n\r\n", "400")):
        answer = followed.ask(request)
        check(answer.startswith(f"HTTP/1.1 {status} "), f"{what}: {answer[:80]}")
        check("ms-tracepp report" not in answer, f"{what} sees the page")
    for host in ("localhost", "127.0.0.1", "127.0.0.1:1234", "[::1]:8000"):
        head, page = followed.get(host=host)
        check(head.startswith("HTTP/1.1 200 OK"), f"host {host}: {head[:40]}")
        check("connect-src 'self';" in page and 'data-version="' in page, f"host {host}: not a page that follows")
    check("\r\nX-Frame-Options: DENY" in head and "\r\nCache-Control: no-store" in head, f"headers: {head}")
    check(followed.said().count("refused a request without the token") == 1, f"said once: {followed.said()}")


def slow_one(followed):
    """Nobody holds a connection by saying little, and others are answered meanwhile."""
    with followed.connect() as visitor:
        begin = time.monotonic()
        visitor.sendall(b"GET / HTTP/1.1\r\n")
        check(followed.get()[0].startswith("HTTP/1.1 200"), "others are answered")
        answer = everything(visitor)
        check(answer in ("", "(reset)") and time.monotonic() - begin < PATIENCE_S - 1, f"a slow one is dropped: {answer[:40]}")


def growing(tool, half, whole, directory):
    """What is written into the files of a run is in the next page."""
    trace = os.path.join(directory, "trace")
    put(half, trace)
    followed = Followed(tool, trace)
    before = steps_of(followed.get()[1])
    put(whole, trace)
    after = followed.until(lambda _: len(steps_of(followed.get()[1])) > len(before), "the page is made anew")
    steps = steps_of(followed.get()[1])
    check(steps[:len(before)] == before, f"steps {before}, then {steps}")
    check("data were read" in after["text"] and not after["text"].count("cannot"), after["text"])

    os.rename(trace, trace + ".away")
    state = followed.until(lambda state: "cannot be read now" in state["text"], "what cannot be read is said")
    check(state["bad"] and steps_of(followed.get()[1]) == steps, "the page of before stays")
    os.rename(trace + ".away", trace)
    followed.until(lambda state: "cannot be read now" not in state["text"], "what can be read again is read")
    check(followed.end(signal.SIGTERM) == 0, "SIGTERM ends it well")


def expected(tool, half, whole, config, cluster, directory):
    """The page of a run under way compares each state with what is expected."""
    run = os.path.join(directory, "expected")
    refused(tool, "no config", "--follow", "--expected", cluster, half, says="has config.toml")
    put(half, os.path.join(run, "trace"))
    shutil.copyfile(config, os.path.join(run, "config.toml"))
    refused(tool, "two runs", "--follow", "--expected", cluster, run, half, says="needs one PATH")
    refused(tool, "no cluster", "--follow", "--expected", config, run, says="does not time this run")
    followed = Followed(tool, "--expected", cluster, run)
    section = "Against the simulator</h2>\n<p>a step takes "
    before = followed.get()[1]
    check(section in before, "nothing is expected of the run")
    put(whole, os.path.join(run, "trace"))
    followed.until(lambda _: len(steps_of(followed.get()[1])) > len(steps_of(before)), "the page is made anew")
    check(section in followed.get()[1], "nothing is expected of the newer steps")
    check(followed.end() == 0, "SIGINT ends it well")


def refused(tool, what, *arguments, says):
    done = subprocess.run([tool, "report", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    check(done.returncode == 2 and re.search(says, done.stderr), f"{what}: exit code {done.returncode}, {done.stderr}")


def places(tool, trace, directory):
    own = os.path.join(directory, "own")
    path = os.path.join(own, "page.sock")
    followed = Followed(tool, "--socket", path, trace)
    check(followed.address == path and stat.S_IMODE(os.stat(path).st_mode) == 0o600, f"the socket: {followed.address}")
    check(stat.S_IMODE(os.stat(own).st_mode) == 0o700, "a new directory is the user's alone")
    refused(tool, "a socket in use", "--follow", "--socket", path, trace, says="another program serves there")
    followed.end(signal.SIGKILL)
    check(os.path.exists(path), "SIGKILL leaves the socket")
    followed = Followed(tool, "--socket", path, trace)
    check(followed.end() == 0 and not os.path.exists(path), "one that was left behind is replaced, and removed")

    with open(path, "w", encoding="ascii") as file:
        file.write("mine")
    refused(tool, "a file", "--follow", "--socket", path, trace, says="which is no socket")
    shared = os.path.join(directory, "shared")
    os.mkdir(shared)
    os.chmod(shared, 0o777)
    refused(tool, "a directory of all", "--follow", "--socket", os.path.join(shared, "x"), trace, says="has mode 0777")
    long = os.path.join(own, "x" * 120)
    refused(tool, "a long name", "--follow", "--socket", long, trace, says="at most 107 bytes")
    for where in ("0.0.0.0:8000", "10.1.2.3:8000", "*:80", "localhost:http", "127.0.0.1:70000", ""):
        refused(tool, where, "--follow", "--listen", where, trace, says="is not 127.0.0.1:PORT")
    refused(tool, "--listen alone", "--listen", "8000", trace, says="needs --follow")
    refused(tool, "both", "--follow", "--listen", "0", "--socket", path, trace, says="one of them")
    refused(tool, "a file, too", "--follow", "-o", "page.html", trace, says="--follow and --output")
    refused(tool, "no trace", "--follow", os.path.join(directory, "nothing"), says="nothing")
    refused(tool, "no such rank", "--follow", "--ranks", "99", trace, says="no events of ranks 99")

    followed = Followed(tool, "--listen", "127.0.0.1:0", trace)
    port = int(followed.address.rpartition(":")[2])
    check(followed.url.startswith(f"http://127.0.0.1:{port}/"), followed.url)
    check(followed.get()[0].startswith("HTTP/1.1 200 OK"), "the port answers")
    refused(tool, "a port in use", "--follow", "--listen", str(port), trace, says="--listen 0 takes a free port")
    check(followed.end() == 0, "SIGINT ends it well")


def main():
    tool, half, trace, config, cluster = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        os.environ["TMPDIR"] = directory
        followed = Followed(tool, trace)
        check(stat.S_IMODE(os.stat(os.path.dirname(followed.address)).st_mode) == 0o700, "the directory of the socket")
        slow = threading.Thread(target=slow_one, args=(followed,))
        slow.start()
        others(followed)
        slow.join()
        check(followed.end() == 0, "Ctrl-C ends it well")
        check(not os.path.exists(os.path.dirname(followed.address)), "its directory is gone")
        growing(tool, half, trace, directory)
        expected(tool, half, trace, config, cluster, directory)
        places(tool, trace, directory)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
