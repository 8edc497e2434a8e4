"""No source file is longer than 800 lines; how many are longer than 400 is a ratchet (ratchets.txt) that only goes down."""

import lint

SOURCE = lint.CXX + (".py", ".sh", ".bash", ".cmake", "CMakeLists.txt", "bootstrap", ".ci/run")
LONG, TOO_LONG = 400, 800


def check(tree, _):
    lengths = {f: len(tree.lines(f)) for f in tree.files if f.endswith(SOURCE)}
    for path, count in lengths.items():
        if count > TOO_LONG:
            yield f"{path}:{TOO_LONG + 1}: {count} lines, the most is {TOO_LONG}: give the file one job"
    longer = {path: count for path, count in lengths.items() if count > LONG}
    for path, count in longer.items():
        print(f"note: {path}: {count} lines")
    table = "tests/lint/ratchets.txt"
    allowed = {name: int(number) for name, number in lint.read_table(tree.root / table, 2)}
    ratchet = allowed.get("files_over_400", 0)
    if len(longer) > ratchet:
        yield f"{table}:1: {len(longer)} files over {LONG} lines, files_over_400 allows {ratchet}: {', '.join(longer)}"
    elif len(longer) < ratchet:
        yield f"{table}:1: {len(longer)} files over {LONG} lines, lower files_over_400 from {ratchet}"


if __name__ == "__main__":
    lint.run(check, __doc__)
