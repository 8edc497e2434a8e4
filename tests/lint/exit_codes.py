"""The exit codes of libms/core/base/exit.h, of the page ms-exit(7) and of jobscripts/lib.sh are the same."""

import re
import subprocess

import lint


def from_header(text):
    numbers = dict(re.findall(r"^\s*(\w+)\s*=\s*(\d+)\s*,", text, re.M))
    rows = re.findall(r"\{\s*ExitCode::(\w+)\s*,\s*\"(\w+)\"", text)
    return {name: int(number) for name, number in numbers.items()}, rows


def from_page(text):
    """'.It 75 Pq stopped' rows: number and name."""
    rows = re.findall(r"^\.It (\d+)(?: Pq (\w+))?", text, re.M)
    return {int(number): name for number, name in rows}


def page_text(tree, args):
    """ms-exit(7): the file of the tree, or what the first tool that is built prints; None if there is neither."""
    page = tree.root / "man/ms-exit.7"
    if page.exists():
        return page.read_text(encoding="ascii")
    tools = sorted(args.bin.glob("ms-*"))
    if not tools:
        return None
    return subprocess.run([tools[0], "--man-exit"], capture_output=True, text=True, check=True, timeout=60).stdout


def check(tree, args):
    header = "libms/core/base/exit.h"
    codes, rows = from_header(tree.text(header))
    for name in codes:
        if (name, name) not in rows:
            yield f"{header}:1: exit code {name} has no row of its own name in kExitCodes"
    known = set(codes.values())
    page = page_text(tree, args)
    if page is not None:
        written = from_page(page)
        for number in sorted(known - set(written)):
            yield f"ms-exit(7): exit code {number} is missing"
        for number in sorted(set(written) - known):
            yield f"ms-exit(7): exit code {number} is not in exit.h"
        for name, number in codes.items():
            if number in written and written[number] != name:
                yield f"ms-exit(7): exit code {number} is called '{written[number]}', exit.h says {name}"
    script = "jobscripts/lib.sh"
    if script in tree.files:
        for number in re.findall(r"\bEXIT_\w+=(\d+)", tree.text(script)):
            if int(number) not in known:
                yield f"{script}:1: exit code {number} is not in exit.h"
    if page is None:
        print("note: no tool is built, ms-exit(7) was not compared")


if __name__ == "__main__":
    lint.run(check, __doc__)
