"""What the lint checks share: which files there are, how to read them, and how to report.

A check is a script `CHECK.py ROOT [--bin DIR] [--build DIR]`. It prints one line a problem and exits 0 (none), 1 (some) or
77 (could not look, and says why). self_test.py runs every check over tests/lint/bad/CHECK, where it must find exactly what
tests/lint/bad/CHECK/expected lists; for that reason tests/lint/bad is no part of the tree that is checked.
"""

import argparse
import pathlib
import re
import subprocess
import sys

NOT_OURS = ("build/", ".git/", ".cache/", "runs/", "tests/lint/bad/")
PRODUCT = ("libms/", "tools/", "kernels/", "spank/")
HOUSES = ("core", "engine", "ops", "traces")  # of libms
INCLUDES = [f"-Ilibms/{house}" for house in HOUSES]
CXX = (".h", ".cpp", ".cu", ".cuh", ".c")


class Skip(Exception):
    """The check cannot be made here; the text is the reason."""


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.files = sorted(f for f in self._list() if not f.startswith(NOT_OURS) and (self.root / f).is_file())

    def _list(self):
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        try:
            listed = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True).stdout.splitlines()
            if listed:
                return set(listed)
        except (OSError, subprocess.CalledProcessError):
            pass  # not a checkout: walk
        return {p.relative_to(self.root).as_posix() for p in self.root.rglob("*")}

    def cxx(self, prefixes=("",)):
        return [f for f in self.files if f.endswith(CXX) and f.startswith(tuple(prefixes))]

    def text(self, path):
        return (self.root / path).read_bytes().decode("utf-8", errors="replace")

    def lines(self, path):
        return self.text(path).splitlines()

    def is_text(self, path):
        with open(self.root / path, "rb") as file:
            return b"\0" not in file.read(65536)

    def shell_scripts(self):
        return [f for f in self.files if f.endswith((".sh", ".bash", ".sbatch")) or self._shebang(f)]

    def _shebang(self, path):
        if "." in pathlib.PurePosixPath(path).name:
            return False
        with open(self.root / path, "rb") as file:
            return re.match(rb"#!.*\b(ba)?sh\b", file.readline()) is not None


def blank_comments(source, strings=False):
    """C++ source with comments (and, if asked, the insides of strings) replaced by blanks; lines stay where they were."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)

    def blank(match):
        text = match.group()
        if text[0] == "/":
            return re.sub(r"[^\n]", " ", text)
        if strings:
            return '"' + re.sub(r"[^\n]", " ", text[1:-1]) + '"'
        return text

    return pattern.sub(blank, source)


def read_table(path, columns):
    """Rows of a plain table: '#' starts a comment line, the last column takes the rest of the line."""
    rows = []
    for line in pathlib.Path(path).read_text(encoding="ascii").splitlines() if pathlib.Path(path).exists() else []:
        if line.strip() and not line.startswith("#"):
            row = line.split(None, columns - 1)
            if len(row) != columns:
                sys.exit(f"{path}: a row needs {columns} columns: {line}")
            rows.append(row)
    return rows


def run(check, doc):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("root", help="the tree to check")
    parser.add_argument("--bin", help="the folder of the built programs, default ROOT/bin")
    parser.add_argument("--build", help="a build folder with compile_commands.json")
    args = parser.parse_args()
    tree = Tree(args.root)
    args.bin = pathlib.Path(args.bin) if args.bin else tree.root / "bin"
    try:
        problems = list(check(tree, args))
    except Skip as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problem(s), {len(tree.files)} files in the tree")
    sys.exit(1 if problems else 0)
