"""What summary.py says of results as ctest writes them: skipped is not passed, and in CI only what needs a GPU may skip."""

import pathlib
import subprocess
import sys
import tempfile

CASE = '<testcase name="{}" classname="{}" time="0.5" status="{}">{}<system-out>{}</system-out></testcase>'
FAILURE = '<failure message=""/>'
SKIPPED, ABSENT = '<skipped message="SKIP_RETURN_CODE=77"/>', '<skipped message="Unable to find"/>'


def results(folder, name, *cases):
    path = pathlib.Path(folder) / name
    rows = "".join(CASE.format(case[0], *case) for case in cases)
    path.write_text(f"<?xml version='1.0'?><testsuite name='x'>{rows}</testsuite>", encoding="utf-8")
    return f"release={path}"


def expect(arguments, status, *lines):
    script = pathlib.Path(__file__).with_name("summary.py")
    run = subprocess.run([sys.executable, "-B", script, *arguments], capture_output=True, text=True, check=False)
    said = run.stdout.splitlines()
    missing = [line for line in lines if line not in said]
    if run.returncode != status or missing:
        sys.exit(f"exit {run.returncode}, not {status}; missing {missing} in:\n{run.stdout}{run.stderr}")


with tempfile.TemporaryDirectory() as folder:
    good, bad = ("good", "run", "", ""), ("bad", "fail", FAILURE, "")
    gpu, absent = ("gpu", "notrun", SKIPPED, "needs a GPU: no driver"), ("absent", "notrun", ABSENT, "")
    cases = ("cases", "run", "", "x.cpp:1: Skipped\nneeds a GPU: no peer\n[  SKIPPED ] Suite.Case (0 ms)\n[  PASSED  ] 3 tests.\n")
    first = results(folder, "first.xml", good, bad, gpu, absent, cases)
    said = ["skipped: gpu: needs a GPU: no driver", "skipped: cases: Suite.Case: needs a GPU: no peer", "failed: bad", "failed: absent",
            "2 passed, 2 failed, 2 skipped"]
    expect([first], 1, *said)
    expect(["--strict", first], 1, *said)
    expect(["--strict", results(folder, "good.xml", good, gpu)], 0, "1 passed, 0 failed, 1 skipped")
    expect([results(folder, "none.xml", gpu)], 1, "0 passed, 0 failed, 1 skipped")
    expect([results(folder, "good.xml", good), f"asan={folder}/missing.xml"], 1)

    isa = ("isa", "run", "", "not tried, not on this machine: amx-bf16")
    expect(["--strict", results(folder, "isa.xml", isa)], 0, "isa: not tried, not on this machine: amx-bf16",
           "1 passed, 0 failed, 0 skipped")

    # A program all of whose cases were skipped passed nothing.
    nothing = ("nothing", "run", "", cases[3].replace("3 tests", "0 tests"))
    expect([results(folder, "nothing.xml", good, nothing)], 0, "skipped: nothing: needs a GPU: no peer", "1 passed, 0 failed, 1 skipped")

    # Many cases with one reason are a line.
    many = ("many", "run", "", "".join(cases[3].replace("Case", f"Case{i}") for i in range(4)))
    expect([results(folder, "many.xml", many)], 0, "skipped: many: 4 cases: needs a GPU: no peer", "1 passed, 0 failed, 1 skipped")

    # Skips for other reasons: of a whole test, of a case, and of a case of bats.
    for name, other, what in (("script", ("script", "notrun", SKIPPED, "skipped: no bats"), "script: {}no bats"),
                              ("case", ("case", "run", "", cases[3].replace("needs a GPU: ", "")), "case: Suite.Case: {}no peer"),
                              ("bats", ("bats", "run", "", "1..2\nok 1 boots\nok 2 an alarm # skip no sshd"), "bats: an alarm: {}no sshd"),
                              ("silent", ("silent", "notrun", SKIPPED, ""), "silent: {}no reason given")):
        path = results(folder, f"{name}.xml", good, gpu, other)
        passed = 1 + (other[1] == "run")
        expect([path], 0, "skipped: " + what.format(""), f"{passed} passed, 0 failed, 2 skipped")
        expect(["--strict", path], 1, "failed: " + what.format("skipped, "), "1 passed, 1 failed, 1 skipped")
