"""Batches of token files for PyTorch, in the order in which ms-train would read them.

One process of a node reads for all of its ranks, `ms-data serve`, and they see its memory without a copy. Which samples a
step has is a pure function of the seed and the step: a run continues with the same samples on any number of ranks.

    loader = ms_loader.Loader(["3 web", "1 code"], seq=4096, global_batch=512)
    for batch in loader:
        tokens, targets = batch.to_torch("cuda")
"""

import atexit
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

__all__ = ["IGNORED", "Batch", "Loader", "LoaderError"]

IGNORED = -100  # the target of a token that the loss ignores: ignore_index of torch.nn.functional.cross_entropy

CHAIN_START = "0" * 16
_SLICE_S = 0.2  # signals of Python are handled between two waits


class LoaderError(RuntimeError):
    """The data or their loader are not as they must be; the message says what to do."""


class _Shape(ctypes.Structure):
    _fields_ = [("readers", ctypes.c_int), ("parts", ctypes.c_int), ("rows", ctypes.c_int64), ("seq", ctypes.c_int64),
                ("has_starts", ctypes.c_int)]


class _Batch(ctypes.Structure):
    _fields_ = [("tokens", ctypes.c_void_p), ("starts", ctypes.c_void_p), ("rows", ctypes.c_int64),
                ("num_targets", ctypes.c_int64), ("digest", ctypes.c_uint64)]


def _program():
    path = os.environ.get("MS_DATA") or shutil.which("ms-data")
    if not path:
        raise LoaderError("ms-data is not found: put it on PATH, or name it in MS_DATA")
    return Path(path).resolve()


def _library():
    prefix = _program().parent.parent
    for pattern in ("lib/libms_loader.so", "lib*/ms/libms_loader.so", "lib/*/ms/libms_loader.so"):
        for path in prefix.glob(pattern):
            library = ctypes.CDLL(str(path))
            if not hasattr(library, "ms_loader_next_batch"):
                raise LoaderError(f"{path} is of another version than this ms_loader: install both from one release")
            library.ms_loader_open.restype = ctypes.c_void_p
            library.ms_loader_open.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Shape), ctypes.c_int, ctypes.c_int,
                                               ctypes.c_char_p]
            library.ms_loader_next_batch.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.POINTER(_Batch),
                                               ctypes.c_char_p]
            library.ms_loader_close.argtypes = [ctypes.c_void_p]
            library.ms_loader_extend_chain.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
            return library
    raise LoaderError(f"libms_loader.so is not below {prefix}, where ms-data is")


