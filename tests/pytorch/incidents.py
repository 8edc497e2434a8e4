#!/usr/bin/env python3
"""Hangs of twelve causes, and what each of six sources and all together show: whom ms-tracepp hang names, and how surely.

incidents.py judge MS_TRACEPP [SEEDS]  writes SEEDS jobs of each cause (default 3), asks about each subset of their
                                       sources, prints a table; exits 1 if an answer is wrong where it must not be
incidents.py bench MS_TRACEPP [RANKS]  the time and memory that one answer takes, of a job of 4096 ranks or of RANKS
incidents.py write DIR                 writes the jobs of one seed: DIR/CAUSE/{recorder,log,ras,stacks,heartbeats,inspector}/

The sources are as programs write them: dumps of PyTorch's flight recorder as NCCL leaves them, the log of a job with
the lines of PyTorch's watchdog, ncclras -f json twice (text in every other job), py-spy dump, the status of ms-driver, files
of NCCL's Inspector. A rank is accused where the first suspect has at least 50 %, and surely from 80 % on. Where a source does
not show the cause, the right answer is to accuse no rank. All sources together must tell where the cause lies, too, as an error
of the program must accuse no node.
"""
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jobs import Case, Verdict
from ranks import Plan, Stopped, nccl_dump, run_plan

PER_NODE = 4
BEHIND = ("not_issuing", "data_wait", "save", "no_trace", "silent", "failed")
OTHER_CALL = ("wrong_kind", "wrong_size", "missing_call", "extra_call", "wrong_order")
GONE = ("silent", "no_trace", "failed", "not_issuing")
WAITS = [("wait", "torch/distributed/distributed_c10d.py", 2501), ("all_reduce", "/opt/venv/lib/python3.12/site-packages/"
         "torch/distributed/distributed_c10d.py", 2810), ("train_step", "train.py", 88), ("<module>", "train.py", 140)]
PLACES = {
    "loader": [("poll", "multiprocessing/connection.py", 931), ("_try_get_data", "/opt/venv/lib/python3.12/site-packages/"
               "torch/utils/data/dataloader.py", 1133), ("epoch", "train.py", 71), ("<module>", "train.py", 140)],
    "checkpoint": [("_save", "/opt/venv/lib/python3.12/site-packages/torch/serialization.py", 965), ("save", "train.py", 99)],
    "own_code": [("acquire", "pool.py", 33), ("log_metrics", "train.py", 101), ("<module>", "train.py", 140)],
    "exception": [("join", "threading.py", 1119), ("close", "pool.py", 50), ("<module>", "train.py", 150)],
    "other_call": [WAITS[0], ("all_gather", WAITS[1][1], 3001), ("evaluate", "train.py", 120), ("<module>", "train.py", 141)],
}
# The reasons that are right by source; none: the source does not show the cause, and no rank may be accused.
CAUSES = {
    "loader": {"recorder": BEHIND, "log": BEHIND, "ras": BEHIND, "stacks": ("data_wait",), "heartbeats": ("data_wait",),
               "all": ("data_wait",)},
    "checkpoint": {"recorder": BEHIND, "log": BEHIND, "ras": BEHIND, "stacks": ("save",), "heartbeats": ("save",),
                   "all": ("save",)},
    "own_code": {"recorder": BEHIND, "log": BEHIND, "ras": BEHIND, "stacks": ("not_issuing",), "all": ("not_issuing",)},
    "other_call": {"recorder": OTHER_CALL, "log": OTHER_CALL, "ras": ("wrong_kind",), "stacks": OTHER_CALL,
                   "all": OTHER_CALL},
    "other_size": {"recorder": ("wrong_size",), "log": (), "ras": (), "stacks": (), "all": ("wrong_size",)},
    "died": {"recorder": GONE, "log": GONE, "ras": ("silent",), "stacks": (), "heartbeats": ("silent",), "all": GONE},
    "node_lost": {"recorder": (), "log": (), "ras": ("silent",), "stacks": (), "all": GONE},
    "stopped": {"recorder": GONE, "log": GONE, "ras": ("silent",), "stacks": ("silent",), "all": ("silent",)},
    "device": {"recorder": (), "log": ("failed",), "ras": (), "stacks": (), "all": ("failed",)},
    "link": {"recorder": (), "log": (), "ras": (), "stacks": (), "all": ()},
    "exception": {"recorder": BEHIND, "log": ("failed", "not_issuing"), "ras": BEHIND, "stacks": ("not_issuing",),
                  "all": ("failed", "not_issuing")},
    "healthy": {"recorder": (), "log": (), "ras": (), "stacks": (), "all": ()},
}
# Where the cause lies, as all sources together tell; of a crash nothing tells whether the node or the program caused it.
FAULTS = {"loader": "host", "checkpoint": "host", "own_code": "unknown", "other_call": "program", "other_size": "program",
          "died": "unknown", "node_lost": "host", "stopped": "host", "device": "device", "exception": "program"}
