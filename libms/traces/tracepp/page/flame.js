// The flame graph of the selected rank's host: what its main thread was in, summed over all steps.
"use strict";

function flameView(run, selection) {
  if (!run.flame) return;
  const first = run.column("flame.first"), names = run.column("flame.name"), depths = run.column("flame.depth");
  const begin = run.column("flame.begin"), length = run.column("flame.length"), times = run.column("flame.times");
  const left = 4, row = 17;
  const nodes = () => {
    const index = run.indexOf.get(selection.rank) ?? 0;
    return { from: first[index], to: first[index + 1] };
  };
  const deepest = depths.reduce((most, depth) => Math.max(most, depth), 0);
  const whole = () => {
    const { from, to } = nodes();
    let end = 0;
    for (let n = from; n < to; ++n) end = Math.max(end, begin[n] + length[n]);
    return end || 1;
  };
  const range = new Range(0, whole(), whole() * 1e-6);
  let chosen = -1;
  const colour = (name) => kindColours[/^(nn\.Module|<built-in|.*\.py\()/.test(name) ? "python" : /^(cuda|cu[A-Z]|hip)/.test(name) ? "call"
    : /^(aten|autograd|c10d|.*Backward)/.test(name) ? "op" : "annotation"];
  const view = new View("flame", (deepest + 1) * row + 4, (context, width) => {
    const { from, to } = nodes(), scale = (width - left) / (range.high - range.low);
    for (let n = from; n < to; ++n) {
      const x0 = Math.max(left, left + (begin[n] - range.low) * scale);
      const x1 = Math.min(width, left + (begin[n] + length[n] - range.low) * scale);
      if (x1 - x0 < 0.5) continue;
      const name = run.flame.names[names[n]], y = depths[n] * row;
      context.fillStyle = colour(name);
      context.fillRect(x0, y, Math.max(1, x1 - x0 - 0.5), row - 1);
      if (n === chosen) {
        context.strokeStyle = theme("ink");
        context.lineWidth = 2;
        context.strokeRect(x0, y, x1 - x0, row - 1);
      }
      if (x1 - x0 < 40) continue;
      context.fillStyle = "#ffffff";
      context.textAlign = "left";
      context.fillText(fitting(context, name, x1 - x0 - 6), x0 + 3, y + row / 2);
    }
  });
  const tell = (n) => {
    if (n < 0) return;
    chosen = n;
    view.say(`${run.flame.names[names[n]]}: ${duration(length[n])} in ${times[n]} time${times[n] === 1 ? "" : "s"}, ` +
      `${(100 * length[n] / whole()).toFixed(1)} % of what is shown`);
    view.redraw();
  };
  const hit = (px, py) => {
    const { from, to } = nodes(), time = range.low + (px - left) / (view.width - left) * (range.high - range.low);
    for (let n = from; n < to; ++n)
      if (depths[n] === Math.floor(py / row) && begin[n] <= time && time < begin[n] + length[n]) return n;
    return -1;
  };
  attachRange(view, range, left);
  view.onPoint((x, y) => tell(hit(x, y)), (x, y) => tell(hit(x, y)));
  const move = (by) => () => {
    const { from, to } = nodes();
    if (to > from) tell(Math.max(from, Math.min(to - 1, (chosen < from || chosen >= to ? from : chosen) + by)));
  };
  view.onKeys({ ArrowLeft: move(-1), ArrowRight: move(1), ArrowUp: move(-1), ArrowDown: move(1) });
  selection.listen(() => {
    Object.assign(range, { max: whole(), least: whole() * 1e-6 });
    range.all();
    view.redraw();
  });
}
