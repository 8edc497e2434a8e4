"""Every kind of error that the engine throws has a row in libms/core/base/error_kinds.cpp, which ms-train explain shows, and every
row is of a kind that the sources name."""

import re

import lint

TABLE = "libms/core/base/error_kinds.cpp"
# The houses whose errors can end a run. Errors of other tools, and of what only those use, end those tools.
HOUSES = ("libms/core/", "libms/engine/")
OTHER = ("libms/core/link/",)
KIND = r"\"([a-z]+\.[a-z0-9_]+)\""
THROWN = re.compile(rf"\b(?:Error|user_error)\s*\(\s*{KIND}|\berror_of\([^()]*,\s*{KIND}\)|{KIND},\s*(?:\w+::)*Blame::")


def check(tree, _):
    rows = re.findall(rf"^\s*\{{{KIND},", tree.text(TABLE), re.M)
    if not rows:
        yield f"{TABLE}:1: there is no table"
    if rows != sorted(set(rows)):
        yield f"{TABLE}:1: rows are not sorted, or one is there twice"
    named = set()
    for path in tree.files:
        if not path.startswith(("libms/", "kernels/")) or not path.endswith(lint.CXX) or path == TABLE:
            continue
        text = tree.text(path)
        named.update(re.findall(KIND, text))
        if not path.startswith(HOUSES) or path.startswith(OTHER):
            continue
        for match in THROWN.finditer(text):
            kind = next(group for group in match.groups() if group)
            if kind not in rows:
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: the kind {kind} has no row in {TABLE}"
    for kind in sorted(set(rows) - named):
        yield f"{TABLE}:1: nothing throws {kind}"


if __name__ == "__main__":
    lint.run(check, __doc__)