SOURCES = ("recorder", "log", "ras", "stacks", "heartbeats", "inspector")
SECTIONS = {"loader": "data", "checkpoint": "save"}  # of a step, as heartbeats name them
BEGIN_S = 1_760_000_000  # as nccl_dump


class Incident:
    def __init__(self, cause, seed, world=0):
        chance = random.Random(f"{cause} {seed}")
        self.cause, self.seed = cause, seed
        self.world = world or chance.choice((16, 32) if cause == "node_lost" else (8, 16, 32))
        self.victim = chance.randrange(1, self.world)
        self.calls = chance.randrange(20, 60)  # that all have ended
        first = self.victim // PER_NODE * PER_NODE
        self.victims = set(range(first, first + PER_NODE)) if cause == "node_lost" else {self.victim}
        self.is_behind = cause in ("loader", "checkpoint", "own_code", "exception")
        self.is_gone = cause in ("died", "node_lost", "stopped")
        self.ended_s = BEGIN_S + 0.001 * self.calls  # the newest call that all have ended
        self.looked_s = self.ended_s + (0.4 if cause == "healthy" else 650)

    def node(self, rank):
        return f"node{rank // PER_NODE + 1}"

    def pid(self, rank):
        return 4000 + rank

    def lost(self, rank):
        return self.is_gone and rank in self.victims

    def calls_of(self, rank, job):
        for i in range(self.calls):
            job.all_reduce(8 + i % 3)
        if self.is_behind and rank == self.victim:
            return
        if self.cause == "healthy" and rank % 3 == 1:
            return  # it computes
        if self.cause == "other_call" and rank == self.victim:
            return job.all_gather(8)
        job.all_reduce(16 if self.cause == "other_size" and rank == self.victim else 8)

    def recorder(self, place):
        plans = [Plan(rank, self.world) for rank in range(self.world)]
        for plan in plans:
            if not self.lost(plan.rank):
                self.calls_of(plan.rank, plan)
            else:
                for i in range(self.calls):
                    plan.all_reduce(8 + i % 3)
        if self.world > 64 and self.is_behind:  # as run_plan would mark them, but it compares all with all
            for plan in plans:
                for i, call in enumerate(plan.calls):
                    call["state"] = "completed" if i < self.calls else "started"
        else:
            run_plan(plans)
        case = Case(self.cause, self.world, None, Verdict())
        for plan in plans:
            if self.lost(plan.rank):
                continue
            dump, newest_ns = nccl_dump(plan, case, self.seed % 2 == 0)
            path = place / f"trace_rank_{plan.rank}.json"
            path.write_text(json.dumps(dump))
            age_s = 0.05 if self.cause == "healthy" else 650
            os.utime(path, ns=(newest_ns + int(age_s * 1e9),) * 2)

    def log(self, place):
        lines = [f"{rank}: step {self.calls}, loss 2.31" for rank in range(self.world)]
        at = self.calls + 1
        if self.cause == "died":
            lines.append(f"srun: error: {self.node(self.victim)}: task {self.victim}: Segmentation fault (core dumped)")
        if self.cause == "device":
            lines.append(f"{self.victim}: [rank{self.victim}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error "
                         "encountered")
        if self.cause == "exception":
            lines.append(f"{self.victim}: [rank{self.victim}]: ValueError: empty batch")
        if self.cause == "link":
            lines += [f"{self.node(0)}:{self.pid(rank)}:{self.pid(rank)} [{rank}] net_ib.c:1615 NCCL WARN NET/IB: Got completion "
                      f"from peer 10.0.0.9<{4000 + rank}> with status=12 opcode=129 len=0 vendor err 129 (Send)"
                      for rank in range(PER_NODE)]
        for rank in range(self.world):
            if self.cause == "healthy" or self.lost(rank) or (self.cause == "exception" and rank == self.victim):
                continue
            prefix = f"{rank}: [rank{rank}]:[E1129 10:42:{rank % 60:02}.878 ProcessGroupNCCL.cpp:616] "
            group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
            if self.is_behind and rank == self.victim:
                lines.append(f"{prefix}{group}Received a dump signal due to a collective timeout from rank 0 and we will try "
                             f"our best to dump the debug info. Last enqueued NCCL work: {at - 1}, last completed NCCL work: "
                             f"{at - 1}.")
                continue
            kind = "ALLGATHER" if self.cause == "other_call" and rank == self.victim else "ALLREDUCE"
            size = 16 if self.cause == "other_size" and rank == self.victim else 8
            lines += [f"{prefix}{group}Watchdog caught collective operation timeout: WorkNCCL(SeqNum={at}, OpType={kind}, "
                      f"NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
                      f"{prefix}{group}failure detected by watchdog at work sequence id: {at} PG status: last enqueued work: "
                      f"{at}, last completed work: {at - 1}"]
        (place / "slurm-4711.out").write_text("\n".join(lines) + "\n")

    def counts(self, rank, sample):
        reduces, gathers = self.calls + 1, 0
        if self.is_behind and rank == self.victim:
            reduces -= 1
        if self.cause == "other_call" and rank == self.victim:
            reduces, gathers = reduces - 1, 1
        if self.cause == "healthy":
            reduces += 40 * sample - (rank + sample) % 2
        return {"Broadcast": 0, "Reduce": 0, "AllGather": gathers, "ReduceScatter": 0, "AllReduce": reduces}

    def ras(self, place):
        for sample in (0, 1):
            def of(rank, status):
                return {"rank": rank, "host": f"10.0.0.{rank // PER_NODE + 1}", "pid": self.pid(rank),
                        "cuda_dev": rank % PER_NODE, "nvml_dev": rank % PER_NODE, "status": status}
            ranks = [{**of(rank, {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
                                  "abort_flag": False}), "collective_counts": self.counts(rank, sample)}
                     for rank in range(self.world) if not self.lost(rank)]
            missing = [of(rank, {"unresponsive": True, "considered_dead": True})
                       for rank in sorted(self.victims) if self.lost(rank)]
            report = {"nccl_version": "2.28.7", "cuda_runtime_version": 12090, "cuda_driver_version": 12090,
                      "timestamp": f"2026-11-29 10:43:0{sample}", "communicators_count": 1,
                      "communicators": [{"hash": "0xfa01", "secondary_hash": "0x1:0x2", "size": self.world,
                                         "ranks_count": len(ranks), "missing_ranks_count": len(missing), "ranks": ranks,
                                         "missing_ranks": missing}],
                      "ras": {"collection_time_sec": 0.002, "timeouts_count": 0}}
            path = place / f"ras.{sample}"
            path.write_text(text_of(report) if self.seed % 2 else json.dumps(report, indent=2))
            os.utime(path, (self.looked_s + sample,) * 2)

    def stacks(self, place):
        for rank in range(self.world):
            if self.lost(rank) and self.cause != "stopped":
                continue
            is_odd = rank == self.victim and self.cause in PLACES
            frames = PLACES[self.cause] if is_odd else WAITS
            if self.cause == "healthy" and rank % 2:
                frames = PLACES["loader"] if rank % 4 == 1 else PLACES["own_code"]
            head = f"Process {self.pid(rank)}: python train.py\nPython v3.12.4 (/usr/bin/python3.12)\n"
            if self.cause == "stopped":  # as agents of ms-driver write it
                state = "T" if rank == self.victim else "S"
                head = f"process {self.pid(rank)}, rank {rank}, state {state}, 0.00 processors, waits in x: python train.py\n"
            text = head + f"\nThread {self.pid(rank)} (idle): \"MainThread\"\n"
            text += "".join(f"    {name} ({file}:{line})\n" for name, file, line in frames)
            text += "Thread 9999 (idle): \"pt_nccl_watchdg\"\n    run (threading.py:1)\n"
            (place / f"stack_rank{rank}").write_text(text)

    def heartbeats(self, place):
        def section(rank):
            if self.cause == "healthy":
                return ("data", "step", "save")[rank % 3]
            return SECTIONS.get(self.cause, "step") if rank == self.victim else "step"
        age_s = self.looked_s - self.ended_s
        ranks = [{"rank": rank, "node": self.node(rank), "step": self.calls, "section": section(rank), "section_s": age_s,
                  "alive": self.cause != "died" or rank != self.victim} for rank in range(self.world)]
        (place / "status.json").write_text(json.dumps(
            {"schema": 1, "phase": "trains", "job": "4711.0", "job_id": 4711, "written_s": self.looked_s, "attempt": 1,
             "effective": 0.9, "nodes": [], "steps": self.calls, "deadline_s": 60, "progress_age_s": age_s, "numbers": {},
             "ranks": ranks}, indent=2))

    def inspector(self, place):
        for rank in range(self.world):
            path = place / f"{self.node(rank)}-pid{self.pid(rank)}.log"
            with path.open("w") as file:
                for call in range(rank % 3, self.calls):  # what a process wrote is cut anywhere
                    print(json.dumps({
                        "header": {"id": "0xfa01", "rank": rank, "n_ranks": self.world, "nnodes": self.world // PER_NODE},
                        "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "profiler",
                                     "dump_timestamp_us": int(1e6 * self.ended_s) - 1000 * (self.calls - 1 - call),
                                     "hostname": self.node(rank), "pid": self.pid(rank)},
                        "coll_perf": {"coll": "AllReduce", "coll_sn": call + 1, "coll_msg_size_bytes": 32,
                                      "coll_exec_time_us": 500, "coll_algobw_gbs": 1, "coll_busbw_gbs": 1}}), file=file)

    def write(self, directory):
        for source in SOURCES:
            place = Path(directory) / source
            place.mkdir(parents=True, exist_ok=True)
            getattr(self, source)(place)


