"""What a run of the tests came to: what was skipped and why, what took longest, how many passed.

usage: summary.py [--strict] [--ninja BUILD/.ninja_log]... PRESET=RESULTS...

RESULTS is what ctest --output-junit wrote. The last lines printed are what a test that passed did not try on this machine
(its lines that begin with "not tried"), what was skipped, each with its reason, and "N passed, N failed, N skipped"; the exit
status is 1 where a test failed or none ran, or where results are missing. With --strict, a skip whose reason does not begin with
"needs a GPU: " counts as a failure.
"""

import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree

SLOWEST = 10
ALLOWED = "needs a GPU: "


class Test:
    def __init__(self, preset, case):
        self.name = case.get("name") if preset == "release" else f"{case.get('name')} ({preset})"
        self.seconds = float(case.get("time"))
        self.output = (case.findtext("system-out") or "").splitlines()
        # A program that is not there did not run either, and is no skip.
        self.outcome = {"run": "passed", "notrun": "skipped"}.get(case.get("status"), "failed")
        if self.outcome == "skipped" and "SKIP_" not in case.find("skipped").get("message", ""):
            self.outcome = "failed"
        if self.outcome == "passed" and "[  PASSED  ] 0 tests." in self.output:
            self.outcome = "skipped"
        self.skips = list(self.find_skips())
        self.not_tried = [line for line in self.output if line.startswith("not tried")]

    def find_skips(self):
        """(what, reason): the test as a whole, or cases of a program of GoogleTest or bats that ran."""
        cases, reason = [], None
        for previous, line in zip([""] + self.output, self.output):
            if previous.endswith(": Skipped"):
                reason = line.strip()
            if case := re.fullmatch(r"\[  SKIPPED \] (\S+) \(\d+ ms\)", line):
                cases.append((case.group(1), reason or "no reason given"))
                reason = None
            elif case := re.fullmatch(r"ok \d+ (.*) # skip ?(.*)", line):
                cases.append((case.group(1), case.group(2) or "no reason given"))
        if cases:
            for why in dict.fromkeys(reason for _, reason in cases):
                names = [name for name, reason in cases if reason == why]
                of_them = "" if self.outcome == "skipped" else ": " + (", ".join(names) if len(names) < 4 else f"{len(names)} cases")
                yield self.name + of_them, why
            return
        said = [line for line in self.output if line.strip() and not line.startswith("---")]
        if self.outcome == "skipped":
            yield self.name, said[-1].removeprefix("skipped: ") if said else "no reason given"


def read_results(preset, path):
    return [Test(preset, case) for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase")]


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
    parser.add_argument("--strict", action="store_true", help="nothing may be skipped but what needs a GPU")
    parser.add_argument("--ninja", action="append", default=[], help="a build's .ninja_log")
    parser.add_argument("results", nargs="+", metavar="PRESET=RESULTS")
    args = parser.parse_args()
    tests = []
    for argument in args.results:
        preset, path = argument.split("=", 1)
        try:
            tests += read_results(preset, path)
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            sys.exit(f"summary.py: no results of {preset}: {error}")
    table("slowest tests:", [(test.seconds, test.name) for test in tests])
    compiled = [row for path in args.ninja if pathlib.Path(path).exists() for row in compile_times(path)]
    table(f"slowest files to compile, of {sum(seconds for seconds, _ in compiled):.0f} s in all:", compiled)
    for test in tests:
        refused = [skip for skip in test.skips if args.strict and not skip[1].startswith(ALLOWED)]
        for what, reason in refused:
            print(f"failed: {what}: skipped, {reason}")
        if refused:
            test.outcome, test.skips = "failed", []
        elif test.outcome == "failed":
            print(f"failed: {test.name}")
    for test in tests:
        for line in test.not_tried:
            print(f"{test.name}: {line}")
    skips = [skip for test in tests for skip in test.skips]
    for what, reason in skips:
        print(f"skipped: {what}: {reason}")
    count = {outcome: sum(test.outcome == outcome for test in tests) for outcome in ("passed", "failed")}
    print(f"{count['passed']} passed, {count['failed']} failed, {len(skips)} skipped")
    return 1 if count["failed"] or count["passed"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
