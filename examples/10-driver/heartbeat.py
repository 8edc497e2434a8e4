"""Heartbeats for ms-driver from any training loop, as in PyTorch: copy beat(), and call it after every step."""

import os
import pathlib
import socket
import sys
import threading
import time

_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def beat(step, **numbers):
    """Reports the steps done by this rank, and numbers to show, such as loss=2.5. Never blocks, never raises. What is no
    number is left out: None, as on ranks without the last pipeline stage, and tensors on a GPU, for which the host would
    have to wait."""
    try:
        words = [f"rank={int(os.environ.get('RANK', os.environ.get('SLURM_PROCID', '0')))}", f"step={int(step)}"]
        words += [f"{name.lower()}={value:.9g}" for name, value in _on_host(numbers)]
        _socket.sendto(" ".join(words).encode(), os.environ["MS_HEARTBEAT"])
    except Exception:
        pass  # no driver, or its agent is restarting


def _on_host(numbers):
    for name, value in numbers.items():
        try:
            if getattr(getattr(value, "device", None), "type", "cpu") == "cpu":
                yield name, float(value)
        except Exception:
            pass


def answer_driver():
    """Writes the flight recorder when the driver requests it, as NCCL does by itself: for a PyTorch run over gloo, with
    TORCH_FR_BUFFER_SIZE, TORCH_FR_DUMP_TEMP_FILE and TORCH_NCCL_DEBUG_INFO_PIPE_FILE set. Call it after init_process_group."""
    rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
    pipe, dump = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe", os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank
    pathlib.Path(pipe).unlink(missing_ok=True)
    os.mkfifo(pipe)

    def answer():
        from torch._C._distributed_c10d import _dump_fr_trace
        while True:
            with open(pipe, "rb") as asked:
                if asked.read(1):
                    pathlib.Path(dump).write_bytes(_dump_fr_trace(includeStackTraces=False))

    threading.Thread(target=answer, daemon=True).start()


def others_reach(step):
    """Waits until all ranks have reached this step, as an all-reduce would, through files in the job's directory."""
    rank, ranks = os.environ["SLURM_PROCID"], int(os.environ["SLURM_NTASKS"])
    pathlib.Path(f"loop/at.{os.environ['MS_ATTEMPT']}.{rank}.{step}").touch()
    while not all(pathlib.Path(f"loop/at.{os.environ['MS_ATTEMPT']}.{r}.{step}").exists() for r in range(ranks)):
        time.sleep(0.01)


if __name__ == "__main__":  # a loop without training; rank 1 stops forever in the first attempt
    for step in range(int(sys.argv[1])):
        if step == 20 and os.environ["SLURM_PROCID"] == "1" and os.environ["MS_ATTEMPT"] == "1":
            print("rank 1 hangs", flush=True)
            time.sleep(1e6)
        others_reach(step)
        time.sleep(0.05)
        beat(step + 1, loss=5 / (step + 1))
    print("trained", flush=True)
