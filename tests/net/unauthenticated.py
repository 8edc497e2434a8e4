#!/usr/bin/env python3
"""Connections without the secret to the coordinator and to all agents of a check change no verdict of ms-netcheck locate: silent
ones that stay, and a flood of those that come and go.   usage: tests/net/unauthenticated.py [--build DIR] [--silent 1000] [--flood 0]"""

import argparse
import json
import os
import resource
import socket
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import fabric as f

f.enter()
parser = argparse.ArgumentParser()
parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release"))
parser.add_argument("--silent", type=int, default=1000, help="at the coordinator, and as many at all agents together")
parser.add_argument("--flood", type=int, default=0, help="connections that are closed at once, in all")
options = parser.parse_args()
fabric = f.Fabric(os.path.abspath(options.build))
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
PLACES = {f.COORDINATOR: ["cat"], **{f.address(n): ["ip", "netns", "exec", n, "cat"] for n in f.NAMES}}
# Agents begin late, so that the unauthenticated are first at the coordinator.
with open("/run/late", "w", encoding="ascii") as file:
    file.write('#!/bin/sh\nsleep 2\nexec ip netns exec "$@"\n')
os.chmod("/run/late", 0o755)


def ports(place):
    """Who listens at this address: anybody on the node may look."""
    rows = [row.split() for row in f.run(*PLACES[place], "/proc/net/tcp").stdout.splitlines()[1:]]
    ours = socket.inet_aton(place)[::-1].hex().upper()
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[1].split(":")[0] in (ours, "00000000")]


class Unauthenticated:
    """While this lasts."""

    def __enter__(self):
        self.held, self.came, self.failed, self.stop = {place: [] for place in PLACES}, 0, 0, threading.Event()
        self.threads = [threading.Thread(target=self.come, args=(place,)) for place in PLACES]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        for held in self.held.values():
            for connection in held:
                connection.close()

    def come(self, place):
        here = place == f.COORDINATOR
        silent = options.silent if here else options.silent // len(f.NAMES)
        while not self.stop.wait(0.05) and (len(self.held[place]) < silent or self.came < options.flood):
            found = ports(place)
            for port in found * 100:
                try:
                    connection = socket.create_connection((place, port), timeout=1)
                except OSError:
                    self.failed += 1
                    continue
                self.came += 1
                if len(self.held[place]) < silent:
                    self.held[place].append(connection)
                    continue
                connection.close()
                if self.came >= options.flood:
                    break


def locate():
    with Unauthenticated() as unauthenticated:
        status, out, err = fabric.netcheck("locate", "--json", "--seconds", "400ms", launch="/run/late {node} {agent}")
        held = len(unauthenticated.held[f.COORDINATOR])
    try:
        document = json.loads(out)
    except ValueError:
        sys.exit(f"locate failed with status {status}: {err}{out}")
    print(f"{unauthenticated.came} came, {unauthenticated.failed} did not get through; told: {document['unauthenticated']}", flush=True)
    return document, [(v["kind"], v["who"]) for v in document["verdict"]], held


wrong = []
document, found, held = locate()
if found or document["findings"] or len(document["healthy"]) != f.NODES:
    wrong.append(f"healthy: {document['verdict']} {document['findings']}")
told = document["unauthenticated"].get("the coordinator", {"connections": 0})["connections"]
if held < 200:
    wrong.append(f"only {held} unauthenticated came to the coordinator")
if not 0 < told <= held:  # a busy coordinator has not accepted all of them by the end
    wrong.append(f"of {held} unauthenticated at the coordinator {told} are told")
with f.broken(fabric, lambda: fabric.slow_node("n3")):
    document, found, _ = locate()
    if found != [("node", "n3")]:
        wrong.append(f"slow node: {found} {document['findings']}")
print("\n".join(wrong) or "no verdict changed")
sys.exit(1 if wrong else 0)
