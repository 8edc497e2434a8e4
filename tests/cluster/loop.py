"""loop.py STEPS: a synchronous loop like that of a data-parallel program, without training. All ranks meet after each step, by
files in ./loop; rank 0 saves every tenth step there, and the loop resumes from it. What goes wrong is named by the environment:
FAULT=KIND:RANK:STEP[:ATTEMPT] (of KIND leak and anywhere, STEP counts from the start of the attempt, and RANK "any" is another one
each time), DT seconds a step, NOBEAT for no heartbeats, SECTIONS for named ones, STUBBORN to ignore SIGTERM."""

import os
import pathlib
import signal
import socket
import sys
import time

rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
attempt = os.environ["MS_ATTEMPT"]
folder = pathlib.Path("loop")
if "STUBBORN" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def beat(text):
    if "NOBEAT" in os.environ:
        return
    try:
        agent.sendto(f"rank={rank} {text}".encode(), os.environ["MS_HEARTBEAT"])
    except (KeyError, OSError):
        pass


def meet(step):
    new = folder / f"new.{attempt}.{rank}"
    new.write_text(str(step))
    new.rename(folder / f"at.{attempt}.{rank}")
    while not all(others.exists() and int(others.read_text() or -1) >= step
                  for others in (folder / f"at.{attempt}.{r}" for r in range(ranks))):
        time.sleep(0.005)


def fail(kind):
    if kind == "exception":
        raise ValueError("tensor shapes differ: (3, 4) and (4, 3)")
    if kind == "memory":
        bytearray(1 << 46)
    if kind == "hang":
        time.sleep(1e6)
    if kind in ("oom", "leak"):
        print("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
              file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("CUDA kernel returned bad value 17 in layer 3")


saved = folder / "step"
start = int(saved.read_text()) if saved.exists() else 0
kind, who, when, *only = (os.environ.get("FAULT") or "none:-1:-1").split(":")
for step in range(start, int(sys.argv[1])):
    since = step - start if kind in ("leak", "anywhere") else step
    is_me = rank == step * 7 % ranks if who == "any" else rank == int(who)
    if since == int(when) and is_me and only in ([], [attempt]):
        fail(kind)
    time.sleep(float(os.environ.get("DT", "0.1")))
    meet(step)
    if "SECTIONS" in os.environ and (step + 1) % 10 == 0:
        beat(f"step={step + 1} section=save")
    if rank == 0:
        with open(folder / "log", "a") as log:
            log.write(f"{step + 1} {attempt}\n")
        if (step + 1) % 10 == 0:
            saved.with_suffix(".new").write_text(str(step + 1))
            saved.with_suffix(".new").rename(saved)
    beat(f"step={step + 1}" + (" section=step" if "SECTIONS" in os.environ else ""))
