"""Compares whole.perfetto, the files in shards/ and table.csv, all of one trace, as perfetto_peer.sh makes them."""

import csv
import json
import os
import re
from collections import Counter, defaultdict

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

BEGIN, END, INSTANT = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT


class Read:
    """A file: slices (rank, track, name, begin, end), and flows by id: how often each end occurs."""

    def __init__(self, data):
        trace = Trace()
        trace.ParseFromString(data)
        self.slices, self.flows, self.tracks = [], defaultdict(Counter), {}
        sequences = {}
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                of = packet.track_descriptor
                self.tracks[of.uuid] = (of.parent_uuid, of.name)
                continue
            if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
                sequences[packet.trusted_packet_sequence_id] = {"names": {}, "open": [], "clocks": set()}
            if packet.HasField("clock_snapshot"):  # the packets after it are of another track
                self.begin_track(sequences[packet.trusted_packet_sequence_id], packet)
                continue
            self.event(sequences[packet.trusted_packet_sequence_id], packet)
        assert not any(of["open"] for of in sequences.values()), "slices without an end"

    def begin_track(self, sequence, packet):
        clock = next(c for c in packet.clock_snapshot.clocks if c.is_incremental)
        defaults = packet.trace_packet_defaults
        assert not sequence["open"], "slices without an end"
        assert clock.clock_id == defaults.timestamp_clock_id and 64 <= clock.clock_id < 128, clock
        assert clock.clock_id not in sequence["clocks"], f"clock {clock.clock_id} is set twice"
        sequence["clocks"].add(clock.clock_id)
        sequence["time"], sequence["track"] = clock.timestamp, defaults.track_event_defaults.track_uuid

    def event(self, sequence, packet):
        sequence["time"] += packet.timestamp
        sequence["names"].update((name.iid, name.name) for name in packet.interned_data.event_names)
        event = packet.track_event
        for kind in ("flow_ids", "terminating_flow_ids"):
            for flow in getattr(event, kind):
                self.flows[flow][kind] += 1
        if event.type == BEGIN:
            sequence["open"].append((sequence["names"][event.name_iid], sequence["time"]))
        elif event.type == INSTANT:  # where an arrow ends
            assert event.terminating_flow_ids and sequence["open"][-1][0].startswith("recv"), event
        else:
            assert event.type == END, event
            name, begin = sequence["open"].pop()
            parent, track = self.tracks[sequence["track"]]
            rank = int(re.match(r"rank (\d+)", self.tracks[parent][1]).group(1))
            self.slices.append((rank, track, name, begin, sequence["time"]))


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    whole = Read(bytes_of("whole.perfetto"))
    with open("table.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    origin = min(int(row["begin_ns"]) for row in rows)
    want = Counter((int(row["rank"]), int(row["begin_ns"]) - origin, int(row["duration_ns"])) for row in rows)
    assert Counter((rank, begin, end - begin) for rank, _, _, begin, end in whole.slices) == want, "slices differ from the table"
    sends = sum(row["kind"] == "send" for row in rows)
    assert len(whole.flows) == sends, (len(whole.flows), sends)
    assert all(ends == {"flow_ids": 1, "terminating_flow_ids": 1} for ends in whole.flows.values()), "a flow lacks an end"
    with open("shards/index.json", encoding="utf-8") as file:
        files = json.load(file)["files"]
    joined = b""
    for entry in files:
        data = bytes_of(os.path.join("shards", entry["file"]))
        alone = Read(data)
        assert len(alone.slices) == entry["events"] and len(data) == entry["bytes"], entry
        assert all(len(ends) == 2 for ends in alone.flows.values()) and entry["cut_arrows"] == 0, "a flow is cut"
        joined += data
    together = Read(joined)
    assert Counter(together.slices) == Counter(whole.slices) and together.flows == whole.flows, "shards are not the whole"
    for data in (bytes_of("whole.perfetto"), joined):
        assert len(data) <= 29 * len(rows), f"{len(data) / len(rows):.1f} bytes an event"
    print(f"{len(rows)} events, {len(whole.flows)} flows: one file, {len(files)} shards and the table agree; "
          f"{len(bytes_of('whole.perfetto')) / len(rows):.1f} and {len(joined) / len(rows):.1f} bytes an event")


if __name__ == "__main__":
    main()
