"""A page of ms-tracepp report --follow in a browser: followed_page.py TOOL HALF WHOLE METRICS, where HALF and
WHOLE are traces of one simulated run of 8 ranks, the second one with more steps, and METRICS is a metrics.jsonl of 40 steps.
The files grow while the page is open. Exits with 1 where a check fails."""

import os
import shutil
import signal
import sys
import tempfile
import time

import follow_visits
import report_page
from follow_visits import PATIENCE_S, Followed, check, failures

STEPS = "document.querySelector('h1 + p').textContent"
SAID = "document.querySelector('#followed').textContent"


def until(window, condition, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if window.evaluate(condition):
            return
        time.sleep(0.1)
    check(False, f"{what}: {window.evaluate(SAID)}, {window.complaints()}")


def kept(window):
    """What the reader chose, zoomed, typed, opened, and where the page is scrolled to."""
    return window.evaluate("""({
      steps: document.querySelector('#steps output').textContent.split(':')[0], rank: document.querySelector('#grid output').textContent
        .split('\\n')[0], event: document.querySelector('#timeline output').textContent.split(' (')[0],
      curve: document.querySelector('#curves output').textContent, typed: document.querySelector('#search input').value,
      zoom: View.drawn.filter((view) => view.section.id !== 'timeline').map((view) => view.save()?.range)
        .map((range) => range && `${range.low.toFixed(3)} ${range.size.toFixed(3)} ${range.isAll}`),
      open: document.querySelector('#tables').open, focus: document.activeElement.closest('section')?.id,
      top: Math.round(document.querySelector('#timeline').getBoundingClientRect().top) })""")


def follows(tool, half, whole, metrics, directory):
    run = os.path.join(directory, "run")
    follow_visits.put(half, os.path.join(run, "trace"))
    with open(metrics, encoding="utf-8") as file:
        lines = file.readlines()
    with open(os.path.join(run, "metrics.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(lines[:len(lines) // 2])
    followed = Followed(tool, "--listen", "127.0.0.1:0", run)
    window, *_ = report_page.opened(followed.url)
    until(window, f"{SAID}.startsWith('The data were read')", "the page says how old it is")
    few = window.evaluate(STEPS)

    for view, keys in (("steps", ("ArrowRight", "ArrowRight", "+")), ("curves", ("ArrowRight", "+", "+")),
                       ("ranks", ("+",)), ("timeline", ("ArrowRight", "ArrowRight", "ArrowRight", "-"))):
        window.evaluate(f"document.querySelector('#{view} canvas').focus()")
        for key in keys:
            window.key(key)
    window.evaluate("""(() => {
      const form = document.getElementById('search');
      form.elements.rank.value = 3;
      form.requestSubmit();
      document.getElementById('tables').open = true;
      document.querySelector('#timeline').scrollIntoView();
    })()""")
    before = kept(window)
    check(before["rank"].startswith("rank 3 ") and before["steps"].startswith("step ") and before["focus"] == "timeline",
          f"chosen: {before}")

    selected = "document.querySelector('.verdict')"
    window.evaluate(f"getSelection().selectAllChildren({selected})")
    follow_visits.put(whole, os.path.join(run, "trace"))
    with open(os.path.join(run, "metrics.jsonl"), "a", encoding="utf-8") as file:
        file.writelines(lines[len(lines) // 2:])
    until(window, f"{SAID}.includes('Newer data wait')", "a text that is selected stays")
    check(window.evaluate(STEPS) == few, "the page waits")
    window.evaluate("getSelection().removeAllRanges()")
    until(window, f"{STEPS} !== '{few}'", "new steps are seen")
    until(window, "[...document.querySelectorAll('td')].some((cell) => cell.textContent === '40')", "losses of new steps")
    after = kept(window)
    # A browser scrolls by whole pixels, and lines of text may end between two.
    moved = after["top"] - before["top"]
    check({**before, "top": 0} == {**after, "top": 0} and abs(moved) <= 1, f"the view is kept: {before}, then {after}")
    timeline = "View.drawn.find((view) => view.section.id === 'timeline').save()"
    check(window.evaluate(f"{timeline}.event?.step") is not None and window.evaluate(f"{timeline}.range !== null"),
          "the chosen event and the zoom of the timeline are kept")
    check(window.complaints() == [], f"complaints: {window.complaints()}")
    check(all(url.startswith(followed.url.split("?")[0]) for url in window.requests()), f"requests: {window.requests()}")
    print(f"{few} then {window.evaluate(STEPS)} {window.evaluate(SAID)}")

    followed.end(signal.SIGINT)
    until(window, f"{SAID}.startsWith('No answer since')", "a program that ended is missed")
    check(window.evaluate(STEPS) != few, "the page stays")
    window.close()


def harmless(tool, directory):
    """Text of a trace is text in a page that comes later, too."""
    traces = os.path.join(directory, "attack")
    os.mkdir(traces)
    trace = report_page.attacking_trace(traces)
    followed = Followed(tool, "--listen", "127.0.0.1:0", traces)
    window, *_ = report_page.opened(followed.url)
    version = window.evaluate("document.querySelector('#followed').dataset.version")
    shutil.copy(trace, trace + ".new")
    with open(trace + ".new", "a", encoding="ascii") as file:
        file.write("\n")
    os.rename(trace + ".new", trace)
    until(window, f"document.querySelector('#followed').dataset.version !== '{version}'", "a newer page")
    report_page.is_harmless(window)
    check(window.complaints() == [], f"complaints: {window.complaints()}")
    window.close()
    followed.end()


def main():
    tool, half, whole, metrics = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        os.environ["TMPDIR"] = directory
        follows(tool, half, whole, metrics, directory)
        harmless(tool, directory)
    sys.exit(1 if failures or report_page.failures else 0)


if __name__ == "__main__":
    main()