def text_of(report):
    """What ncclras prints without -f json: outliers only."""
    comm = report["communicators"][0]
    ranks, missing = comm["ranks"], comm["missing_ranks"]
    lines = ["NCCL version 2.28.7 compiled with CUDA 12.9", "CUDA runtime version 12090, driver version 12090", "",
             "Job summary", "===========", "", "  Nodes  Processes         GPUs  Processes     GPUs",
             "(total)   per node  per process    (total)  (total)",
             f"{comm['size'] // PER_NODE:7}  {PER_NODE:9}  {1:11}  {comm['size']:9}  {comm['size']:7}", "",
             "Communicators... (0.00s)", "=============", "",
             "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
             "    #  in group  per comm  per node  per comm  in group",
             f"{0:5}  {1:8}  {comm['size'] // PER_NODE:8}  {PER_NODE:8}  {comm['size']:8}  {len(ranks):8}   RUNNING  MISMATCH",
             "", "Errors", "======", ""]

    def place(rank):
        return f"GPU {rank['cuda_dev']} managed by process {rank['pid']} on node {rank['host']}"
    if missing:
        lines += ["DEAD", f"  {len(missing)} job process{'es are' if len(missing) > 1 else ' is'} considered dead "
                  "(unreachable via the RAS network)"]
        lines += [f"  Process {it['pid']} on node {it['host']} managing GPU {it['cuda_dev']}" for it in missing] + [""]
        lines += ["#0-0 (000000000000fa01) INCOMPLETE", f"  Missing communicator data from {len(missing)} rank"
                  f"{'s' if len(missing) > 1 else ''}"]
        lines += [f"  Rank {it['rank']} -- {place(it)}" for it in missing] + [""]
    lines += ["Warnings", "========", ""]
    for operation in ranks[0]["collective_counts"]:
        groups = collections.defaultdict(list)
        for rank in ranks:
            groups[rank["collective_counts"][operation]].append(rank)
        if len(groups) < 2:
            continue
        lines += ["#0-0 (000000000000fa01) MISMATCH", f"  Communicator ranks have different {operation} operation counts"]
        for calls, members in sorted(groups.items(), key=lambda it: -len(it[1])):
            said = f"launched up to operation {calls}" if calls else "not launched any operations"
            if len(members) == 1:
                lines.append(f"  Rank {members[0]['rank']} has {said} -- {place(members[0])}")
                continue
            lines.append(f"  {len(members)} ranks have {said}")
            if 4 * len(members) <= comm["size"] and len(members) <= 10:
                lines += [f"  Rank {it['rank']} -- {place(it)}" for it in members]
        lines.append("")
    return "\n".join(lines) + "\n"


