"""Reads TensorBoard's event files without TensorBoard: checks every record's length and checksums, and prints the scalars.

usage: event_file.py check EVENT_FILE METRICS    the scalars are the numbers of the steps in metrics.jsonl
       event_file.py scalars EVENT_FILE...       prints STEP TAG VALUE, a line each
"""

import json
import math
import struct
import sys


def crc32c(data):
    """Bit by bit, from the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), f"the length at {at} has another checksum"
        body = data[at + 12:at + 12 + length]
        assert len(body) == length, f"the record at {at} is cut"
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(body), f"the record at {at} has another checksum"
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """A protobuf's fields: number, value (an integer, or the bytes of anything longer)."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            length, at = (8, at) if kind == 1 else (4, at) if kind == 5 else varint(data, at)
            value, at = data[at:at + length], at + length
        yield key >> 3, value


def scalars(path):
    """(step, tag, value) of a file, which must begin with its version and a start."""
    with open(path, "rb") as file:
        events = [dict(fields(body)) for body in records(file.read())]
    assert events[0][3] == b"brain.Event:2", "the first record is no version"
    assert dict(fields(events[1][7])) == {1: 1}, "the second record is no start"
    rows = []
    for event in events[2:]:
        assert event[2] >= events[1][2], "a step before the start"
        for number, value in fields(event[5]):
            assert number == 1
            scalar = dict(fields(value))
            rows.append((event[2], scalar[1].decode(), struct.unpack("<f", scalar[2])[0]))
    return rows


def numbers(line):
    """What a line of metrics.jsonl should be as scalars."""
    for key, value in line.items():
        group, parts = (key, value) if isinstance(value, dict) else ("train", {key: value})
        for name, part in parts.items():
            if isinstance(part, (int, float)) and not isinstance(part, bool) and (group, name) != ("train", "step"):
                yield f"{group}/{name}", part


def check(path, metrics):
    rows = scalars(path)
    steps = {step for step, _, _ in rows}
    with open(metrics, encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    want = {(line["step"], tag): value for line in lines if line["step"] in steps for tag, value in numbers(line)}
    have = {(step, tag): value for step, tag, value in rows}
    assert have.keys() == want.keys(), f"not the same: {sorted(have.keys() ^ want.keys())[:9]}"
    assert len(have) == len(rows), "a scalar is there twice"
    for key, value in want.items():
        assert math.isclose(have[key], value, rel_tol=1e-6, abs_tol=1e-30), f"{key} is {have[key]}, not {value}"
    print(f"{len(rows)} scalars of {len(steps)} steps")


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(sys.argv[2], sys.argv[3])
    else:
        for event_file in sys.argv[2:]:
            for row in scalars(event_file):
                print(*row)
