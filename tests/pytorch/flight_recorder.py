#!/usr/bin/env python3
"""Flight Recorder dumps of small gloo jobs that hang, end or run on, and the verdict that each deserves.

flight_recorder.py make DIR [CASE ...]   runs the cases; DIR/CASE/ gets each rank's dump as JSON and as a pickle
flight_recorder.py plan DIR [CASE ...]   writes the dumps that NCCL would leave, without PyTorch: DIR/CASE-nccl/
flight_recorder.py judge MS_TRACEPP DIR  asks ms-tracepp about every case of DIR, in both forms; exits 1 if one is wrong
flight_recorder.py list                  the cases

The ranks are processes of this machine. All of them dump once none has got further for a while: blocked in a call for
ever, as after a hang. Needs PyTorch. Gloo kills a process whose peers disagree on a size, which NCCL hangs in.
"""
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from jobs import cases
from ranks import Job, Plan, Stopped, nccl_dump, run_plan


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
    dist.init_process_group("gloo", rank=rank, world_size=case.world, store=dist.FileStore(store, case.world),
                            timeout=datetime.timedelta(seconds=case.timeout_s))
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
        if case.only_nccl or (wanted and not any(case.name.startswith(prefix) for prefix in wanted)):
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
            elif time.monotonic() - since > case.quiet_s:
                break
        dump.value = 1
        for process in ranks:
            process.join(60)
            if process.is_alive():
                process.kill()
        store.unlink(missing_ok=True)


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
            for form in ("json", "pickle") if plan.rank not in case.dies else ():
                # Each form with and without TORCH_NCCL_ENABLE_TIMING, unless the case says which ranks have it.
                timing = plan.rank in case.timing if case.timing is not None else form == "json"
                dump, newest_ns = nccl_dump(plan, case, timing)
                path = place / f"trace_rank_{plan.rank}.{form}"
                packed = json.dumps(dump).encode() if form == "json" else pickle.dumps(dump, protocol=2 + plan.rank % 4)
                path.write_bytes(packed)
                if case.age_s is not None:
                    os.utime(path, ns=(newest_ns + int(case.age_s * 1e9),) * 2)


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
    return left == case.world and not case.name.startswith(("chain", "send", "batch"))


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
    if not right or not case.verdict.at_least <= first["confidence"] <= case.verdict.at_most:
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
