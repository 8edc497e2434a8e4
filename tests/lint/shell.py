"""Shell scripts and bats files pass shellcheck, and no line of theirs begins with "!", not even in a quoted script:
bash -e and bats never see such a command fail. A test writes "no COMMAND" (tests/cluster/preflight.sh) instead."""

import re
import shutil
import subprocess

import lint


def check(tree, _):
    if not shutil.which("shellcheck"):
        raise lint.Skip("there is no shellcheck here")
    scripts = tree.shell_scripts() + [f for f in tree.files if f.endswith(".bats")]
    for path in scripts:
        for number, line in enumerate(tree.lines(path), 1):
            if re.match(r"\s*!\s", line):
                yield f"{path}:{number}: a line that begins with '!' is never seen to fail: {line.strip()}"
    if not scripts:
        return
    done = subprocess.run(["shellcheck", "-x", "--format=gcc", *scripts], cwd=tree.root, capture_output=True, text=True,
                          check=False)
    for line in done.stdout.splitlines():
        yield re.sub(r"^(.*?:\d+):\d+:", r"\1:", line)
    if done.returncode > 1:
        yield f"shellcheck: {done.stderr.strip()}"


if __name__ == "__main__":
    lint.run(check, __doc__)
