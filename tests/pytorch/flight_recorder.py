#!/usr/bin/env python3
"""Flight Recorder dumps of small gloo jobs that hang, end or run on, and the verdict that each deserves.

flight_recorder.py make DIR [CASE ...]   runs the cases; DIR/CASE/ gets each rank's dump as JSON and as a pickle
flight_recorder.py plan DIR [CASE ...]   writes the dumps that NCCL would leave, without PyTorch: DIR/CASE-nccl/
flight_recorder.py judge MS_TRACEPP DIR  asks ms-tracepp about every case of DIR, in both forms; exits 1 if one is wrong
flight_recorder.py list                  the cases

The ranks are processes of this machine. All of them dump once none has got further for a while: blocked in a call for
ever, as after a hang. Needs PyTorch. Gloo kills a process whose peers disagree on a size, which NCCL hangs in.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from jobs import cases

QUIET_S = 1.2  # no rank gets further for this long: the job hangs, or has ended


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
        self.rank, self.world, self.groups = rank, world, [list(range(world))]
        self.calls = []  # of (operation, members' place in groups, bytes of its tensors, type, waits)

    def new_group(self, ranks):
        self.groups.append(ranks)
        return len(self.groups) - 1

    def note(self, operation, group, inputs, outputs, kind="Float", wait=True):
        self.calls.append({"operation": operation, "group": group or 0, "inputs": inputs, "outputs": outputs, "type": kind,
                           "wait": wait})

    def all_reduce(self, size=8, group=None, wide=False, wait=True):
        self.note("all_reduce", group, [[size]], [[size]], "Double" if wide else "Float", wait)

    def all_gather(self, size=8, group=None, wait=True):
        self.note("all_gather", group, [[size]], [[size]] * len(self.groups[group or 0]), wait=wait)

    def broadcast(self, source=0, size=8, group=None, wait=True):
        self.note("broadcast", group, [[size]], [[size]], wait=wait)

    def reduce_scatter(self, size=4):
        self.note("_reduce_scatter_base", None, [[size * self.world]], [[size]])

    def send(self, peer, size=8):
        self.note(f"send {self.rank}->{peer}", None, [[size]], [[size]])

    def recv(self, peer, size=8):
        self.note(f"recv {self.rank}<-{peer}", None, [[size]], [[size]])

    def stop(self):
        raise Stopped

    die = stop


def rank_main(case, rank, beat, dump, store, directory):
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import threading
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    finished = threading.Event()

    def write():
        while not dump.value:
            time.sleep(0.02)
        base = directory / f"trace_rank_{rank}"
        if rank not in case.dies:
            base.with_suffix(".json").write_bytes(torch._C._distributed_c10d._dump_fr_trace_json())
            stacks = case.name.startswith("missing-2")  # they name files of this machine, and take long
            base.with_suffix(".pickle").write_bytes(torch._C._distributed_c10d._dump_fr_trace(includeStackTraces=stacks))
        os._exit(0)

    threading.Thread(target=write, daemon=True).start()
    dist.init_process_group("gloo", rank=rank, world_size=case.world, store=dist.FileStore(store, case.world))
    job = Job(rank, case.world, beat)
    try:
        case.body(rank, job)
    except RuntimeError as error:  # gloo refuses some mistakes that NCCL hangs in; the recorder has them all the same
        print(f"{case.name} rank {rank}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
    finished.wait()


def make(directory, wanted):
    import multiprocessing
    import torch  # noqa: F401 - imported once, for all ranks that are forked
    import torch.distributed  # noqa: F401
    context = multiprocessing.get_context("fork")
    for case in cases():
        if wanted and not any(case.name.startswith(prefix) for prefix in wanted):
            continue
        place = Path(directory) / case.name
        place.mkdir(parents=True, exist_ok=True)
        store = place / ".store"
        store.unlink(missing_ok=True)
        beat, dump = context.Array("l", case.world, lock=False), context.Value("b", 0, lock=False)
        ranks = [context.Process(target=rank_main, args=(case, i, beat, dump, str(store), place))
                 for i in range(case.world)]
        for process in ranks:
            process.start()
        seen, since, deadline = [], time.monotonic(), time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.1)
            now = list(beat)
            if now != seen or 0 in now:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > QUIET_S:
                break
        dump.value = 1
        for process in ranks:
            process.join(60)
            if process.is_alive():
                process.kill()
        store.unlink(missing_ok=True)


def channel(call):
    """What two calls must share to meet: a pair of ranks in one direction, or the group."""
    if call["operation"][:5] in ("send ", "recv "):
        kind, ends = call["operation"].split(" ")
        one, other = ends.replace("<-", "->").split("->")
        return (one, other) if kind == "send" else (other, one)
    return call["group"]


def meets(call, other):
    if isinstance(channel(call), tuple):
        return channel(call) == channel(other) and call["operation"][:4] != other["operation"][:4]
    return all(call[key] == other[key] for key in ("operation", "group", "inputs", "type"))


def run_plan(plans):
    """Marks each call completed, started or scheduled: every rank has one stream, and a call ends when all meet in it."""
    at = [0] * len(plans)
    moved = True
    while moved:
        moved = False
        for plan in plans:
            for call in plan.calls[at[plan.rank]:at[plan.rank] + 1]:
                where = channel(call)
                ranks = [int(end) for end in where] if isinstance(where, tuple) else plan.groups[where]
                heads = [plans[rank].calls[at[rank]] if at[rank] < len(plans[rank].calls) else None for rank in ranks]
                others = [head for head in heads if head is not call]
                if all(head is not None and meets(call, head) for head in others) and len(others) == len(ranks) - 1:
                    for rank in ranks:
                        plans[rank].calls[at[rank]]["state"] = "completed"
                        at[rank] += 1
                    moved = True
    for plan in plans:
        for call in plan.calls[at[plan.rank]:at[plan.rank] + 1]:
            call["state"] = "started"


def nccl_dump(plan):
    entries, collectives, transfers, begin = [], {}, {}, 1_760_000_000_000_000_000
    for i, call in enumerate(plan.calls):
        group, state = call["group"], call.get("state", "scheduled")
        p2p = isinstance(channel(call), tuple)
        numbers = transfers if p2p else collectives
        numbers[group] = numbers.get(group, 0) + 1
        time_ns = begin + i * 1_000_000
        description = "default_pg" if group == 0 else "undefined"
        entries.append({
            "record_id": i, "pg_id": group, "process_group": [str(group), description], "is_p2p": p2p, "op_id": i + 1,
            "collective_seq_id": collectives.get(group, 0), "p2p_seq_id": transfers.get(group, 0),
            "profiling_name": "nccl:" + call["operation"], "time_created_ns": time_ns, "state": state,
            "input_sizes": call["inputs"], "input_dtypes": [call["type"]] * len(call["inputs"]),
            "output_sizes": call["outputs"], "output_dtypes": [call["type"]] * len(call["outputs"]),
            "time_discovered_started_ns": time_ns + 10_000 if state != "scheduled" else 0,
            "time_discovered_completed_ns": time_ns + 500_000 if state == "completed" else 0,
            "retired": state == "completed", "timeout_ms": 600_000})
    done = {}
    for entry in entries:
        if entry["state"] == "completed":
            done[entry["pg_id"]] = entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"]
    return {"version": "2.10", "nccl_comm_state": {}, "entries": entries,
            "pg_config": {str(i): {"name": str(i), "desc": "default_pg" if i == 0 else "undefined", "ranks": str(ranks)}
                          for i, ranks in enumerate(plan.groups) if plan.rank in ranks},
            "pg_status": {str(i): {"last_enqueued_collective": str(collectives.get(i, -1)),
                                   "last_started_collective": "-1", "last_completed_collective": str(done.get(i, -1))}
                          for i in range(len(plan.groups))}}


def plan_all(directory, wanted):
    import pickle
    for case in cases():
        if wanted and not any(case.name.startswith(prefix) for prefix in wanted):
            continue
        place = Path(directory) / f"{case.name}-nccl"
        place.mkdir(parents=True, exist_ok=True)
        plans = [Plan(rank, case.world) for rank in range(case.world)]
        for plan in plans:
            try:
                case.body(plan.rank, plan)
            except Stopped:
                pass
        run_plan(plans)
        for plan in plans:
            if plan.rank in case.dies:
                continue
            dump = nccl_dump(plan)
            (place / f"trace_rank_{plan.rank}.json").write_text(json.dumps(dump))
            (place / f"trace_rank_{plan.rank}.pickle").write_bytes(pickle.dumps(dump, protocol=2 + plan.rank % 4))


def ask(program, files):
    done = subprocess.run([program, "hang", "--json", *map(str, files)], capture_output=True, text=True, timeout=60)
    if done.returncode not in (0, 1):
        return None, f"exit {done.returncode}: {done.stderr.strip()}"
    return json.loads(done.stdout), ""


def shows(case, place):
    """Whether the dumps show what happened: gloo records no sends and recvs, and a rank that it killed left none."""
    if place.name.endswith("-nccl"):
        return True
    left = len(list(place.glob("trace_rank_*.json")))
    return left == case.world and not case.name.startswith(("chain", "send"))


def wrong(case, answer, is_shown):
    """Returns what is wrong with an answer; None: it is right, or says of what the dumps do not show that it is not sure."""
    problem = mistake(case, answer)
    if problem and not is_shown:
        suspects = answer["suspects"]
        is_sure = suspects[0]["confidence"] > 0.5 if suspects else "gloo" not in answer["sentence"]
        return problem if is_sure else None
    return problem


def mistake(case, answer):
    suspects = answer["suspects"]
    first = suspects[0] if suspects else None
    told = f"state {answer['state']}: {answer['sentence']}"
    if case.verdict.state != "hang":
        return None if answer["state"] != "hang" and not suspects else "calls it a hang: " + told
    if answer["state"] != "hang" or first is None:
        return told
    right = first["rank"] in case.verdict.ranks and first["reason"] in case.verdict.reasons
    if not right or first["confidence"] < case.verdict.at_least:
        return f"rank {first['rank']} {first['reason']} {first['confidence']}: {answer['sentence']}"
    return None


def judge(program, directory):
    right = count = sure_right = sure = 0
    for case in cases():
        places = [Path(directory) / (case.name + end) for end in ("", "-nccl")]
        for place, form in [(place, form) for place in places for form in ("json", "pickle")]:
            files = sorted(place.glob(f"trace_rank_*.{form}"))
            if not files:
                continue
            count += 1
            answer, problem = ask(program, files)
            problem = problem or wrong(case, answer, shows(case, place))
            suspects = answer["suspects"] if answer else []
            if suspects and suspects[0]["confidence"] >= 0.8:
                sure += 1
                sure_right += problem is None
            right += problem is None
            if problem:
                print(f"{place.name} ({form}): {problem}")
    print(f"{right} of {count} right; of {sure} with confidence 0.8 and more {sure_right}")
    return 0 if count and right == count else 1


def main():
    if sys.argv[1:2] == ["make"] and len(sys.argv) > 2:
        return make(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] == ["plan"] and len(sys.argv) > 2:
        return plan_all(sys.argv[2], sys.argv[3:])
    if sys.argv[1:2] == ["judge"] and len(sys.argv) == 4:
        return judge(sys.argv[2], sys.argv[3])
    if sys.argv[1:] == ["list"]:
        return print("\n".join(case.name for case in cases()))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
