#!/usr/bin/env python3
"""Two nodes with two emulated paths between them, behind a next hop that hashes flows to paths: ms-netcheck ecmp has to tell a
collision from a slow path, and neither from one path alone.   usage: tests/net/ecmp.py [--build DIR]"""

import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import fabric as f

f.enter()
parser = argparse.ArgumentParser()
parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release"))
options = parser.parse_args()
program = os.path.abspath(options.build) + "/bin/ms-netcheck"

# n1 - hop = two paths = far - n2; the coordinator is in the namespace of `hop`.
f.run("mount", "-t", "tmpfs", "tmpfs", "/run")
f.ip("link set lo up")
for name in ("n1", "n2", "far"):
    f.ip(f"netns add {name}")
    f.inside(name, "ip link set lo up")


def cable(a, a_device, a_address, b, b_device, b_address):
    """Between two namespaces ("" is this one)."""
    f.ip(f"link add {a_device} type veth peer name {b_device}")
    for where, device, address in ((a, a_device, a_address), (b, b_device, b_address)):
        if where:
            f.ip(f"link set {device} netns {where}")
        do = (lambda text: f.inside(where, "ip " + text)) if where else f.ip
        do(f"address add {address} dev {device}")
        do(f"link set {device} up gso_max_segs 1")


cable("", "h1", "10.1.0.254/24", "n1", "eth0", "10.1.0.1/24")
cable("", "p1", "10.8.1.1/24", "far", "q1", "10.8.1.2/24")
cable("", "p2", "10.8.2.1/24", "far", "q2", "10.8.2.2/24")
cable("far", "f2", "10.2.0.254/24", "n2", "eth1", "10.2.0.2/24")
f.inside("n1", "ip route add default via 10.1.0.254")
f.inside("n2", "ip route add default via 10.2.0.254")
f.inside("far", "ip route add 10.1.0.0/24 via 10.8.1.1")
for where in ("", "far"):
    for setting in ("net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"):
        f.inside(where, f"sysctl -qw {setting}") if where else f.run("sysctl", "-qw", setting)
f.run("sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1")


def paths(count, first="50mbit", second="50mbit"):
    hops = ["nexthop via 10.8.1.2", "nexthop via 10.8.2.2"][:count]
    f.ip("route replace 10.2.0.0/24 " + " ".join(hops))
    for device, rate in (("p1", first), ("p2", second)):
        f.run("tc", "qdisc", "replace", "dev", device, "root", *f"tbf rate {rate} burst 32kb latency 30ms".split())
    time.sleep(0.1)


def verdicts(rolls=6):
    done = subprocess.run([program, "ecmp", "--nodes", "n1,n2", "--launch", "ip netns exec {node} {agent}", "--json",
                           "--flows", "4", "--rolls", str(rolls), "--seconds", "600ms"], capture_output=True, text=True, timeout=300)
    pair = json.loads(done.stdout)["pairs"][0]
    print("  ", pair["verdict"], [(r["verdict"], [round(x, 3) for x in r["alone_gbps"]], [round(x, 3) for x in r["together_gbps"]])
                                  for r in pair["rolls"]], flush=True)
    return pair["verdict"], [roll["verdict"] for roll in pair["rolls"]]


failures = 0
for name, setting, expected in (("one path", (1,), "even"), ("two paths, some rolls collide", (2,), "collision"),
                                ("two paths, one slow", (2, "50mbit", "15mbit"), "slow path")):
    paths(*setting)
    verdict, rolls = verdicts()
    right = verdict == expected
    failures += not right
    print(f"{name}: {verdict}{'' if right else ', expected ' + expected}", flush=True)
sys.exit(1 if failures else 0)
