"""The jobs of flight_recorder.py: what each rank calls, and the verdict that its dumps deserve.

A body is a function of the rank and of a Job, whose calls run on gloo, or are noted to plan what NCCL would do.
"""
from dataclasses import dataclass, field


@dataclass
class Verdict:
    """What ms-tracepp must say: the state; the first suspect is one of `ranks`, for one of `reasons`."""
    state: str = "hang"
    ranks: tuple = ()
    reasons: tuple = ()
    at_least: float = 0.5  # its confidence
    at_most: float = 1


@dataclass
class Case:
    name: str
    world: int
    body: object  # (rank, job) -> None
    verdict: Verdict
    dies: tuple = ()  # ranks that leave no dump
    timeout_s: float = 600  # of gloo's operations
    quiet_s: float = 1.2  # no rank gets further for this long: the job hangs, or has ended
    # Of NCCL's dumps, which are planned; gloo's cannot be had so.
    only_nccl: bool = False
    timing: tuple = None  # ranks that show when operations begin; None: all in JSON, none in pickles
    buffer: int = 100_000  # entries that are kept
    only_active: bool = False  # lists what did not end
    seen: dict = field(default_factory=dict)  # calls of a rank before its dump was written
    age_s: float = 600  # of the newest entry when the file was written; None: the file was copied later


def missing(victim, before, wait):
    def body(rank, job):
        job.steps(before)
        if rank == victim:
            job.stop()
        for i in range(6):
            job.all_reduce(8 + i % 3, wait=wait)
        job.stop()
    return body


def clean(steps):
    return lambda rank, job: job.steps(steps)


