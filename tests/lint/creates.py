"""Files are created, emptied, renamed and deleted by base/safe_file and base/file, and in the places of creates.txt.

In a directory that other users may write, a name may be a link or belong to another file by the time it is used:
open_to_write() of base/safe_file.h refuses those. Each place of creates.txt says why it needs no such care."""

import re

import lint

HOME = ("libms/core/base/safe_file.cpp", "libms/core/base/file.cpp")
SPELLINGS = (
    r"\b(?:filesystem|fs)::(?:remove|remove_all|rename|copy|copy_file|resize_file)\s*\(",
    r"(?<![\w.>:])(?:std::|::)?(?:rename|renameat|renameat2|creat)\s*\(",
    r"(?<![\w.>:])std::remove\s*\(\s*[^,()]*(?:\([^()]*\))?\s*\)",  # not the algorithm, which takes a range
    r"\bO_CREAT\b",
    r"\bo?fstream\b(?!>)",
    r"\bfopen\s*\([^;]*,\s*\"[^\"r]",
    r"\bfreopen\s*\(",
)
PATTERN = re.compile("|".join(SPELLINGS))
TABLE = "tests/lint/creates.txt"


def check(tree, _):
    table = {path: (int(count), why) for path, count, why in lint.read_table(tree.root / TABLE, 3)}
    for path in tree.cxx(lint.PRODUCT):
        if path in HOME:
            continue
        text = lint.blank_comments(tree.text(path))
        found = [text.count("\n", 0, match.start()) + 1 for match in PATTERN.finditer(text)]
        allowed, _ = table.pop(path, (0, ""))
        if len(found) > allowed:
            for line in found if allowed == 0 else found[-1:]:
                yield (f"{path}:{line}: creates, renames or deletes by itself ({len(found)} in the file, {allowed} in "
                       f"{TABLE}): use base/safe_file.h or base/file.h")
        elif len(found) < allowed:
            yield f"{TABLE}: {path} has {len(found)}, not {allowed}"
    for path in table:
        yield f"{TABLE}: {path} has none"


if __name__ == "__main__":
    lint.run(check, __doc__)
