"""Files, directories and links are made, emptied, renamed and deleted by base/safe_file and base/file, by *at() below an
open directory, and in the places of creates.txt.

In a directory that other users may write, a name may be a link or belong to another file by the time it is used:
open_to_write() of base/safe_file.h refuses those, and below an open directory no one can exchange what leads there. Each
place of creates.txt, a file or a folder, says why it needs no such care."""

import re

import lint

HOME = ("libms/core/base/safe_file.cpp", "libms/core/base/file.cpp")
SPELLINGS = (
    r"\b(?:filesystem|fs)::(?:remove|remove_all|rename|copy|copy_file|resize_file|create_\w+)\s*\(",
    r"(?<![\w.>:])(?:std::|::)?(?:rename|creat|unlink|rmdir|mkdir|link|symlink|mkfifo|mknod|mkd?o?s?temps?)\s*\(",
    r"\b(?:rename|unlink|mkdir|link|symlink|mkfifo|mknod)at2?\s*\([^;]*\bAT_FDCWD\b",
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
    found = {place: [] for place in table}
    for path in tree.cxx(lint.PRODUCT):
        if path in HOME:
            continue
        text = lint.blank_comments(tree.text(path))
        place = next((place for place in table if place.endswith("/") and path.startswith(place)), path)
        lines = [f"{path}:{text.count(chr(10), 0, match.start()) + 1}" for match in PATTERN.finditer(text)]
        found.setdefault(place, []).extend(lines)
    for place, lines in found.items():
        allowed, _ = table.get(place, (0, ""))
        if len(lines) > allowed:
            for line in lines if allowed == 0 else lines[-1:]:
                yield (f"{line}: makes, renames or deletes by itself ({len(lines)} in {place}, {allowed} in {TABLE}): "
                       "use base/safe_file.h or base/file.h")
        elif len(lines) < allowed:
            yield f"{TABLE}: {place} has {len(lines)}, not {allowed}"


if __name__ == "__main__":
    lint.run(check, __doc__)
