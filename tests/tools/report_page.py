"""The page of ms-tracepp report in a browser: report_page.py TOOL TRACE RUN RUN SCREENSHOTS, where TRACE is of a run with a
slow rank 5, each RUN has a metrics.jsonl, and SCREENSHOTS is a folder for pictures of every view. Prints what was measured; exits with 1 where a check fails."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import browser

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pytorch"))
import gpu_jobs

VIEWS = ("steps", "curves", "mesh", "ranks", "grid", "timeline")
ATTACK = "</script><script>window.attacked = 1</script><img src=x onerror='window.attacked = 1'>\"'\x1b[2J\u202e" + "\u05d0\u05d1"
# The least contrast that WCAG 2 asks of text is 4.5.
CONTRAST = """(() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const found = [];
  for (const element of document.querySelectorAll("h1, h2, p, li, li span, td, th, output, summary, label")) {
    const text = light(getComputedStyle(element).color);
    const contrast = (Math.max(page, text) + 0.05) / (Math.min(page, text) + 0.05);
    if (contrast < 4.5) found.push(`${element.tagName} ${contrast.toFixed(2)}`);
  }
  return found;
})()"""
NAMELESS = """[...document.querySelectorAll("canvas, svg[role], input")]
  .filter((e) => !e.getAttribute("aria-label") && !(e.labels && e.labels.length)).length"""
FRAMES = """(async () => {
  const canvas = document.querySelector("#timeline canvas");
  const times = [];
  for (let i = 0; i < 40; ++i) {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: i % 20 < 10 ? "+" : "-" }));
    const begin = performance.now();
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - begin);
  }
  return times.sort((a, b) => a - b)[20];
})()"""

failures = []


def check(passed, what):
    if not passed:
        failures.append(what)
        print("FAILED:", what)


def make_page(tool, paths, page):
    subprocess.run([tool, "report", "-o", page, *paths], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def opened(page, dark=False):
    with_profile = tempfile.TemporaryDirectory()
    window = browser.Browser(with_profile.name, dark)
    window.profile = with_profile  # lives as long
    window.open(page)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        marks = window.evaluate("[document.documentElement.dataset.drawn_ms, document.documentElement.dataset.whole_ms]")
        if marks[1]:
            return window, *map(int, marks)
        time.sleep(0.02)
    problem = window.evaluate("document.getElementById('problem').textContent")
    raise SystemExit(f"{page} was not drawn: {problem}, {window.complaints()}")


def is_quiet(window, page):
    check(window.complaints() == [], f"{page}: {window.complaints()}")
    check(window.requests() == ["file://" + os.path.abspath(page)], f"{page} asks for {window.requests()[1:]}")


def walk(window, views):
    """Every view is reached by Tab, and answers to keys."""
    reached = []
    for _ in range(20):
        window.call("Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        view = window.evaluate("document.activeElement.closest('section')?.id")
        if not view or view in reached:
            continue
        reached.append(view)
        output = f"document.querySelector('#{view} output').textContent"
        said = set()
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "+"):
            window.key(key)
            said.add(window.evaluate(output))
        check(len(said) > 1, f"the view {view} does not answer to keys")
    check(sorted(reached) == sorted(views), f"Tab reaches {reached}")


def walk_curves(window):
    window.evaluate("document.querySelector('#curves canvas').focus()")
    said = set()
    for _ in range(2):
        window.key("ArrowDown")
        said.add(window.evaluate("document.querySelector('#curves output').textContent").split(",")[0])
    check(said == {"run", "other"}, f"down walks through the runs: {said}")


def look(page, screenshots, dark):
    window, drawn_ms, whole_ms = opened(page, dark)
    theme = "dark" if dark else "light"
    is_quiet(window, page)
    check(window.evaluate(CONTRAST) == [], f"{theme}: contrast of {window.evaluate(CONTRAST)}")
    check(window.evaluate(NAMELESS) == 0, "drawings or fields without a name")
    check(window.evaluate("document.querySelector('ol.first li').textContent").find("rank 5 ") >= 0, "rank 5 is not named first")
    check(window.evaluate("document.querySelector('#grid output').textContent").startswith("rank 5 "), "rank 5 is not selected")
    for view in VIEWS:
        window.screenshot(os.path.join(screenshots, f"{view}-{theme}.png"), "#" + view)
    if not dark:
        frame_ms = window.evaluate(FRAMES)
        check(frame_ms < 100, f"a frame takes {frame_ms:.0f} ms")
        print(f"drawn after {drawn_ms} ms, the timeline after {whole_ms} ms, a frame of zooming {frame_ms:.1f} ms, "
              f"{os.path.getsize(page)} bytes")
        walk(window, VIEWS)
        walk_curves(window)
        with open(os.path.join(screenshots, "report.pdf"), "wb") as file:
            file.write(browser.base64.b64decode(window.call("Page.printToPDF")["data"]))
    window.close()


def attacking_trace(directory):
    """A trace whose names are markup, steer terminals, are long."""
    events = [{"ph": "X", "name": ATTACK + str(i), "cat": ATTACK, "pid": 0, "tid": 0, "ts": 10.0 * i, "dur": 5.0,
               "args": {"step": 0}} for i in range(50)]
    events.append({**events[0], "name": "x" * (1 << 20), "ts": 1000.0})
    events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": ATTACK}})
    trace = os.path.join(directory, "attack.json")
    with open(trace, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "distributedInfo": {"rank": 0, "world_size": 1}}, file)
    return trace


def is_harmless(window):
    check(window.evaluate("window.attacked") is None, "a name of the trace ran as a script")
    check(window.evaluate("document.images.length") == 0, "a name of the trace became an element")


def attack(tool, directory):
    """Text of a trace is text."""
    page = os.path.join(directory, "attack.html")
    make_page(tool, [attacking_trace(directory)], page)
    check(os.path.getsize(page) < 1 << 18, "a name of 1 MB makes a large page")
    window, *_ = opened(page)
    is_quiet(window, page)
    is_harmless(window)
    window.close()


def said(window, view):
    return window.evaluate(f"document.querySelector('#{view} output').textContent")


# The job, its ranks, and those that are traced; whom and what the page names; the colour of most of the idle time.
JOBS = {
    "eight": ("item_one", 8, range(8), "rank 2 ", "aten::item (train.py(52): log_metrics)", "synchronises", "log_metrics"),
    "loader": ("loader_one", 4, range(4), "rank 1 ", "for the data loader", "data", "__next__"),
    "one": ("item_one", 8, [2], "the device is idle", "aten::item (train.py(52): log_metrics)", "synchronises", "log_metrics"),
}


def look_at_job(tool, directory, name, screenshots):
    """The page of a PyTorch job on GPUs: its cause is named, idle time and the host are drawn, kernels listed."""
    job, ranks, traced, rank, where, cause, function = JOBS[name]
    traces = os.path.join(directory, name)
    os.makedirs(traces)
    for gpu in gpu_jobs.meet(ranks, getattr(gpu_jobs.Gpu, job), 5):
        if gpu.rank in traced:
            with open(os.path.join(traces, f"rank{gpu.rank}.json"), "w", encoding="utf-8") as file:
                json.dump(gpu.document(), file)
    page = os.path.join(directory, name + ".html")
    make_page(tool, [traces], page)
    views = ["steps", "idle", "timeline", "flame"] + ([] if len(traced) == 1 else ["mesh", "ranks", "grid"])
    for dark in (False, True):
        window, *_ = opened(page, dark)
        theme = "dark" if dark else "light"
        is_quiet(window, page)
        check(window.evaluate(CONTRAST) == [], f"{name}, {theme}: contrast of {window.evaluate(CONTRAST)}")
        check(window.evaluate(NAMELESS) == 0, f"{name}: drawings or fields without a name")
        first = window.evaluate("document.querySelector('ol.first').textContent")
        check(rank in first and where in first, f"{name}: look first at {first}")
        shown = window.evaluate("[...document.querySelectorAll('section:not([hidden]):has(canvas)')].map((s) => s.id)")
        check(sorted(shown) == sorted(views), f"{name}: shows {shown}")
        idle = said(window, "idle")
        check("step 0: " in idle and (len(traced) == 1 or idle.startswith(rank)), f"{name}: idle time is told of {idle}")
        check(idle.split("step 0: ")[1].startswith(cause), f"{name}: most idle time is {idle}")
        kernels = window.evaluate("document.querySelector('#kernels table').textContent")
        check("ampere_bf16_s16816gemm" in kernels and "ncclDevKernel" in kernels, f"{name}: kernels are {kernels}")
        window.evaluate("document.querySelector('#timeline canvas').focus()")
        window.key("ArrowDown")
        # It shows the newest step, 4, and a little of the one before.
        check(", step 3," in said(window, "timeline"), f"{name}: the timeline begins at {said(window, 'timeline')}")
        window.evaluate("document.querySelector('#flame canvas').focus()")
        functions = []
        for _ in range(3):
            window.key("ArrowRight")
            functions.append(said(window, "flame"))
        check(any(function in text for text in functions), f"{name}: the flame graph has {functions}")
        for view in (*views, "kernels"):
            window.screenshot(os.path.join(screenshots, f"{name}-{view}-{theme}.png"), "#" + view)
        if not dark:
            walk(window, views)
        window.close()


def look_at_experts(tool, directory, run, screenshots):
    """The load of experts that a run's metrics.jsonl has."""
    copy = os.path.join(directory, "experts")
    shutil.copytree(run, copy)
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "expert_loads.jsonl"), os.path.join(copy, "metrics.jsonl"))
    page = os.path.join(directory, "experts.html")
    make_page(tool, [copy], page)
    for dark in (False, True):
        window, *_ = opened(page, dark)
        theme = "dark" if dark else "light"
        is_quiet(window, page)
        check(window.evaluate(CONTRAST) == [], f"experts, {theme}: contrast of {window.evaluate(CONTRAST)}")
        check(said(window, "experts") == "layer 0, expert 0: 1.11 of an even share of the tokens", f"experts: {said(window, 'experts')}")
        warning = window.evaluate("document.querySelector('#experts ~ p.bad').textContent")
        check(warning.startswith("13 of 32 experts"), f"experts: warns of {warning}")
        window.evaluate("document.querySelector('#experts canvas').focus()")
        for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
            window.key(key)
        check(said(window, "experts").startswith("layer 2, expert 1: "), f"experts: {said(window, 'experts')}")
        window.screenshot(os.path.join(screenshots, f"experts-{theme}.png"), "#experts")
        if not dark:
            walk(window, ("steps", "curves", "experts", "mesh", "ranks", "grid", "timeline"))
        window.close()


def main():
    tool, *paths, screenshots = sys.argv[1:]
    os.makedirs(screenshots, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        page = os.path.join(directory, "report.html")
        make_page(tool, paths, page)
        for dark in (False, True):
            look(page, screenshots, dark)
        attack(tool, directory)
        look_at_experts(tool, directory, paths[1], screenshots)
        for name in JOBS:
            look_at_job(tool, directory, name, screenshots)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
