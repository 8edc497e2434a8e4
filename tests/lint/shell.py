"""Shell scripts pass shellcheck."""

import re
import shutil
import subprocess

import lint


def check(tree, _):
    if not shutil.which("shellcheck"):
        raise lint.Skip("there is no shellcheck here")
    scripts = tree.shell_scripts()
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
