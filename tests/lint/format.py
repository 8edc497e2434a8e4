"""C++ files are as clang-format 14 and .clang-format leave them (another version formats differently, so it is not asked)."""

import re
import shutil
import subprocess

import lint


def clang_format():
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name):
            version = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(r"version 14\.", version):
                return name
    raise lint.Skip("there is no clang-format 14 here")


def check(tree, _):
    tool = clang_format()
    files = [f for f in tree.cxx() if not f.endswith((".cu", ".cuh"))]
    for begin in range(0, len(files), 32):
        batch = subprocess.run([tool, "--dry-run", "--style=file", *files[begin:begin + 32]],
                               cwd=tree.root, capture_output=True, text=True, check=False)
        seen = set()
        for line in batch.stderr.splitlines():
            match = re.match(r"(.+?):(\d+):\d+: (warning|error): (.*)", line)
            if match and match.group(1) not in seen:
                seen.add(match.group(1))
                yield f"{match.group(1)}:{match.group(2)}: not as clang-format leaves it (the first such line)"
        if batch.returncode != 0 and not seen:
            yield f"{tool}: {batch.stderr.strip()}"


if __name__ == "__main__":
    lint.run(check, __doc__)
