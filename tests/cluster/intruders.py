"""Intruders at the driver's port: garbage, endless lines, slow senders, a flood, credentials that are none, of another
user, for another connection or driver, and used before, and a line said twice. All are to be dropped. usage: intruders.py HOST PORT SOCKET-OF-MUNGED"""
import hmac
import json
import os
import socket
import subprocess
import sys
import time

host, port, munged = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def connect():
    return socket.create_connection((host, port), timeout=10)


def nonce_of(connection):
    return json.loads(connection.makefile().readline())["nonce"]


def seal(nonce, user=None, at=None):
    """For the driver at this address; by default for the one that we talk to."""
    at = at or "%s:%d" % connection_address
    words = ["munge", "--socket", munged, "--string", f"ms-driver 2 client  {nonce} x {at}"]
    return subprocess.run(words, user=user, check=True, capture_output=True, text=True).stdout.strip()


def greet(connection, credential):
    greeting = {"role": "client", "node": "", "nonce": "x", "credential": credential}
    connection.sendall(json.dumps(greeting).encode() + b"\n")


def answer(connection):
    """What comes back: nothing where the driver drops the connection."""
    try:
        return connection.makefile().readline()
    except ConnectionError:
        return ""


refused = 0


def expect_nothing(connection):
    global refused
    said = answer(connection)
    assert not said, said
    refused += 1


# A credential that proves who we are, so that the refusals below are not for another reason.
well = connect()
connection_address = well.getpeername()[:2]
nonce = nonce_of(well)
credential = seal(nonce)
greet(well, credential)
sealed = json.loads(answer(well))["credential"]
unmunge = ["unmunge", "--socket", munged, "--metadata", "/dev/null"]
key = subprocess.run(unmunge, input=sealed, check=True, capture_output=True, text=True).stdout.split()[-1]


def protected(number, line):
    return hmac.new(key.encode(), f"c {number} {line}".encode(), "sha256").hexdigest() + line + "\n"



for text in [b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"\0" * 5000, b"[" * 4000 + b"\n", b'{"role": 1}\n', os.urandom(4000) + b"\n"]:
    garbage = connect()
    nonce_of(garbage)
    try:
        garbage.sendall(text)
    except ConnectionError:
        pass
    expect_nothing(garbage)
for make in [lambda nonce: "", lambda nonce: "MUNGE:abc:", lambda nonce: seal(nonce, 65534), lambda nonce: seal("another"),
             lambda nonce: credential, lambda nonce: seal(nonce, at="127.0.0.1:1")]:
    intruder = connect()
    greet(intruder, make(nonce_of(intruder)))
    expect_nothing(intruder)

slow = [connect() for _ in range(300)]
flood = [connect() for _ in range(2000)]
for connection in flood:
    connection.close()
for _ in range(5):
    for connection in slow:
        try:
            connection.send(b"{")
        except OSError:  # dropped already
            pass
    time.sleep(0.5)
evict = '{"ask": "evict", "node": "node99"}'
well.sendall(protected(0, evict).encode())
assert "not a node" in answer(well)
well.sendall(protected(0, evict).encode())  # said before
expect_nothing(well)
print(f"{refused} refused, a flood and slow senders dropped, and one who proved who he is was answered")
