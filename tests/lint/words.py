"""What no text file of the tree holds: postponed work, paths of one machine, bytes that are not ASCII."""

import re

import lint

FORBIDDEN = [
    (re.compile(r"\b(TO[D]O|FIX[M]E|XX[X])\b"), "postponed work belongs into an issue"),
    (re.compile(r"(?<![\w.])/(work|root|home|Users)/[\w.]"), "a path of one machine"),
    (re.compile(r"[^\x00-\x7f]"), "not ASCII"),
]


def check(tree, _):
    for path in tree.files:
        if path == "LICENSE" or not tree.is_text(path):
            continue
        for number, line in enumerate(tree.lines(path), 1):
            for pattern, why in FORBIDDEN:
                found = pattern.search(line)
                if found:
                    yield f"{path}:{number}: {why}: {found.group()!a}"


if __name__ == "__main__":
    lint.run(check, __doc__)