def judge(program, seeds):
    table, bins, bad = {}, collections.defaultdict(lambda: [0, 0]), []
    for cause, right_reasons in CAUSES.items():
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as directory:
                incident = Incident(cause, seed)
                incident.write(directory)
                for subset in ("all", *SOURCES):
                    places = SOURCES if subset == "all" else (subset,)
                    done = subprocess.run([program, "hang", "--json", *(f"{directory}/{place}" for place in places)],
                                          capture_output=True, text=True, timeout=60)
                    suspects, sentence = [], done.stderr.strip()
                    if done.returncode in (0, 1) and done.stdout:
                        answer = json.loads(done.stdout)
                        suspects, sentence = answer["suspects"], answer["sentence"]
                    first = suspects[0] if suspects else {"rank": None, "reason": "", "confidence": 0}
                    sure = first["confidence"]
                    is_right = first["rank"] in incident.victims and cause not in ("healthy", "link")
                    named = is_right and first["reason"] in right_reasons.get(subset, ())
                    verdict = "." if sure < 0.5 else "right" if named else "rank" if is_right else "WRONG"
                    shown = bool(right_reasons.get(subset))
                    table.setdefault((cause, subset), []).append((verdict, sure))
                    if sure >= 0.5:
                        bins[min(int(sure * 10), 9)][0] += 1
                        bins[min(int(sure * 10), 9)][1] += is_right
                    if subset == "all" and verdict == "right" and first["fault"] != FAULTS[cause]:
                        bad.append(f"{cause} seed {seed}: the fault is of {first['fault']}")
                    if verdict == "WRONG" or (shown and verdict not in ("right", "rank")) or \
                            (subset == "all" and shown and (verdict != "right" or sure < 0.8)):
                        bad.append(f"{cause} {subset} seed {seed} (rank {sorted(incident.victims)}): {first['rank']} "
                                   f"{first['reason']} {sure:.2f}: {sentence}")
    print(f"{'cause':11}" + "".join(f"{subset:>16}" for subset in ("all", *SOURCES)))
    for cause in CAUSES:
        cells = []
        for subset in ("all", *SOURCES):
            found = table[cause, subset]
            words = collections.Counter(verdict for verdict, _ in found)
            cells.append("cannot know" if set(words) == {"."} else " ".join(
                f"{word} {count}" for word, count in words.items() if word != ".") +
                f" {min(sure for _, sure in found):.0%}")
        print(f"{cause:11}" + "".join(f"{cell:>16}" for cell in cells))
    print("confidence, answers, right: " + ", ".join(f"{low * 10} % {count} {right}" for low, (count, right) in sorted(bins.items())))
    for line in bad:
        print(line)
    return 1 if bad else 0


