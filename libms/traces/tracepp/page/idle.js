// Idle time of the selected rank by cause: a bar a step.
"use strict";

const kIdleColours = ["#d62828", "#e69f00", "#a16207", "#8b5fbf", "#cc79a7", "#0072b2", "#56b4e9", "#7d8590", "#2a9d8f",
  "#4f9d69", "#009e73", "#c4cad1"];

function idleView(run, selection) {
  if (!run.idle) return;
  const { causes } = run.idle, first = run.column("idle.first"), steps = run.column("idle.step");
  const length = run.column("idle.length"), seconds = run.column("idle.seconds");
  const most = seconds.reduce((high, _, i) => i % causes.length ? high
    : Math.max(high, causes.reduce((sum, _cause, c) => sum + seconds[i + c], 0)), 0);
  if (most === 0) return;
  const used = causes.map((name, c) => ({ name, c })).filter(({ c }) =>
    seconds.some((value, i) => i % causes.length === c && value > 0));
  const left = 72, line = 18, tall = 170, legend = 8 + line * Math.ceil(used.length / 4);
  let chosen = -1;
  const of = () => {
    const index = run.indexOf.get(selection.rank) ?? 0;
    return { from: first[index], count: first[index + 1] - first[index] };
  };
  const view = new View("idle", legend + tall + 34, (context, width) => {
    const { from, count } = of(), wide = (width - left) / Math.max(count, 1);
    used.forEach(({ name, c }, i) => {
      const x = left + (i % 4) * (width - left) / 4, y = 8 + line * Math.floor(i / 4);
      context.fillStyle = kIdleColours[c];
      context.fillRect(x, y - 5, 12, 10);
      context.fillStyle = theme("ink");
      context.textAlign = "left";
      context.fillText(name, x + 18, y);
    });
    const bottom = legend + 10 + tall;
    context.textAlign = "right";
    context.strokeStyle = theme("line");
    context.lineWidth = 1;
    for (const part of [0, 0.5, 1]) {
      context.fillStyle = theme("quiet");
      context.fillText(duration(most * part), left - 6, bottom - part * tall);
      context.strokeRect(left, bottom - part * tall, width - left, 0);
    }
    for (let s = 0; s < count; ++s) {
      let at = bottom;
      for (const { c } of used) {
        const high = seconds[(from + s) * causes.length + c] / most * tall;
        context.fillStyle = kIdleColours[c];
        context.fillRect(left + s * wide, at -= high, Math.max(1, Math.min(wide - 2, 80)), high);
      }
      if (s === chosen) {
        context.strokeStyle = theme("ink");
        context.lineWidth = 2;
        context.strokeRect(left + s * wide - 1, at - 1, Math.max(3, Math.min(wide - 2, 80) + 2), bottom - at + 2);
      }
      const every = Math.ceil(count / 10);
      if (s % every !== 0) continue;
      context.fillStyle = theme("quiet");
      context.textAlign = "left";
      context.fillText(steps[from + s] < 0 ? "all" : "step " + steps[from + s], left + s * wide, bottom + 12);
    }
  });
  const choose = (step) => {
    const { from, count } = of();
    if (count === 0) return view.say(rankName(run, selection.rank) + ": no finished step");
    chosen = Math.max(0, Math.min(count - 1, step));
    const at = from + chosen, parts = used.map(({ name, c }) => [name, seconds[at * causes.length + c]])
      .filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
    view.say(`${rankName(run, selection.rank)}, ${steps[at] < 0 ? "all" : "step " + steps[at]}: ` + (parts.length === 0 ? "not idle"
      : parts.map(([name, value]) => `${name} ${duration(value)} (${(100 * value / length[at]).toFixed(1)} %)`).join(", ")));
    view.redraw();
  };
  const at = (x) => choose(Math.floor((x - left) / (view.width - left) * of().count));
  view.onPoint(at, at);
  view.onKeys({ ArrowLeft: () => choose(chosen - 1), ArrowRight: () => choose(chosen + 1) });
  selection.listen(() => choose(Math.max(chosen, 0)));
}
