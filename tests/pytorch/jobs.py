"""The jobs of flight_recorder.py: what each rank calls, and the verdict that its dumps deserve.

A body is a function of the rank and of a Job, whose calls run on gloo, or are noted to plan what NCCL would do.
"""
from dataclasses import dataclass


@dataclass
class Verdict:
    """What ms-tracepp must say: the state; the first suspect is one of `ranks`, for one of `reasons`."""
    state: str = "hang"
    ranks: tuple = ()
    reasons: tuple = ()
    at_least: float = 0.5  # its confidence


@dataclass
class Case:
    name: str
    world: int
    body: object  # (rank, job) -> None
    verdict: Verdict
    dies: tuple = ()  # ranks that leave no dump


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
    return found
