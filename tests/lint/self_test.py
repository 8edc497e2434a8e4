"""Proves that a check bites: runs CHECK over tests/lint/bad/CHECK and demands exit 1 and exactly the problems that the file
`expected` there lists, one fragment of a problem a line. What is right in those samples must not be reported."""

import pathlib
import subprocess
import sys


def main(name):
    here = pathlib.Path(__file__).resolve().parent
    sample = here / "bad" / name
    expected = (sample / "expected").read_text(encoding="ascii").splitlines()
    done = subprocess.run([sys.executable, here / f"{name}.py", sample], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    if done.returncode == 77:
        return 77
    problems = [line for line in done.stdout.splitlines() if not line.startswith("note: ")][:-1]
    failures = [] if done.returncode == 1 else [f"exit {done.returncode}, expected 1"]
    unmatched = list(problems)
    for fragment in expected:
        hit = next((p for p in unmatched if fragment in p), None)
        if hit is None:
            failures.append(f"not found: {fragment}")
        else:
            unmatched.remove(hit)
    failures += [f"not expected: {problem}" for problem in unmatched]
    print("\n".join(failures) or f"{name} found all {len(expected)} planted problems and nothing else")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