def clean_groups(rank, job):
    pairs = [job.new_group([i, i + 1]) for i in range(0, job.world, 2)]
    for i in range(5):
        job.all_reduce(4, group=pairs[rank // 2])
        job.all_reduce(16)
    if rank % 2 == 0:
        job.send(rank + 1)
    else:
        job.recv(rank - 1)


def other_operation(victim, before):
    def body(rank, job):
        job.steps(before)
        if rank == victim:
            job.broadcast(victim)
        else:
            job.all_reduce()
        job.stop()
    return body


def other_size(victim, before, size):
    def body(rank, job):
        job.steps(before)
        job.all_gather(size if rank == victim else 8)
        job.steps(4)
        job.stop()
    return body


def other_dtype(victim, before):
    def body(rank, job):
        job.steps(before)
        job.all_reduce(8, wide=rank == victim)
        job.steps(4)
        job.stop()
    return body


def wrong_group(victim, before):
    """The victim calls on the group of all where its pair meets in the group of two."""
    def body(rank, job):
        pairs = [job.new_group([i, i + 1]) for i in range(0, job.world, 2)]
        job.steps(before)
        for i in range(3):
            job.all_reduce(4, group=pairs[rank // 2])
        job.all_reduce(8, group=None if rank == victim else pairs[rank // 2])
        job.all_reduce(12)
        job.stop()
    return body


def swapped_groups(victim, before):
    """The victim calls on two groups in the other order than it did before, and than all other ranks do."""
    def body(rank, job):
        first, second = job.new_group(list(range(job.world))), job.new_group(list(range(job.world)))
        for _ in range(before):
            job.all_reduce(4, group=first)
            job.all_reduce(16, group=second)
        a, b = (second, first) if rank == victim else (first, second)
        job.all_reduce(16 if a is second else 4, group=a)
        job.all_reduce(16 if b is second else 4, group=b)
        job.stop()
    return body


def skipped(victim, before):
    """The victim leaves out one call, and all that follow are shifted."""
    def body(rank, job):
        job.steps(before)
        for i in range(9):
            if rank == victim and i == 4:
                continue
            job.all_gather(4 + i, wait=False)
        job.stop()
    return body


def lone_send(sender, receiver):
    """The sender's message is never received: gloo sends it only if somebody asks."""
    def body(rank, job):
        job.steps(4)
        if rank == sender:
            job.send(receiver, size=1 << 20)
        job.stop()
    return body


def lone_recv(receiver, sender):
    def body(rank, job):
        job.steps(4)
        if rank == receiver:
            job.recv(sender)
        job.all_reduce()
        job.stop()
    return body


def chain(victim):
    """A pipeline: each rank receives from the one before; the victim never sends."""
    def body(rank, job):
        job.steps(2)
        for i in range(3):
            if rank > 0:
                job.recv(rank - 1)
            if rank == victim and i == 2:
                job.stop()
            if rank + 1 < job.world:
                job.send(rank + 1)
        job.stop()
    return body


def behind(victim):
    """Pairs wait for the victim's pair, which waits for the victim."""
    def body(rank, job):
        pairs = [job.new_group([i, i + 1]) for i in range(0, job.world, 2)]
        job.steps(3)
        for i in range(4):
            if rank == victim and i == 2:
                job.stop()
            job.all_reduce(4, group=pairs[rank // 2])
            job.all_reduce(8)
        job.stop()
    return body


def dies(victim, before):
    def body(rank, job):
        job.steps(before)
        if rank == victim:
            job.die()
        job.all_reduce()
        job.stop()
    return body


def monitored(victim):
    def body(rank, job):
        job.steps(3)
        if rank == victim:
            job.stop()
        job.reduce_scatter()
    return body


def exchange(victim, omits, only_chain=False):
    """A pipeline whose steps are batch_isend_irecv and an all_reduce; the victim leaves out one of them at the end."""
    def body(rank, job):
        for i in range(5):
            last = i == 4
            if last and rank == victim and omits == "batch":
                job.stop()
            near = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < job.world]
            job.batch(sends=[peer for peer in near if peer > rank or not only_chain],
                      recvs=[peer for peer in near if peer < rank or not only_chain])
            if last and rank == victim and omits == "collective":
                job.stop()
            job.all_reduce()
        job.stop()
    return body


def long_chain(victim, reduces):
    """One forward one backward, for so long that the buffer lost the beginning; ranks in the middle have lost more."""
    def body(rank, job):
        for i in range(40):
            if rank > 0:
                job.recv(rank - 1)
            if rank + 1 < job.world:
                job.send(rank + 1)
            if rank == victim and i == 39:
                job.stop()
            if rank + 1 < job.world:
                job.recv(rank + 1)
            if rank > 0:
                job.send(rank - 1)
            if reduces and i % 3 == 2:
                job.all_reduce()
        job.stop()
    return body


def one_call(victim, call):
    def body(rank, job):
        job.steps(4)
        if rank == victim:
            job.stop()
        call(job)
        job.stop()
    return body


def coalesced(victim, sizes):
    """The victim comes with these sizes, or, if there are none, not at all."""
    def body(rank, job):
        for _ in range(3):
            job.coalesced([8, 16, 32])
        if rank == victim and not sizes:
            job.stop()
        job.coalesced(sizes if rank == victim else [8, 16, 32])
        job.stop()
    return body


def seldom(victim, others):
    """A group that is used once, at the beginning; the innocent do much in another one since."""
    def body(rank, job):
        group = job.new_group([0, 1, 2])
        job.all_reduce(group=group)
        for i in range(60):
            job.all_reduce(8 + i % 3, group=others)
        if rank == victim:
            job.stop()
        job.all_reduce(group=group)
        job.stop()
    return body


def pair_differs(victim, extra):
    """Two ranks call on a group of their own after each call on that of all; the victim leaves one out, or adds one."""
    def body(rank, job):
        pair = job.new_group([2, 3])
        for i in range(5):
            job.all_reduce(8)
            leaves_out = rank == victim and i == 4 and not extra
            for _ in range((2 if rank == victim and i == 4 and extra else 1) if rank > 1 and not leaves_out else 0):
                job.all_reduce(4, group=pair)
        for _ in range(4):
            job.all_reduce(8)
        job.stop()
    return body


def made_again(victim):
    def body(rank, job):
        group = job.new_group(list(range(job.world)))
        for _ in range(9):
            job.all_reduce(group=group)
        group = job.make_again(group)
        for _ in range(3):
            job.all_reduce(group=group)
        if rank != victim:
            job.all_reduce(group=group)
        job.stop()
    return body


def cases():
    found = []

    def add(name, world, body, verdict, **more):
        found.append(Case(name, world, body, verdict, **more))

    idle = ("not_issuing",)
    for world in (2, 3, 4, 6):
        for victim in {0, world - 1, world // 2}:
            for wait in (True, False):
                how = "blocking" if wait else "async"
                add(f"missing-{world}-{victim}-{how}", world, missing(victim, 2 + victim + world, wait),
                    Verdict(ranks=(victim,), reasons=idle))
    for world in (2, 3, 4):
        add(f"clean-{world}", world, clean(5 + world), Verdict(state="no hang"))
    add("clean-long", 3, clean(60), Verdict(state="no hang"))
    for world in (2, 4):
        add(f"clean-groups-{world}", world, clean_groups, Verdict(state="no hang"))
    for world, victim in ((3, 0), (3, 2), (4, 1), (5, 3)):
        add(f"operation-{world}-{victim}", world, other_operation(victim, 3), Verdict(
            ranks=(victim,), reasons=("wrong_kind", "missing_call", "extra_call", "wrong_order")))
        add(f"size-{world}-{victim}", world, other_size(victim, 3, 16),
            Verdict(ranks=(victim,), reasons=("wrong_size",)))
        add(f"dtype-{world}-{victim}", world, other_dtype(victim, 5),
            Verdict(ranks=(victim,), reasons=("wrong_dtype",)))
        add(f"skipped-{world}-{victim}", world, skipped(victim, 2),
            Verdict(ranks=(victim,), reasons=("missing_call",)))
        add(f"swapped-{world}-{victim}", world, swapped_groups(victim, 3),
            Verdict(ranks=(victim,), reasons=("wrong_order", "missing_call", "not_issuing"), at_least=0.8))
        add(f"dies-{world}-{victim}", world, dies(victim, 4),
            Verdict(ranks=(victim,), reasons=("no_trace",)), dies=(victim,))
    for world, victim in ((4, 0), (4, 3), (6, 2)):
        add(f"group-{world}-{victim}", world, wrong_group(victim, 2), Verdict(
            ranks=(victim,), reasons=("missing_call", "wrong_order", "not_issuing", "wrong_size", "extra_call")))
        add(f"behind-{world}-{victim}", world, behind(victim), Verdict(ranks=(victim,), reasons=idle))
        add(f"chain-{world}-{victim}", world, chain(victim % (world - 1)),
            Verdict(ranks=(victim % (world - 1),), reasons=idle))
        add(f"send-{world}-{victim}", world, lone_send(victim, (victim + 1) % world),
            Verdict(ranks=((victim + 1) % world,), reasons=idle))
        add(f"recv-{world}-{victim}", world, lone_recv(victim, (victim + 1) % world),
            Verdict(ranks=((victim + 1) % world, victim), reasons=idle + ("wrong_order",)))
        add(f"scatter-{world}-{victim}", world, monitored(victim), Verdict(ranks=(victim,), reasons=idle))
    clean_end = Verdict(state="no hang")
    for world, victim in ((2, 1), (4, 0), (4, 2), (4, 3)):
        for omits in ("batch", "collective"):
            for only_chain in (False, True):
                how = f"{omits}-{'chain' if only_chain else 'ring'}"
                add(f"batch-{how}-{world}-{victim}", world, exchange(victim, omits, only_chain),
                    Verdict(ranks=(victim,), reasons=idle, at_least=0.8))
        add(f"batch-clean-{world}-{victim}", world, exchange(-1, ""), clean_end)
        add(f"mixed-timing-{world}-{victim}", world, missing(victim, 4, False),
            Verdict(ranks=(victim,), reasons=idle, at_least=0.8), only_nccl=True, timing=(0,))
        add(f"active-{world}-{victim}", world, missing(victim, 4, False), Verdict(ranks=(victim,), reasons=idle),
            only_nccl=True, only_active=True)
        add(f"copied-{world}-{victim}", world, missing(victim, 4, False),
            Verdict(ranks=(victim,), reasons=idle, at_most=0.6), only_nccl=True, age_s=None)
        add(f"older-{world}-{victim}", world, missing(victim, 9, False),
            Verdict(ranks=(victim,), reasons=("no_trace",), at_most=0.5), only_nccl=True, seen={victim: 6})
        add(f"timeout-{world}-{victim}", world, missing(victim, 4, True), Verdict(ranks=(victim,), reasons=idle),
            timeout_s=2, quiet_s=4)
    for victim in (0, 1, 2):
        right = Verdict(ranks=(victim,), reasons=idle, at_least=0.8)
        guess = Verdict(ranks=(0, 1, 2), reasons=idle + ("transfer", "compute"), at_least=0.2, at_most=0.5)
        add(f"wrapped-{victim}", 3, long_chain(victim, True), right, only_nccl=True, buffer=30)
        add(f"wrapped-alone-{victim}", 3, long_chain(victim, False), guess, only_nccl=True, buffer=30)
        add(f"scatter-rooted-{victim}", 3, one_call(victim, lambda job: job.scatter(0)), right, only_nccl=True)
        add(f"gather-rooted-{victim}", 3, one_call(victim, lambda job: job.gather(1)), right, only_nccl=True)
        add(f"uneven-{victim}", 3, one_call(victim, lambda job: job.all_gather_uneven()), right, only_nccl=True)
        add(f"coalesced-{victim}", 3, coalesced(victim, []), right, only_nccl=True)
        add(f"coalesced-size-{victim}", 3, coalesced(victim, [8, 24, 32]),
            Verdict(ranks=(victim,), reasons=("wrong_size",)), only_nccl=True)
        add(f"again-{victim}", 3, made_again(victim), right, only_nccl=True)
        for extra in (False, True) if victim < 2 else ():
            how = "extra" if extra else "skips"
            add(f"pair-{how}-{victim + 2}", 4, pair_differs(victim + 2, extra), Verdict(
                ranks=(victim + 2,), reasons=idle + ("wrong_order", "missing_call", "extra_call")))
        add(f"seldom-{victim}", 3, seldom(victim, None), Verdict(ranks=(victim,), reasons=idle), only_nccl=True, buffer=30)
    return found
