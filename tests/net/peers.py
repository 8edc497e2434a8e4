#!/usr/bin/env python3
"""Bandwidth beside iperf3 and latency beside sockperf, on the same namespaces, in turns.
usage: tests/net/peers.py [--build DIR] [--turns 5]    (takes iperf3 and sockperf)"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import fabric as f

f.enter()
parser = argparse.ArgumentParser()
parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release"))
parser.add_argument("--turns", type=int, default=5)
options = parser.parse_args()
for tool in ("iperf3", "sockperf"):
    if shutil.which(tool) is None:
        print(f"{tool} is not installed")
        sys.exit(77)
fabric = f.Fabric(os.path.abspath(options.build))
# Round trips with both ends on one processor: they take three times as long between two of a virtual machine, and two
# runs of the same program then differ by more than two programs do here.
ON = "ip netns exec {node} taskset -c 0 "
servers = [subprocess.Popen([*ON.format(node="n2").split(), *words] if words[0] == "sockperf" else
                            ["ip", "netns", "exec", "n2", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
           for words in (["iperf3", "--server"], ["sockperf", "server", "--tcp", "--ip", f.address("n2"), "--port", "11111"])]
time.sleep(0.5)


def ours():
    def pair(*words, **how):
        status, out, err = fabric.netcheck("pairs", "--json", "--one-way", *words, nodes=["n1", "n2"], **how)
        return json.loads(out)["pairs"][0]

    latency = pair("--seconds", "1ms", "--pings", "1000000", launch=ON + "{agent}")["latency_us"]["p50"]
    return pair("--seconds", "2s")["there"]["gbps"] * 1e3, latency


def iperf():
    out = f.inside("n1", f"iperf3 --client {f.address('n2')} --time 2 --json").stdout
    return json.loads(out)["end"]["sum_received"]["bits_per_second"] * 1e-6


def sockperf():
    out = f.run(*f"{ON.format(node='n1')} sockperf ping-pong --tcp --ip {f.address('n2')} --port 11111 --time 2 --msg-size 16".split()).stdout
    return float(re.search(r"percentile 50.000\s*=\s*([\d.]+)", out)[1])


try:
    print("rate          ours   iperf3     off |     ours  sockperf     off   (Mbit/s, us; medians of turns)")
    for rate in ("50mbit", "100mbit", "200mbit", "500mbit"):
        for node in ("n1", "n2"):
            fabric.slow_sender(node, rate)
            fabric.slow_receiver(node, rate)
        rows = []
        for turn in range(options.turns):
            gbps, us = ours()
            rows.append((gbps, iperf(), us, sockperf()))
        a, b, c, d = (statistics.median(column) for column in zip(*rows))
        print(f"{rate:8} {a:9.1f} {b:8.1f} {100 * (a / b - 1):+6.1f} % | {c:8.1f} {d:9.1f} {100 * (c / d - 1):+6.1f} %", flush=True)
finally:
    for server in servers:
        server.kill()
