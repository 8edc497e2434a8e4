"""What a run of the tests came to: what was skipped and why, what took longest, how many passed.

usage: summary.py [--ninja BUILD/.ninja_log]... PRESET=LOG...

A LOG is a copy of a build's Testing/Temporary/LastTest.log. The last line printed is "N passed, N failed, N skipped"; the exit
status is 1 where a test failed or none ran.
"""

import argparse
import pathlib
import re
import sys

SLOWEST = 10


class Test:
    def __init__(self, preset, name):
        self.name = name if preset == "release" else f"{name} ({preset})"
        self.seconds = 0.0
        self.outcome = "failed"  # until the log says otherwise: ctest was killed in the middle of it
        self.output = []

    def skips(self):
        """(what, reason): the test as a whole, or single cases of a program that passed."""
        if self.outcome == "skipped":
            said = [line for line in self.output if line.strip() and not line.startswith("---")]
            yield self.name, said[-1] if said else "no reason given"
            return
        reason = None
        for previous, line in zip([""] + self.output, self.output):
            if previous.endswith(": Skipped"):
                reason = line.strip() or None
            case = re.fullmatch(r"\[  SKIPPED \] (\S+) \(\d+ ms\)", line)
            if case:
                yield f"{self.name}: {case.group(1)}", reason or "no reason given"
                reason = None


def read_log(preset, path):
    tests, test, inside = [], None, False
    for line in pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        begin = re.fullmatch(r"\d+/\d+ Testing: (.+)", line)
        if begin:
            test = Test(preset, begin.group(1))
            tests.append(test)
        elif test is None:
            continue
        elif line == "Output:":
            inside = True
        elif line == "<end of output>":
            inside = False
        elif inside:
            test.output.append(line)
        elif line.startswith("Test time ="):
            test.seconds = float(line.split()[3])
        elif line in ("Test Passed.", "Test Skipped."):
            test.outcome = "passed" if line == "Test Passed." else "skipped"
    return tests


def compile_times(path):
    """What ninja built, with the seconds that the newest build of it took."""
    took = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        columns = line.split("\t")
        if len(columns) == 5 and columns[3].endswith((".o", ".gch")):
            took[columns[3]] = (int(columns[1]) - int(columns[0])) / 1000
    preset = pathlib.Path(path).parent.name
    # Without folders: "libms/CMakeFiles/ms_net.dir/Unity/unity_0_cxx.cxx.o" is "ms_net: unity_0_cxx.cxx".
    short = re.compile(r".*CMakeFiles/([^/]*)[.]dir/(Unity/)?(.*)[.]o$")
    return [(seconds, short.sub(r"\1: \3", name) + f" ({preset})") for name, seconds in took.items()]


def table(title, rows):
    print(title)
    for seconds, name in sorted(rows, reverse=True)[:SLOWEST]:
        print(f"  {seconds:7.1f} s  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ninja", action="append", default=[], help="a build's .ninja_log")
    parser.add_argument("logs", nargs="+", metavar="PRESET=LOG")
    args = parser.parse_args()
    tests = []
    for log in args.logs:
        preset, path = log.split("=", 1)
        tests += read_log(preset, path)
    skips = [skip for test in tests for skip in test.skips()]
    print(f"skipped: {len(skips)}")
    for what, reason in skips:
        print(f"  {what}: {reason}")
    table("slowest tests:", [(test.seconds, test.name) for test in tests])
    compiled = [row for path in args.ninja if pathlib.Path(path).exists() for row in compile_times(path)]
    table(f"slowest files to compile, of {sum(seconds for seconds, _ in compiled):.0f} s in all:", compiled)
    failed = [test.name for test in tests if test.outcome == "failed"]
    for name in failed:
        print(f"failed: {name}")
    count = {outcome: sum(test.outcome == outcome for test in tests) for outcome in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if failed or count["passed"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
