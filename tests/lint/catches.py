"""Exceptions are caught in main, at thread trampolines and at C boundaries. Every file of the product that holds a `catch` is
a row of catches.txt with the number it holds and why; the number only goes down."""

import re

import lint

TABLE = "tests/lint/catches.txt"


def check(tree, _):
    allowed = {path: int(count) for path, count, _ in lint.read_table(tree.root / TABLE, 3)}
    for path in tree.cxx(lint.PRODUCT):
        code = lint.blank_comments(tree.text(path), strings=True)
        count, limit = len(re.findall(r"\bcatch\s*\(", code)), allowed.pop(path, 0)
        if count > limit:
            yield f"{path}:1: {count} catch blocks, {TABLE} allows {limit}"
        elif count < limit:
            yield f"{TABLE}:1: {path} holds {count} catch blocks now, lower {limit}"
    for path in allowed:
        yield f"{TABLE}:1: {path} is no longer there"


if __name__ == "__main__":
    lint.run(check, __doc__)
