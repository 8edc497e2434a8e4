#!/usr/bin/env python3
"""Kineto traces as nsys export would write them, as SQLite and as JSON lines, and whether reports of them are the same.

nsys_exports.py MS_TRACEPP DIR   DIR/CASE/trace_rank*.json, as causes.py plans them; exits 1 if a report differs
"""
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

PID, TID = 0x1000000002000000, 0x1000000002000003
KINDS = {"HtoD": 1, "DtoH": 2}
MEMORIES = {"Pageable": 0, "Pinned": 1, "Device": 2}
TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
  srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,
  domainId INTEGER, textId INTEGER);
"""


class Export:
    """The events of a trace with Nsight's numbers for names."""

    def __init__(self, trace):
        self.strings = ["[Unknown]"]
        self.kernels, self.copies, self.calls, self.ranges = [], [], [], []
        for event in trace["traceEvents"]:
            if event["ph"] != "X":
                continue
            begin, args = round(1000 * event["ts"]), event["args"]
            end = round(1000 * (event["ts"] + event["dur"]))
            if event["cat"] == "kernel":
                self.kernels.append((begin, end, args["stream"], args["correlation"], self.text(event["name"])))
            elif event["cat"] == "gpu_memcpy":
                kind, source, target = re.match(r"Memcpy (\w+) \((\w+) -> (\w+)\)", event["name"]).groups()
                self.copies.append((begin, end, args["stream"], args["correlation"], KINDS[kind], MEMORIES[source],
                                    MEMORIES[target]))
            elif event["cat"] == "cuda_runtime":
                self.calls.append((begin, end, args["correlation"], self.text(event["name"] + "_v7000")))
            else:
                name = event["name"].replace("ProfilerStep#", "train step ")
                self.ranges.append((begin, end, name + (", op_id = 7" if event["cat"] == "cpu_op" else "")))

    def text(self, name):
        if name not in self.strings:
            self.strings.append(name)
        return self.strings.index(name)

    def sqlite(self, path):
        db = sqlite3.connect(path)
        db.executescript(TABLES)
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(self.strings))
        db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'x', 'Hostname', 2, 'node1')")
        db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1760000000000000000, '', '')")
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?)",
                       [(*one[:4], PID, one[4], one[4]) for one in self.kernels])
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, ?, ?, ?, 4096, ?, ?, ?)",
                       [(*one[:4], PID, *one[4:]) for one in self.copies])
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?, ?, ?, 0)",
                       [(*one[:2], TID, *one[2:]) for one in self.calls])
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, 0, NULL)", [(*one, TID) for one in self.ranges])
        db.execute("INSERT INTO NVTX_EVENTS VALUES (5, NULL, 34, 'a mark', ?, 0, NULL)", (TID,))
        db.commit()
        db.close()

    def json_lines(self, path):
        lines = [{"data": self.strings}]
        for begin, end, stream, correlation, name in self.kernels:
            lines.append({"Type": 79, "CudaEvent": {
                "startNs": str(begin), "endNs": str(end), "correlationId": correlation, "deviceId": 0, "contextId": "1",
                "streamId": str(stream), "globalPid": str(PID), "kernel": {"demangledName": str(name)}}})
        for begin, end, stream, correlation, kind, source, target in self.copies:
            lines.append({"Type": 80, "CudaEvent": {
                "startNs": str(begin), "endNs": str(end), "correlationId": correlation, "deviceId": 0,
                "streamId": str(stream), "globalPid": str(PID),
                "memcpy": {"sizebytes": "4096", "copyKind": str(kind), "srcKind": source, "dstKind": target}}})
        for begin, end, correlation, name in self.calls:
            lines.append({"Type": 48, "TraceProcessEvent": {
                "startNs": str(begin), "endNs": str(end), "correlationId": correlation, "eventClass": 0, "name": str(name),
                "returnValue32": 0, "globalTid": str(TID)}})
        for begin, end, text in self.ranges:
            lines.append({"Type": 59, "NvtxEvent": {
                "Type": 59, "Timestamp": str(begin), "Text": text, "GlobalTid": str(TID), "EndTimestamp": str(end),
                "DomainId": "0", "NsTime": True}})
        lines.append({"data": [{"nameIdx": "0", "priority": "10", "globalTid": str(TID)}]})
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def told(program, path):
    """What a report says of where the time went: by rank and step, and by kind."""
    done = subprocess.run([program, "report", "--json", path], capture_output=True, text=True, timeout=60, check=True)
    report = json.loads(done.stdout)
    mean = {key: value for key, value in report["breakdown"]["mean"].items() if key != "axes"}
    axes = [axis["exposed_s"] for axis in report["breakdown"]["mean"]["axes"].values()]
    kinds = sorted((kind["kind"], kind["events"], round(kind["mean_s"], 9)) for kind in report["breakdown"]["kinds"]
                   if kind["kind"] != "other")
    idle = [[(step["step"], step["idle_ms"]) for step in rank["steps"]] for rank in report["idle"]]
    return {"ranks": [rank["rank"] for rank in report["idle"]], "mean": mean, "exposed": axes, "kinds": kinds, "idle": idle}


def near(one, other):
    if isinstance(one, float) or isinstance(other, float):
        return abs(one - other) < 1e-6
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(near, one, other))
    return one == other


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, same, count = sys.argv[1], 0, 0
    for case in sorted(Path(sys.argv[2]).glob("gpu-*")):
        expected = told(program, case)
        for ending, write in ((".sqlite", Export.sqlite), (".jsonl", Export.json_lines)):
            with tempfile.TemporaryDirectory() as folder:
                for trace in case.glob("*.json"):
                    write(Export(json.loads(trace.read_text())), Path(folder, trace.stem + ending))
                found = told(program, folder)
            count += 1
            differs = [key for key in expected if not near(expected[key], found[key])]
            same += not differs
            for key in differs:
                print(f"{case.name}{ending}: {key}: {found[key]} instead of {expected[key]}")
    print(f"{same} of {count} exports have the same report")
    return 0 if count and same == count else 1


if __name__ == "__main__":
    sys.exit(main())
