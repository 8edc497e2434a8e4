"""ms_loader as a program without torch sees it: the samples of ms-train, at any number of ranks, and what it refuses.
usage: loader.py BIN DIRECTORY"""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

programs = pathlib.Path(sys.argv[1]).resolve()
os.environ["MS_DATA"] = str(programs / "ms-data")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import ms_loader  # noqa: E402

SEQ, BATCH, SEED = 32, 12, 3
TRAIN = ["3 a", "1 b"]
CONFIG = f"""
[model]
layers = 1
hidden = 16
heads = 2
seq = {SEQ}
vocab = 257
[data]
train = {TRAIN}
valid_fraction = 0
[train]
global_batch = {BATCH}
microbatch = 1
seed = {SEED}
"""


def ms_data(*arguments):
    return subprocess.run([os.environ["MS_DATA"], *arguments], check=True, capture_output=True, text=True).stdout


def loader(**options):
    return ms_loader.Loader(options.pop("train", TRAIN), seq=SEQ, global_batch=options.pop("global_batch", BATCH),
                            seed=options.pop("seed", SEED), **options)


def steps_of(reader, count):
    """Returns the rows of so many batches."""
    return [next(reader).rows.tolist() for _ in range(count)]


class Ranks:
    """A group of threads, each a rank."""

    def __init__(self, size):
        self.size, self.values, self.barrier = size, [None] * size, threading.Barrier(size)

    def rank(self, number):
        group = self

        class Rank:
            get_rank = staticmethod(lambda: number)
            get_world_size = staticmethod(lambda: group.size)

            @staticmethod
            def all_gather_object(values, value):
                group.values[number] = value
                group.barrier.wait(60)
                values[:] = group.values
                group.barrier.wait(60)

        return Rank


def on_ranks(size, work):
    """Calls work(group, rank) on so many ranks and returns what they return."""
    ranks, results = Ranks(size), [None] * size

    def run(number):
        try:
            results[number] = work(ranks.rank(number), number)
        except ms_loader.LoaderError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def refused(call, part):
    try:
        call()
    except ms_loader.LoaderError as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"not refused: {part}")


def samples_are_those_of_ms_train():
    with loader() as reader:
        steps_of(reader, 7)
        assert reader.chain == ms_data("sample", "c.toml", "--step", "7", "--chain").split()[-1], reader.chain


def ranks_share_a_step(dp, tp):
    """dp x tp ranks of a node: one process reads, ranks of one dp rank see the same rows, all dp ranks the batch."""
    with loader() as alone:
        whole = steps_of(alone, 4)

    def work(group, rank):
        with loader(group=group, dp_rank=rank // tp, dp_size=dp) as reader:
            rows, chain = steps_of(reader, 4), reader.chain
            return rows, chain, reader._server is not None

    results = on_ranks(dp * tp, work)
    for step in range(4):
        assert sum((results[rank][0][step] for rank in range(0, dp * tp, tp)), []) == whole[step]
    for rank in range(dp * tp):
        assert results[rank][0] == results[rank // tp * tp][0]
    assert len({chain for _, chain, _ in results}) == 1
    assert [served for _, _, served in results] == [True] + [False] * (dp * tp - 1)


def another_number_of_ranks_goes_on():
    with loader() as alone:
        whole, chain = steps_of(alone, 9), alone.chain

    def resumed(state, dp, count):
        def work(group, rank):
            with loader(group=group) as reader:
                if state:
                    reader.load_state_dict(state)
                rows = steps_of(reader, count)
                return rows, reader.state_dict()

        results = on_ranks(dp, work)
        return [sum((rows[step] for rows, _ in results), []) for step in range(count)], results[0][1]

    first, state = resumed(None, 4, 3)
    second, state = resumed(state, 3, 4)
    third, state = resumed(state, 2, 2)
    assert first + second + third == whole and state["chain"] == chain and state["step"] == 9


def another_global_batch_repeats_nothing():
    with loader() as reader:
        order = sum(steps_of(reader, 6), [])
    with loader() as reader:
        first = sum(steps_of(reader, 2), [])
        state = reader.state_dict()
    with loader(global_batch=2 * BATCH) as reader:
        reader.load_state_dict(state)
        assert first + sum(steps_of(reader, 2), []) == order


def a_batch_outlives_its_loader():
    with loader() as reader:
        batch = next(reader)
        rows = batch.rows.tolist()
    assert batch.rows.tolist() == rows


def documents_are_told():
    with loader(reset_attention=True, balance=False) as reader:
        batch = next(reader)
        rows, starts = batch.rows.tolist(), batch.starts.tolist()
    with loader() as plain:
        assert next(plain).rows.tolist() == rows
    assert any(max(row) > 0 for row in starts)
    for row in starts:
        assert all(0 <= start <= at for at, start in enumerate(row)) and row == sorted(row)


def what_is_wrong_is_said():
    refused(lambda: next(loader(train=["missing"])), "missing.idx")
    refused(lambda: next(loader(dp_rank=0, dp_size=5)), "5 dp ranks")
    refused(lambda: next(loader(vocab=98)), "98")
    state = loader().state_dict()
    refused(lambda: loader(seed=SEED + 1).load_state_dict(state), "seed")
    refused(lambda: loader(train=["a"]).load_state_dict(state), "token files")
    # All ranks hear of what one of them cannot open.
    results = on_ranks(3, lambda group, _: next(loader(group=group, train=["missing"])))
    assert all(isinstance(result, ms_loader.LoaderError) and "missing.idx" in str(result) for result in results)


def a_loader_that_is_killed_is_named():
    with loader() as reader:
        steps_of(reader, 1)
        reader._server.process.kill()
        refused(lambda: steps_of(reader, 1_000_000), "signal 9")


def rank_that_serves(pipe):
    reader = loader()
    next(reader)
    pipe.send(reader._server.process.pid)
    signal.pause()


def nothing_stays_behind():
    ours, theirs = multiprocessing.Pipe()
    rank = multiprocessing.Process(target=rank_that_serves, args=(theirs,))
    rank.start()
    server = ours.recv()
    rank.kill()
    rank.join()
    while pathlib.Path(f"/proc/{server}").exists():  # it has no parent that would leave a zombie
        time.sleep(0.05)


with tempfile.TemporaryDirectory(dir=sys.argv[2]) as directory:
    os.chdir(directory)
    for name, words in (("a", "one two three\n%\nfour five\n%\n"), ("b", "six seven\n%\neight\n%\n")):
        pathlib.Path(name).write_text("".join(f"{words}{i}\n" for i in range(300)))
        ms_data("encode", "--tokenizer", "byte", "--split-on", "%", "--output", name, name)
    pathlib.Path("c.toml").write_text(CONFIG)
    samples_are_those_of_ms_train()
    ranks_share_a_step(dp=3, tp=1)
    ranks_share_a_step(dp=2, tp=2)
    another_number_of_ranks_goes_on()
    another_global_batch_repeats_nothing()
    a_batch_outlives_its_loader()
    documents_are_told()
    what_is_wrong_is_said()
    a_loader_that_is_killed_is_named()
    nothing_stays_behind()
