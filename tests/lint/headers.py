"""Every header of a module compiles by itself, in the language of the project (it includes what it names)."""

import concurrent.futures
import os
import subprocess

import lint


def compile_alone(tree, path):
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-x", "c++", "-Wno-pragma-once-outside-header",
               *lint.INCLUDES, path]
    done = subprocess.run(command, cwd=tree.root, capture_output=True, text=True, check=False)
    first = [line for line in done.stderr.splitlines() if "error:" in line][:1]
    return None if done.returncode == 0 else f"{path}:1: does not compile alone: {(first or ['?'])[0]}"


def check(tree, _):
    headers = [f for f in tree.files if f.startswith("libms/") and f.endswith(".h") and "/cuda/" not in f]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for problem in pool.map(lambda path: compile_alone(tree, path), headers):
            if problem is not None:
                yield problem


if __name__ == "__main__":
    lint.run(check, __doc__)
