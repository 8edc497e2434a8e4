"""What ms-tracepp draws of simulated runs of 8, 1,000 and 10,000 ranks, a table: seconds and memory of report -o, heatmap and
a sharded export, size of the page, how long a browser takes to draw it and its timeline, and a frame of zooming its timeline.

usage: tests/bench/report_scale.py BUILD/bin DIR [RANKS|TRACE...]; traces that are in DIR already are used again, and so is
another one that is named. Without Chromium two columns are empty."""

import os
import resource
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import browser  # noqa: E402
import report_page  # noqa: E402

CONFIGS = os.path.join(HERE, "..", "..", "configs")
# dp, pp, tp by ranks.
MESHES = {8: (2, 2, 2), 1000: (125, 4, 2), 10000: (1250, 4, 2)}


def timed(*command):
    """Seconds, and the most memory that any command has taken so far, in MiB: sizes rise from row to row."""
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def simulate(tool, ranks, trace, steps=6):
    dp, pp, tp = MESHES[ranks]
    timed(tool, "simulate", os.path.join(CONFIGS, "tiny-3d.toml"), "--cluster",
          os.path.join(CONFIGS, "clusters", "h100-8x400g.toml"), "--set", f"mesh.dp={dp}", "--set", f"mesh.pp={pp}", "--set",
          f"mesh.tp={tp}", "--set", f"train.global_batch={8 * dp}", "--set", "train.microbatch=1", "--slow", "rank=5:3",
          "--steps", str(steps), "--trace", trace)


def main():
    binaries, directory, *ranks = sys.argv[1:]
    tracepp = os.path.join(binaries, "ms-tracepp")
    print("ranks or trace | report s | heatmap s | export s | memory MiB | page bytes | drawn, timeline ms | frame ms | "
          "bytes an event, largest file")
    for what in ranks or map(str, MESHES):
        name = os.path.basename(what)
        trace, page, shards = (os.path.join(directory, file) for file in (name, f"{name}.html", f"{name}-shards"))
        if not what.isdigit():
            trace = what
        elif not os.path.isdir(trace):
            simulate(os.path.join(binaries, "ms-train"), int(what), trace)
        shutil.rmtree(shards, ignore_errors=True)
        report_s, _ = timed(tracepp, "report", "-o", page, trace)
        heatmap_s, _ = timed(tracepp, "heatmap", trace)
        export_s, memory = timed(tracepp, "export", "--shard-steps", "2", "--shard-dp", "50", "-o", shards, trace)
        files = report_page.json.load(open(os.path.join(shards, "index.json"), encoding="utf-8"))["files"]
        per_event = sum(f["bytes"] for f in files) / sum(f["events"] for f in files)
        largest = max(f["bytes"] for f in files)
        drawn, frame = "", ""
        if browser.find():
            window, *drawn = report_page.opened(page)
            frame = f"{window.evaluate(report_page.FRAMES):.1f}"
            window.close()
        print(f"{name} | {report_s:.1f} | {heatmap_s:.1f} | {export_s:.1f} | {memory:.0f} | {os.path.getsize(page)} | {drawn} | "
              f"{frame} | {per_event:.1f} of {len(files)} files, {largest}", flush=True)


if __name__ == "__main__":
    main()
