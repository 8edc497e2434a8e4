"""A fabric of network namespaces: nodes n1 .. n8, two below each of the leaf switches s1 .. s4, all leaves below one spine.
Real packets: rates are htb and tbf, losses nft, delays a user-space line. Everything is in namespaces of this process's own and
ends with it. Takes root, ip and nft."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time

NODES, LEAVES = 8, 4
NAMES = [f"n{i + 1}" for i in range(NODES)]
NORMAL, SLOW = "100mbit", "30mbit"
COORDINATOR = "10.77.0.254"


def enter():
    """Starts this program once more in namespaces of its own, or says why that cannot be (exit status 77)."""
    if os.environ.get("FABRIC_INSIDE"):
        return
    missing = [tool for tool in ("unshare", "ip", "nft", "tc") if shutil.which(tool) is None]
    why = f"{', '.join(missing)} is not installed" if missing else "" if os.geteuid() == 0 else "namespaces take root"
    inside = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    if not why and subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        why = "no namespaces may be made here"
    if why:
        print(why)
        sys.exit(77)
    os.environ["FABRIC_INSIDE"] = "1"
    os.execvp(inside[0], [*inside, sys.executable, *sys.argv])


def run(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


def ip(text, check=True):
    return run("ip", *text.split(), check=check)


def inside(node, text, check=True):
    return run("ip", "netns", "exec", node, *text.split(), check=check)


def address(node):
    return f"10.77.0.{NAMES.index(node) + 1}"


class Fabric:
    def __init__(self, build):
        self.agent = f"{build}/bin/ms-netcheck"
        self.delay_line = f"{build}/bin/delay_line"
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        ip("link set lo up")
        ip("link add spine type bridge")
        ip("link set spine up")
        ip(f"address add {COORDINATOR}/24 dev spine")
        for leaf in range(LEAVES):
            ip(f"link add s{leaf + 1} type bridge")
            ip(f"link add up{leaf + 1} type veth peer name down{leaf + 1}")
            ip(f"link set up{leaf + 1} master s{leaf + 1} up")
            ip(f"link set down{leaf + 1} master spine up")
            ip(f"link set s{leaf + 1} up")
        for node in NAMES:
            ip(f"netns add {node}")
            inside(node, "ip link set lo up")
            self.plug(node)
        self.topology = "/run/topology.conf"
        with open(self.topology, "w") as file:
            for leaf in range(LEAVES):
                file.write(f"SwitchName=s{leaf + 1} Nodes={','.join(NAMES[2 * leaf:2 * leaf + 2])}\n")
            file.write(f"SwitchName=spine Switches={','.join(f's{i + 1}' for i in range(LEAVES))}\n")
        time.sleep(0.2)

    def leaf(self, node):
        return f"s{NAMES.index(node) // 2 + 1}"

    def plug(self, node):
        """A cable between the node and its leaf, healthy."""
        ip(f"link add v{node} type veth peer name eth0 netns {node}")
        ip(f"link set v{node} master {self.leaf(node)} up gso_max_segs 1")
        inside(node, "ip link set eth0 up gso_max_segs 1")
        self.dress(node)

    def dress(self, node):
        inside(node, f"ip address add {address(node)}/24 dev eth0")
        # What a node sends is shaped by class: packets of priority 1:20 are slow ones.
        inside(node, "tc qdisc add dev eth0 root handle 1: htb default 10")
        inside(node, f"tc class add dev eth0 parent 1: classid 1:10 htb rate {NORMAL}")
        inside(node, f"tc class add dev eth0 parent 1: classid 1:20 htb rate {SLOW}")
        if os.path.exists(f"/sys/class/net/v{node}"):
            self.limit(f"v{node}", NORMAL)

    def limit(self, device, rate):
        run("tc", "qdisc", "replace", "dev", device, "root", *f"tbf rate {rate} burst 64kb latency 50ms".split())

    def unplug(self, node):
        ip(f"link delete v{node}", check=False)

    # ---- faults: each is undone by mend()

    def slow_sender(self, node, rate=SLOW):
        inside(node, f"tc class change dev eth0 parent 1: classid 1:10 htb rate {rate}")

    def slow_receiver(self, node, rate=SLOW):
        self.limit(f"v{node}", rate)

    def slow_node(self, node):
        self.slow_sender(node)
        self.slow_receiver(node)

    def slow_way(self, a, b):
        inside(a, "nft add table inet fault")
        inside(a, "nft add chain inet fault out { type filter hook output priority 0 ; }")
        inside(a, f"nft add rule inet fault out ip daddr {address(b)} meta priority set 1:20")

    def lossy(self, node, per_mille, peer=None):
        """What arrives at the node (from the peer, or from any node)."""
        which = f"ip saddr {address(peer)}" if peer else f"ip saddr != {COORDINATOR}"
        inside(node, "nft add table inet loss")
        inside(node, "nft add chain inet loss in { type filter hook input priority 0 ; }")
        inside(node, f"nft add rule inet loss in {which} numgen random mod 1000 < {per_mille} drop")

    def lossy_node(self, node, per_mille):
        self.lossy(node, per_mille)
        inside(node, "nft add chain inet loss out { type filter hook output priority 0 ; }")
        inside(node, f"nft add rule inet loss out ip daddr != {COORDINATOR} numgen random mod 1000 < {per_mille} drop")

    def refusing(self, node):
        """Nobody can connect to the node; it can connect to others."""
        inside(node, "nft add table inet fault")
        inside(node, "nft add chain inet fault in { type filter hook input priority 0 ; }")
        inside(node, "nft add rule inet fault in tcp flags & (syn|ack) == syn reject with tcp reset")

    def small_mtu(self, node):
        inside(node, "ip link set eth0 mtu 1400")

    def late(self, node, delay_us=2000, jitter_us=200):
        """The node's cable goes through a program that holds every frame for a while."""
        self.unplug(node)
        line = subprocess.Popen([self.delay_line, node, f"v{node}", str(delay_us), str(jitter_us)], stdout=subprocess.PIPE)
        line.stdout.readline()  # both ends are there
        self.lines.append(line)
        ip(f"link set v{node} master {self.leaf(node)} up")
        inside(node, "ip link set eth0 up")
        self.dress(node)

    def slow_switch(self, leaf):
        self.limit(f"up{leaf}", SLOW)
        self.limit(f"down{leaf}", SLOW)

    def flapping(self, node, down_s=0.3, up_s=1.2):
        self.stop = threading.Event()

        def flap():
            while not self.stop.wait(up_s):
                ip(f"link set v{node} down")
                time.sleep(down_s)
                ip(f"link set v{node} up")

        self.flapper = threading.Thread(target=flap)
        self.flapper.start()

    lines = []
    flapper = None

    def mend(self):
        if self.flapper:
            self.stop.set()
            self.flapper.join()
            self.flapper = None
        for line in self.lines:
            line.kill()
            line.wait()
        self.lines = []
        for node in NAMES:
            self.unplug(node)
            inside(node, "ip link delete eth0", check=False)
            inside(node, "nft flush ruleset", check=False)
            self.plug(node)
        for leaf in range(1, LEAVES + 1):
            for device in (f"up{leaf}", f"down{leaf}"):
                run("tc", "qdisc", "del", "dev", device, "root", check=False)
        time.sleep(0.1)

    def netcheck(self, *words, nodes=NAMES, launch="ip netns exec {node} {agent}"):
        """The exit status and what was printed."""
        command = [self.agent, words[0], "--nodes", ",".join(nodes), "--launch", launch, *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)  # only ends what hangs
        return done.returncode, done.stdout, done.stderr


