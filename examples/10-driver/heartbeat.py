"""Heartbeats for ms-driver from any training loop, PyTorch's for instance: copy beat(), and call it after every step."""

import os
import pathlib
import socket
import sys
import time

_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def beat(step, **numbers):
    """Says how many steps this rank has done, and numbers to show, such as loss=2.5. Never waits, never raises."""
    words = [f"rank={os.environ.get('RANK', os.environ.get('SLURM_PROCID', '0'))}", f"step={step}"]
    words += [f"{name}={value:.9g}" for name, value in numbers.items()]
    try:
        _socket.sendto(" ".join(words).encode(), os.environ["MS_HEARTBEAT"])
    except (KeyError, OSError):
        pass  # no driver, or its agent is being started again


def others_reach(step):
    """Waits for all ranks to be as far, as an all-reduce would, through files in the directory of the job."""
    rank, ranks = os.environ["SLURM_PROCID"], int(os.environ["SLURM_NTASKS"])
    pathlib.Path(f"loop/at.{os.environ['MS_ATTEMPT']}.{rank}.{step}").touch()
    while not all(pathlib.Path(f"loop/at.{os.environ['MS_ATTEMPT']}.{r}.{step}").exists() for r in range(ranks)):
        time.sleep(0.01)


if __name__ == "__main__":  # a loop that trains nothing, and whose rank 1 stops for ever in the first attempt
    for step in range(int(sys.argv[1])):
        if step == 20 and os.environ["SLURM_PROCID"] == "1" and os.environ["MS_ATTEMPT"] == "1":
            print("rank 1 waits for nobody knows what", flush=True)
            time.sleep(1e6)
        others_reach(step)
        time.sleep(0.05)
        beat(step + 1, loss=5 / (step + 1))
    print("trained", flush=True)