def _place():
    """Names the processes that can open each other's memory."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"


class _Server:
    """ms-data serve, of this process."""

    def __init__(self, arguments):
        # Ctrl-C is for the ranks: the loader ends with its standard input.
        self.process = subprocess.Popen([str(_program()), "serve", *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self._words = []
        self._echo = threading.Thread(target=self._relay, daemon=True)
        self._echo.start()

    def _relay(self):
        for line in self.process.stderr:
            if line.startswith(("ms-data: error: ", "hint: ")):
                self._words.append(line.strip().removeprefix("ms-data: error: "))
            else:
                sys.stderr.write(line)

    def answer(self):
        """Returns what it prints when the files are open, or the error."""
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": self.error()}

    def error(self):
        self.process.wait()
        self._echo.join()
        code = self.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return "; ".join(self._words) or f"ms-data serve {how}"

    def has_ended(self):
        return self.process.poll() is not None

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self._echo.join()
        self.process.stderr.close()


class _Reader:
    """Memory of the loader, which lives as long as a view of it."""

    def __init__(self, library, handle):
        self.library, self.handle = library, handle

    def __del__(self):
        self.library.ms_loader_close(self.handle)

    def view(self, address, rows, columns):
        array = (ctypes.c_int32 * (rows * columns)).from_address(address)
        array.reader = self
        return memoryview(array).cast("B").cast("i", (rows, columns))


class Batch:
    """The rows of this dp rank in a step. Their memory is valid until the next batch; copy what is needed longer."""

    def __init__(self, step, rows, starts, has_mask, num_targets):
        self.step = step
        # memoryview of int32, [samples, seq + 1]: the inputs, and one token later their targets. A token that the loss
        # ignores as a target is the complement of its id, which is negative.
        self.rows = rows
        self.starts = starts  # memoryview of int32, [samples, seq]: where an input's document begins; None
        self.has_mask = has_mask  # whether rows can have negative tokens; without, tokens and targets are no copies
        # Targets of this step over all dp ranks that the loss does not ignore. Divide the sum of losses by it: ranks
        # have unequal numbers of targets, so the mean of their means is another loss.
        self.num_targets = num_targets

    @property
    def tokens(self):
        """numpy array of int32, [samples, seq]."""
        rows = self._numpy()[:, :-1]
        return rows ^ (rows >> 31) if self.has_mask else rows

    @property
    def targets(self):
        """numpy array of int32, [samples, seq]; IGNORED where the loss ignores the target."""
        import numpy
        rows = self._numpy()[:, 1:]
        return numpy.where(rows < 0, numpy.int32(IGNORED), rows) if self.has_mask else rows

    def _numpy(self):
        import numpy
        return numpy.asarray(self.rows)

    def to_torch(self, device="cpu"):
        """Returns tokens and targets as torch tensors of int64 on the device: copies. Targets that the loss ignores are
        IGNORED."""
        import torch
        rows = torch.frombuffer(self.rows, dtype=torch.int32).view(self.rows.shape).to(device, torch.int64)
        tokens, targets = rows[:, :-1], rows[:, 1:]
        return torch.where(tokens < 0, ~tokens, tokens), targets.masked_fill(targets < 0, IGNORED)


class Loader:
    """Iterates over the batches of a run, for ever or for `steps` steps.

    All ranks construct it with the same arguments, but for `dp_rank`, and start and load its state together.

    train            token files: prefixes, or "WEIGHT PREFIX", as in data.train of ms.toml(5)
    seq              tokens of a sample
    global_batch     samples of a step, over all dp ranks
    dp_rank, dp_size default: rank and size of torch.distributed, or 0 and 1 without it. Ranks of one dp rank, as those
                     of tensor parallelism, get the same rows.
    microbatch       samples of a microbatch, among which work is balanced with reset_attention
    reset_attention  also tell where documents begin (Batch.starts): position_ids is arange(seq) - starts
    valid_fraction   of each file, at its end, that is left out
    vocab            refuse tokens that are not below it
    loaders          threads that read, at most; read_timeout: seconds that a step waits for them
    group            the ranks, with get_rank(), get_world_size() and all_gather_object() of torch.distributed
    """

    def __init__(self, train, *, seq, global_batch, seed=0, steps=None, dp_rank=None, dp_size=None, microbatch=1,
                 reset_attention=False, balance=True, valid_fraction=0.0, vocab=None, loaders=0, read_timeout=300.0,
                 group=None):
        self._group = group or _distributed()
        self._dp_rank = self._group.get_rank() if dp_rank is None else dp_rank
        self._dp_size = self._group.get_world_size() if dp_size is None else dp_size
        if not 0 <= self._dp_rank < self._dp_size:
            raise ValueError(f"dp_rank {self._dp_rank} of {self._dp_size}")
        self._global_batch, self._seq, self._seed, self._steps = global_batch, seq, seed, steps
        self._has_starts, self._read_timeout = reset_attention, read_timeout
        self._options = [f"--seq={seq}", f"--global-batch={global_batch}", f"--seed={seed}", f"--dp={self._dp_size}",
                         f"--microbatch={microbatch}", f"--valid-fraction={valid_fraction}", f"--loaders={loaders}",
                         f"--read-timeout={read_timeout}s"]
        if vocab is not None:
            self._options.append(f"--vocab={vocab}")
        if reset_attention:
            self._options.append("--reset-attention")
        if not balance:
            self._options.append("--no-balance")
        self._train = [train] if isinstance(train, str) else list(train)
        self._step, self._sample, self._chain = 0, 0, CHAIN_START
        self._fingerprint, self._has_mask = None, False
        self._server = self._reader = None
        atexit.register(self.close)

    # --- state

    @property
    def step(self):
        """The step of the next batch."""
        return self._step

    @property
    def chain(self):
        """A hash of all samples so far, equal where two runs were fed with the same samples in the same steps."""
        return self._chain

    def state_dict(self):
        self._start()
        return {"step": self._step, "sample": self._sample, "seed": self._seed, "chain": self._chain,
                "fingerprint": self._fingerprint}

    def load_state_dict(self, state):
        """Continues behind the state's last batch: with any number of ranks, and with another global batch.

        LoaderError: the token files, their weights, seq or the seed are not those of the state.
        """
        if state["seed"] != self._seed:
            raise LoaderError(f"the state is of seed {state['seed']}, this loader of seed {self._seed}")
        self.close()
        self._step, self._sample, self._chain = state["step"], state["sample"], state["chain"]
        self._start()
        if self._fingerprint != state["fingerprint"]:
            raise LoaderError("the token files, their weights, valid_fraction or seq are not those of the state")

    # --- iteration

    def __iter__(self):
        return self

    def __next__(self):
        if self._steps is not None and self._step >= self._steps:
            raise StopIteration
        self._start()
        library = self._reader.library
        raw, error = _Batch(), ctypes.create_string_buffer(1024)
        end = time.monotonic() + self._read_timeout
        while True:
            got = library.ms_loader_next_batch(self._reader.handle, self._step, _SLICE_S, ctypes.byref(raw), error)
            if got > 0:
                break
            if got < 0:
                text = error.value.decode(errors="replace")
                if self._server and self._server.has_ended():
                    text = self._server.error()
                raise LoaderError(f"step {self._step}: {text}")
            if time.monotonic() > end:
                raise LoaderError(f"step {self._step} was not read within {self._read_timeout:g} s: the storage of "
                                  "the token files does not answer, or the node has no time for ms-data serve")
        chain = ctypes.create_string_buffer(self._chain.encode())
        library.ms_loader_extend_chain(chain, raw.digest)
        batch = Batch(self._step, self._reader.view(raw.tokens, raw.rows, self._seq + 1),
                      self._reader.view(raw.starts, raw.rows, self._seq) if self._has_starts else None,
                      self._has_mask, raw.num_targets)
        self._chain = chain.value.decode()
        self._step += 1
        self._sample += self._global_batch
        return batch

    def microbatches(self, rows):
        """Iterates over parts of `rows` rows of the batches, as ({"input": tokens}, targets) of torch: what a training
        loop of torchtitan reads. Tensors are copies. With a loss mask the loop needs the number of targets of the step
        too: take it from the batches themselves (Batch.num_targets)."""
        for batch in self:
            tokens, targets = batch.to_torch()
            for begin in range(0, len(tokens), rows):
                yield {"input": tokens[begin:begin + rows]}, targets[begin:begin + rows]

    # --- processes

    def _exchange(self, value):
        values = [None] * self._group.get_world_size()
        self._group.all_gather_object(values, value)
        return values

    def _start(self):
        if self._reader:
            return
        library = _library()
        rank = self._group.get_rank()
        others = self._exchange((_place(), self._dp_rank))
        here = [other for other, (place, _) in enumerate(others) if place == others[rank][0]]
        dp_ranks = sorted({others[other][1] for other in here})
        answer = None
        if here[0] == rank:
            self._server = _Server([*self._options, f"--dp-ranks={','.join(map(str, dp_ranks))}",
                                    f"--readers={len(here)}", f"--step={self._step}", f"--sample={self._sample}", "--",
                                    *self._train])
            answer = self._server.answer()
        answers = self._exchange(answer)
        found = [other for other in answers if other]
        problems = [other["error"] for other in found if "error" in other]
        if len({other.get("fingerprint") for other in found}) > 1:
            problems.append("the nodes see different token files, or were given different arguments")
        if not problems:
            self._fingerprint, self._has_mask = found[0]["fingerprint"], found[0]["has_mask"]
            shape = _Shape(len(here), len(dp_ranks), self._global_batch // self._dp_size, self._seq, self._has_starts)
            error = ctypes.create_string_buffer(1024)
            handle = library.ms_loader_open(answers[here[0]]["address"].encode(), ctypes.byref(shape),
                                            here.index(rank), dp_ranks.index(self._dp_rank), error)
            self._reader = _Reader(library, handle) if handle else None
            # Until all have opened it, none may end it.
            problems = [text for text in self._exchange(error.value.decode(errors="replace")) if text]
        if problems:
            self.close()
            raise LoaderError(problems[0])

    def close(self):
        """Ends the loader of this node, where this rank has it."""
        self._reader = None
        if self._server:
            self._server.close()
            self._server = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Alone:
    """The group of one process."""

    @staticmethod
    def get_rank():
        return 0

    @staticmethod
    def get_world_size():
        return 1

    @staticmethod
    def all_gather_object(values, value):
        values[0] = value


def _distributed():
    torch = sys.modules.get("torch")
    is_used = torch and torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed if is_used else _Alone
