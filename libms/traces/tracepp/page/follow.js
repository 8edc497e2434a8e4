// A page that ms-tracepp report --follow serves: it asks how the run is, and takes up newer pages without losing what the
// reader chose, zoomed and opened.
"use strict";

const kAskEvery_ms = 2000;
const kTakingUpShare = 0.1;  // of the time, at most
const kPatience_ms = 60000;

// Puts a newer page in place of the one that is shown. Returns its selection.
async function takeUp(html, past) {
  const page = new DOMParser().parseFromString(html, "text/html");
  const run = await loadRun(page);
  await loadTimeline(run, page);
  for (const script of page.querySelectorAll("script")) script.remove();
  const shown = document.activeElement;
  const focus = shown.closest("section") ? `#${shown.closest("section").id} canvas`
    : ["input", "button", "summary"].find((name) => shown.matches(name));
  const typed = document.querySelector("#search input").value;
  const isOpen = document.getElementById("tables").open;
  const underForm = document.getElementById("search").getBoundingClientRect().bottom;
  const top = scrollY === 0 ? undefined : [...document.querySelectorAll("body > section:not([hidden]), body > details")]
    .find((element) => element.getBoundingClientRect().bottom > underForm);
  const topAt = top?.getBoundingClientRect().top;

  View.retire();
  document.body.replaceChildren(...page.body.childNodes);
  const selection = drawRun(run, past);
  timelineView(run, selection);
  document.querySelector("#search input").value = typed;
  document.getElementById("tables").open = isOpen;
  for (const view of View.drawn) view.drawNow();  // before the browser shows it: nothing jumps
  if (focus) document.querySelector(focus)?.focus({ preventScroll: true });
  const now = top && document.getElementById(top.id);
  if (now) scrollBy({ top: now.getBoundingClientRect().top - topAt, behavior: "instant" });
  return selection;
}

function followRun(selection) {
  let answered = new Date(), isPressed = false;
  for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel"])
    addEventListener(name, (event) => { isPressed = event.buttons !== 0; });
  const say = (text, isBad) => {
    const line = document.getElementById("followed");
    line.textContent = text;
    line.className = isBad ? "bad" : "quiet";
  };
  const ask = async (path) => {
    const signal = AbortSignal.timeout(kPatience_ms);
    const answer = await fetch(path + location.search, { cache: "no-store", signal });
    if (!answer.ok) throw new Error(await answer.text());
    return answer;
  };
  const isNewer = (state) => state.version !== document.getElementById("followed").dataset.version;
  const askAgain = async () => {
    if (document.hidden) {
      document.addEventListener("visibilitychange", askAgain, { once: true });
      return;
    }
    const begin = performance.now();
    let state = null, html = null;
    try {
      state = await (await ask("/state")).json();
      if (isNewer(state) && !isPressed && getSelection().isCollapsed) html = await (await ask("/")).text();
      answered = new Date();
    } catch (error) {
      say(`No answer since ${answered.toLocaleTimeString()} (${error.message.trim()}): do ms-tracepp and the tunnel run? ` +
        "The page shows what it knew then.", true);
    }
    if (html !== null) selection = await takeUp(html, selection);
    if (state !== null)
      say(state.text + (isNewer(state) ? " Newer data wait while something is selected or pressed." : ""), state.bad);
    setTimeout(askAgain, Math.max(kAskEvery_ms, (performance.now() - begin) / kTakingUpShare));
  };
  askAgain();
}
