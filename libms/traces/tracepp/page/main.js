// Draws the views, which share one selected rank.
"use strict";

class Selection {
  constructor(run) {
    this.run = run;
    this.rank = run.rank ?? run.marks[0]?.rank ?? slowest(run);
    this.listeners = [];
    const move = (axis, by) => () => {
      const at = coordOf(run.mesh, this.rank);
      at[axis] = Math.max(0, Math.min(run.mesh[axis] - 1, at[axis] + by));
      this.choose(rankAt(run.mesh, at));
    };
    // The keys of views that show the mesh.
    this.keys = { ArrowLeft: move("dp", -1), ArrowRight: move("dp", 1), ArrowUp: move("pp", -1),
      ArrowDown: move("pp", 1), "[": move("tp", -1), "]": move("tp", 1) };
  }
  listen(changed) {
    this.listeners.push(changed);
    changed();
  }
  choose(rank) {
    this.rank = rank;
    for (const changed of this.listeners) changed();
  }
}

// The rank that computes most above the median of its stage; of a run without measures the first.
function slowest(run) {
  if (run.measures.length === 0) return run.ranks[0] ?? 0;
  const above = aboveStage(run.measures[0]);
  return run.ranks[above.reduce((most, value, index) => (value > above[most] ? index : most), 0)];
}

// Draws a run into the page, without its timeline. Returns the selection.
function drawRun(run) {
  const selection = new Selection(run);
  stepsView(run);
  curvesView(run);
  expertsView(run);
  rankMap(run, selection);
  meshMaps(run, selection);
  gridView(run, selection);
  idleView(run, selection);
  flameView(run, selection);
  const search = document.getElementById("search");
  search.hidden = run.ranks.length < 2;
  search.addEventListener("submit", (event) => {
    event.preventDefault();
    const rank = search.elements.rank.valueAsNumber;
    if (rank >= 0 && rank < run.world) selection.choose(rank);
  });
  return selection;
}

// Marks when what was drawn until now is shown.
async function shown(mark) {
  for (let frame = 0; frame < 2; ++frame) await new Promise(requestAnimationFrame);
  document.documentElement.dataset[mark] = Math.round(performance.now());
}

async function main() {
  const run = await loadRun(document), selection = drawRun(run);
  await shown("drawn_ms");
  if (document.readyState === "loading") await new Promise((done) => addEventListener("DOMContentLoaded", done));
  await loadTimeline(run, document);
  timelineView(run, selection);
  await shown("whole_ms");
}

main().catch((error) => {
  document.getElementById("problem").textContent = "This browser does not draw the charts: " + error.message;
});
