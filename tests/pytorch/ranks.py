"""What the bodies of jobs.py run on: gloo (Job), or a plan of what NCCL would do, and the dumps that it would leave."""
import os
import time


class Job:
    """What the body of a rank works with: torch.distributed, groups, and calls that count as progress."""

    def __init__(self, rank, world, beat):
        import torch
        import torch.distributed as dist
        self.torch, self.dist, self.rank, self.world, self.beat = torch, dist, rank, world, beat
        self.kept = []  # works of asynchronous calls

    def progress(self):
        self.beat[self.rank] += 1

    def new_group(self, ranks):
        return self.dist.new_group(ranks)

    def call(self, name, *args, wait=True, **kwargs):
        work = getattr(self.dist, name)(*args, async_op=True, **kwargs)
        self.kept.append(work)
        self.progress()
        if wait:
            work.wait()
            self.progress()

    def all_reduce(self, size=8, group=None, wide=False, wait=True):
        dtype = self.torch.float64 if wide else self.torch.float32
        self.call("all_reduce", self.torch.ones(size, dtype=dtype), group=group, wait=wait)

    def reduce_scatter(self, size=4):
        self.call("reduce_scatter_tensor", self.torch.ones(size), self.torch.ones(size * self.world))

    def all_gather(self, size=8, group=None, wait=True):
        members = self.dist.get_world_size(group)
        self.call("all_gather", [self.torch.ones(size) for _ in range(members)], self.torch.ones(size), group=group,
                  wait=wait)

    def broadcast(self, source=0, size=8, group=None, wait=True):
        self.call("broadcast", self.torch.ones(size), source, group=group, wait=wait)

    def send(self, peer, size=8):
        work = self.dist.isend(self.torch.ones(size), peer)
        self.progress()
        work.wait()
        self.progress()

    def recv(self, peer, size=8):
        work = self.dist.irecv(self.torch.ones(size), peer)
        self.progress()
        work.wait()
        self.progress()

    def batch(self, sends=(), recvs=(), size=8):
        """One batch_isend_irecv: sends to and recvs from these ranks."""
        dist, torch = self.dist, self.torch
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(size), peer) for peer in sends] +
                                       [dist.P2POp(dist.irecv, torch.ones(size), peer) for peer in recvs])
        self.progress()
        for work in works:
            work.wait()
        self.progress()

    def scatter(self, root, size=8):
        parts = [self.torch.ones(size) for _ in range(self.world)] if self.rank == root else None
        self.call("scatter", self.torch.ones(size), parts, src=root)

    def gather(self, root, size=8):
        parts = [self.torch.ones(size) for _ in range(self.world)] if self.rank == root else None
        self.call("gather", self.torch.ones(size), parts, dst=root)

    def steps(self, count):
        """Training that goes well: sizes repeat every three calls."""
        for i in range(count):
            self.all_reduce(8 + i % 3)
            if i % 4 == 3:
                self.all_gather()

    def stop(self):
        time.sleep(3600)

    def die(self):
        os._exit(9)


class Stopped(Exception):
    """The body of a planned rank issues nothing more."""


class Plan(Job):
    """A Job that notes its calls: what a rank would issue if nothing blocked its host, as with NCCL."""

    def __init__(self, rank, world):
        self.rank, self.world, self.groups, self.names = rank, world, [list(range(world))], {}
        self.calls = []

    def new_group(self, ranks):
        self.groups.append(ranks)
        return len(self.groups) - 1

    def note(self, operation, group, inputs, outputs, kind="Float", wait=True, **more):
        self.calls.append({"operation": operation, "group": group or 0, "inputs": inputs, "outputs": outputs, "type": kind,
                           "wait": wait, "makes": len(self.groups), **more})

    def transfer(self, operation, size):
        return {"operation": operation, "inputs": [[size]], "outputs": [[size]]}

    def all_reduce(self, size=8, group=None, wide=False, wait=True):
        self.note("all_reduce", group, [[size]], [[size]], "Double" if wide else "Float", wait)

    def all_gather(self, size=8, group=None, wait=True):
        self.note("all_gather", group, [[size]], [[size]] * len(self.groups[group or 0]), wait=wait)

    def broadcast(self, source=0, size=8, group=None, wait=True):
        self.note("broadcast", group, [[size]], [[size]], wait=wait)

    def reduce_scatter(self, size=4):
        self.note("_reduce_scatter_base", None, [[size * self.world]], [[size]])

    def scatter(self, root, size=8):
        # NCCL's records the output as its input, and as outputs the list that only the root has.
        self.note("scatter", None, [[size]], [[size]] * self.world if self.rank == root else [[0]])

    def gather(self, root, size=8):
        self.note("gather", None, [[size]], [[size]] * self.world if self.rank == root else [[0]])

    def coalesced(self, sizes, group=None, operation="_all_gather_base"):
        """Collectives of a coalescing manager: one launch, and one number, for all."""
        self.note("coalesced", group, [[size] for size in sizes], [], parts=[
            {"operation": operation, "inputs": [[size]], "outputs": [[size * self.world]]} for size in sizes])

    def all_gather_uneven(self):
        """NCCL's all_gather of lists whose sizes differ: one broadcast from each member."""
        self.note("ALLGATHER_coalesced", None, [], [], parts=[
            {"operation": "_broadcast_oop", "inputs": [[8 + root]], "outputs": [[8 + root]]} for root in range(self.world)])

    def send(self, peer, size=8):
        self.note("send", None, [], [], transfers=[self.transfer(f"send {self.rank}->{peer}", size)])

    def recv(self, peer, size=8):
        self.note("recv", None, [], [], transfers=[self.transfer(f"recv {self.rank}<-{peer}", size)])

    def batch(self, sends=(), recvs=(), size=8):
        calls = [self.transfer(f"send {self.rank}->{peer}", size) for peer in sends]
        calls += [self.transfer(f"recv {self.rank}<-{peer}", size) for peer in recvs]
        self.note("coalesced", None, [], [], transfers=calls)

    def make_again(self, group):
        """Destroys a group and makes one of the same name."""
        self.groups.append(self.groups[group])
        self.names[len(self.groups) - 1] = self.names.get(group, str(group))
        return len(self.groups) - 1

    def stop(self):
        raise Stopped

    die = stop


