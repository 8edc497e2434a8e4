"""What no text file of the tree holds: postponed work, paths of one machine, bytes that are not ASCII. And what the product and
its documentation do not say: words of our own where the field has one."""

import re

import lint

FORBIDDEN = [
    (re.compile(r"\b(TO[D]O|FIX[M]E|XX[X])\b"), "postponed work belongs into an issue"),
    (re.compile(r"(?<![\w.])/(work|root|home|Users)/[\w.]"), "a path of one machine"),
    (re.compile(r"[^\x00-\x7f]"), "not ASCII"),
]

# In the product's sources, the README and the manuals, names included. A word that is right elsewhere is refused only where it
# stands for the field's: a dot product, a factor of two and a protocol's message are fine.
SPOKEN = ("libms/", "kernels/", "tools/", "spank/", "man/", "README.md", "CONTRIBUTING.md")
TERMS = [
    (r"(?<!dot )(?<!dot_)(?<!outer )(?<!old_key = \")\b[Pp]roducts?\b", "GEMM or matmul"),
    (r"\bfactors? of (a|the|its) (product|matmul|GEMM)", "operand"),
    (r"\b(in|of) eight bits\b|eight_bits", "FP8"),
    (r"\baddends?\b", "residual"),
    (r"largest magnitude|\bLargest\b(?=[({])", "amax"),
    (r"\bcut (over|into)\b", "sharded over, split into"),
    (r"\b[Mm]essages? of (tp|dp|pp|tensor parallelism)\b", "collective, or transfer"),
    (r"\b[Mm]essages? (of an axis|travels?|under compute)\b", "communication overlaps compute"),
    (r"\bmade matmul\b|\bmatmul way\b", "lowered matmul, variant"),
    (r"\bchoices by timing\b", "autotuning"),
    (r"\bmeetings?\b", "barrier or rendezvous"),
    (r"\blonely\b", "self communicator"),
    (r"\b(crews?|agents? fleets?)\b", "workers, agents"),  # fleet alone: all nodes of a cluster, as in ms-diag fleet
    (r"\b(cuda|nccl)_door\b|\bdoors?\b", "plugin entry point"),
    (r"\boverdue\b", "past its deadline"),
    (r"\b(stands?|stood|standing) still\b", "stalled"),
    (r"\b(plays?|played|playing) again\b", "replayed"),
    (r"\bplayed by the CPU\b", "emulated"),
    (r"\b[Tt]he rooms?\b|\brooms? of libms\b", "module"),
    (r"\bnumbers that are none\b", "NaN"),
    (r"\bgiven back\b", "freed"),
    (r"\bruns? that (goes|go) on\b|\bkept on\b", "resumes"),
    (r"\b(he|she|it|they) (is|are|was|were) told\b", "is passed, receives"),
    (r"^\s*// (What|Of|Where there) ", "a comment names its subject first"),
]
TERMS = [(re.compile(pattern), word) for pattern, word in TERMS]


def check(tree, _):
    for path in tree.files:
        if path == "LICENSE" or not tree.is_text(path):
            continue
        rules = FORBIDDEN + (TERMS if path.startswith(SPOKEN) else [])
        for number, line in enumerate(tree.lines(path), 1):
            for pattern, why in rules:
                found = pattern.search(line)
                if found:
                    yield f"{path}:{number}: {why}: {found.group().strip()!a}"


if __name__ == "__main__":
    lint.run(check, __doc__)