def faults(fabric, chance):
    """name -> (what puts the fault in, the verdicts that name it: kind and who, symptoms that must be among theirs)."""
    node, peer = chance.sample(NAMES, 2)
    third = chance.choice([n for n in NAMES if n not in (node, peer)])
    a, b = sorted((node, peer), key=NAMES.index)
    leaf = chance.randrange(1, LEAVES + 1)

    def slow_pair():
        fabric.slow_way(a, b)
        fabric.slow_way(b, a)

    def two():
        fabric.slow_node(third)
        fabric.lossy(b, 10, peer=a)

    return {
        "slow node": (lambda: fabric.slow_node(node), {("node", node)}, "bandwidth"),
        "slow sender": (lambda: fabric.slow_sender(node), {("direction", f"{node} -> *")}, "bandwidth"),
        "slow receiver": (lambda: fabric.slow_receiver(node), {("direction", f"* -> {node}")}, "bandwidth"),
        "slow pair": (slow_pair, {("link", f"{a} - {b}")}, "bandwidth"),
        "slow direction of a pair": (lambda: fabric.slow_way(node, peer), {("direction", f"{node} -> {peer}")}, "bandwidth"),
        "loss of 1 %": (lambda: fabric.lossy_node(node, 10), {("node", node)}, "loss"),
        "loss of 0.1 %": (lambda: fabric.lossy_node(node, 1), {("node", node)}, "loss"),
        "loss of 1 % of a pair, one way": (lambda: fabric.lossy(node, 10, peer=peer), {("direction", f"{peer} -> {node}")}, "loss"),
        "late node": (lambda: fabric.late(node), {("node", node)}, "latency"),
        "refusing node": (lambda: fabric.refusing(node), {("direction", f"* -> {node}")}, "silent"),
        "small MTU": (lambda: fabric.small_mtu(node), {("direction", f"* -> {node}")}, "size"),
        "flapping": (lambda: fabric.flapping(node), {("node", node)}, "flap"),
        "slow switch": (lambda: fabric.slow_switch(leaf), {("switch", f"switch s{leaf}")}, "bandwidth"),
        "two at once": (two, {("node", third), ("direction", f"{a} -> {b}")}, "bandwidth"),
    }


@contextlib.contextmanager
def broken(fabric, put_in):
    put_in()
    time.sleep(0.2)
    try:
        yield
    finally:
        fabric.mend()


def seeded(seed):
    return random.Random(seed)