def ends(transfer):
    """The channel of a transfer, from one rank to another, and whether this is its sending end."""
    kind, ranks = transfer["operation"].split(" ")
    one, other = (int(rank) for rank in ranks.replace("<-", "->").split("->"))
    return ((one, other), True) if kind == "send" else ((other, one), False)


def meets(call, other):
    if other is None or "transfers" in other or "transfers" in call:
        return False
    return all(call.get(key) == other.get(key) for key in ("operation", "group", "inputs", "type", "parts"))


def run_plan(plans):
    """Marks each call completed, started or scheduled: every rank has one stream, a collective ends when all meet in it,
    and a batch of transfers when all of them have met their other ends."""
    at = [0] * len(plans)

    def head(rank):
        return plans[rank].calls[at[rank]] if at[rank] < len(plans[rank].calls) else None

    def meet_transfers(rank):
        for transfer in head(rank)["transfers"]:
            channel, sends = ends(transfer)
            other = head(channel[1] if sends else channel[0])
            for theirs in other.get("transfers", []) if other else []:
                if not transfer.get("met") and not theirs.get("met") and ends(theirs) == (channel, not sends):
                    transfer["met"] = theirs["met"] = True
        return all(transfer.get("met") for transfer in head(rank)["transfers"])

    moved = True
    while moved:
        moved = False
        for rank, plan in enumerate(plans):
            call = head(rank)
            if call is None:
                continue
            members = [rank] if "transfers" in call else plan.groups[call["group"]]
            ended = meet_transfers(rank) if "transfers" in call else all(meets(call, head(member)) for member in members)
            for member in members if ended else []:
                head(member)["state"] = "completed"
                at[member] += 1
            moved |= ended
    for rank in range(len(plans)):
        if head(rank) is not None:
            head(rank)["state"] = "started"


def nccl_dump(plan, case, timing):
    """What PyTorch would write: the calls of a batch have no state, and the entry behind them has it for all."""
    entries, collectives, transfers, newest, done = [], {}, {}, {}, {}
    begin_ns = 1_760_000_000_000_000_000

    def add(call, part, state, is_p2p):
        group, time_ns = call["group"], begin_ns + len(entries) * 1_000_000
        entries.append({
            "record_id": len(entries), "pg_id": group,
            "process_group": [plan.names.get(group, str(group)), "default_pg" if group == 0 else "undefined"],
            "is_p2p": is_p2p, "op_id": len(entries) + 1,
            "collective_seq_id": collectives.get(group, 0), "p2p_seq_id": transfers.get(group, 0),
            "profiling_name": "nccl:" + part["operation"], "time_created_ns": time_ns,
            "state": "scheduled" if state == "started" and not timing else state,
            "input_sizes": part["inputs"], "input_dtypes": [call["type"]] * len(part["inputs"]),
            "output_sizes": part["outputs"], "output_dtypes": [call["type"]] * len(part["outputs"]),
            "time_discovered_started_ns": time_ns + 10_000 if state != "scheduled" and timing else 0,
            "time_discovered_completed_ns": time_ns + 500_000 if state == "completed" else 0,
            "retired": state == "completed", "timeout_ms": 600_000})

    for call in plan.calls[:case.seen.get(plan.rank)]:
        numbers = transfers if "transfers" in call else collectives
        numbers[call["group"]] = newest[call["group"]] = numbers.get(call["group"], 0) + 1
        state = call.get("state", "scheduled")
        if state == "completed":
            done[call["group"]] = newest[call["group"]]
        if call["operation"] in ("send", "recv"):
            add(call, call["transfers"][0], state, True)
            continue
        for part in call.get("transfers", call.get("parts", [])):
            add(call, part, "scheduled", "transfers" in call)
        has_parts = "transfers" in call or "parts" in call
        add(call, {"operation": call["operation"], "inputs": [], "outputs": []} if has_parts else call, state, False)
    if case.only_active:
        entries = [entry for entry in entries if entry["state"] != "completed"]
    names = {i: plan.names.get(i, str(i)) for i, ranks in enumerate(plan.groups) if plan.rank in ranks}
    dump = {"version": "2.10", "nccl_comm_state": {}, "entries": entries[-case.buffer:],
            "pg_config": {name: {"name": name, "desc": "default_pg" if i == 0 else "undefined", "ranks": str(plan.groups[i])}
                          for i, name in names.items()},
            "pg_status": {str(i): {"last_enqueued_collective": str(newest[i]), "last_started_collective": "-1",
                                   "last_completed_collective": str(done.get(i, -1))} for i in names if i in newest}}
    return dump, begin_ns + len(entries) * 1_000_000
