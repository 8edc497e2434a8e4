"""What summary.py says of results as ctest writes them: skipped is not passed, and a second try hides no failure."""

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
    skip, absent = ("skip", "notrun", SKIPPED, "no GPU"), ("absent", "notrun", ABSENT, "")
    cases = ("cases", "run", "", "x.cpp:1: Skipped\nno peer\n[  SKIPPED ] Suite.Case (0 ms)\n")
    first = results(folder, "first.xml", good, bad, skip, absent, cases)
    expect([first], 1, "  skip: no GPU", "  cases: Suite.Case: no peer", "failed: bad", "failed: absent",
           "2 passed, 2 failed, 1 skipped")
    second = results(folder, "second.xml", ("bad", "run", "", ""), absent)
    expect([first, second], 1, "failed beside other tests, passed alone: bad", "failed: absent",
           "3 passed, 1 failed, 1 skipped")
    expect([results(folder, "good.xml", good, skip)], 0, "1 passed, 0 failed, 1 skipped")
    expect([results(folder, "none.xml", skip)], 1, "0 passed, 0 failed, 1 skipped")
    expect([results(folder, "good.xml", good), f"asan={folder}/missing.xml"], 1)