def bench(program, world):
    with tempfile.TemporaryDirectory() as directory:
        incident = Incident("loader", 0, world)
        writer = os.fork()  # what it takes would count as the memory of its children
        if writer == 0:
            incident.write(directory)
            os._exit(0)
        os.waitpid(writer, 0)
        size = sum(path.stat().st_size for path in Path(directory).glob("*/*"))
        for subset in ("all", *SOURCES):
            places = [f"{directory}/{place}" for place in (SOURCES if subset == "all" else (subset,))]
            began = time.monotonic()
            child = subprocess.Popen([program, "hang", "--json", *places], stdout=subprocess.PIPE)
            answer = json.loads(child.stdout.read())
            _, _, usage = os.wait4(child.pid, 0)
            first = (answer["suspects"] or [{"rank": None, "confidence": 0}])[0]
            assert first["rank"] == (None if subset == "inspector" else incident.victim), answer["sentence"]
            print(f"{world} ranks, {subset:10} {time.monotonic() - began:6.2f} s, {usage.ru_utime + usage.ru_stime:6.2f} s of "
                  f"processors, {usage.ru_maxrss // 1024:5} MiB; rank {first['rank']} {first['confidence']:.0%}")
        print(f"{size // 1000000} MB of files")
    return 0


def main():
    if sys.argv[1:2] == ["bench"] and len(sys.argv) in (3, 4):
        return bench(sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 4096)
    if sys.argv[1:2] == ["judge"] and len(sys.argv) in (3, 4):
        return judge(sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 3)
    if sys.argv[1:2] == ["write"] and len(sys.argv) == 3:
        for cause in CAUSES:
            Incident(cause, 0).write(Path(sys.argv[2]) / cause)
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
