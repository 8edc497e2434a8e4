// The load of experts, by layer and expert. The full colour is a quarter or less, or four times an even share or more.
"use strict";

function expertsView(run) {
  const experts = run.experts;
  if (!experts) return;
  const loads = run.column("experts"), count = experts.experts, layers = experts.layers;
  const left = 70, top = 8, row = Math.max(4, Math.min(18, Math.floor(480 / layers)));
  const range = new Range(0, count, Math.min(4, count));
  const part = (load) => Math.log2(Math.max(load, 1e-3)) / 2;
  let chosen = { layer: 0, expert: 0 };
  const view = new View("experts", top + layers * row + 22, (context, width, height) => {
    const colour = differenceColours();
    const x = (expert) => left + (expert - range.low) / (range.high - range.low) * (width - left);
    const columns = Math.min(Math.ceil(range.high - range.low), Math.floor(width - left));
    for (let layer = 0; layer < layers; ++layer) {
      for (let c = 0; c < columns; ++c) {
        const from = Math.floor(range.low + c * (range.high - range.low) / columns);
        const to = Math.max(from + 1, Math.floor(range.low + (c + 1) * (range.high - range.low) / columns));
        let worst = 0;
        for (let i = from; i < to && i < count; ++i) {
          const one = part(loads[layer * count + i]);
          if (Math.abs(one) > Math.abs(worst)) worst = one;
        }
        context.fillStyle = Number.isNaN(loads[layer * count]) ? theme("page") : colour(worst);
        const wide = x(to) - x(from);
        context.fillRect(x(from), top + layer * row, Math.max(1, wide - (wide > 4 ? 1 : 0)), row - (row > 4 ? 1 : 0));
      }
      if (layer % Math.ceil(16 / row) === 0) {
        context.fillStyle = theme("quiet");
        context.textAlign = "right";
        context.fillText("layer " + layer, left - 8, top + (layer + 0.5) * row, left - 12);
      }
    }
    context.fillStyle = theme("quiet");
    context.textAlign = "left";
    context.fillText("expert " + Math.floor(range.low), left, height - 8);
    context.textAlign = "right";
    context.fillText("expert " + (Math.ceil(range.high) - 1), width - 4, height - 8);
    context.strokeStyle = theme("ink");
    context.lineWidth = 2;
    const begin = Math.max(left, x(chosen.expert)), end = x(chosen.expert + 1);
    if (end > left && begin < width) context.strokeRect(begin, top + chosen.layer * row, Math.max(3, end - begin), row);
  });
  const tell = (layer, expert) => {
    const load = loads[layer * count + expert];
    view.say(Number.isNaN(load) ? `layer ${layer} is dense`
      : `layer ${layer}, expert ${expert}: ${load.toFixed(2)} of an even share of the tokens`);
  };
  const choose = (layer, expert) => {
    chosen = { layer: Math.max(0, Math.min(layers - 1, layer)), expert: Math.max(0, Math.min(count - 1, expert)) };
    if (chosen.expert < range.low || chosen.expert >= range.high)
      range.show(chosen.expert - (range.high - range.low) / 2, range.high - range.low);
    tell(chosen.layer, chosen.expert);
    view.redraw();
  };
  const hit = (act) => (px, py) => {
    const layer = Math.floor((py - top) / row);
    const expert = Math.floor(range.low + (px - left) / (view.width - left) * (range.high - range.low));
    if (px >= left && layer >= 0 && layer < layers && expert < count) act(layer, expert);
  };
  attachRange(view, range, left);
  view.onPoint(hit(tell), hit(choose));
  const move = (layer, expert) => () => choose(chosen.layer + layer, chosen.expert + expert);
  view.onKeys({ ArrowLeft: move(0, -1), ArrowRight: move(0, 1), ArrowUp: move(-1, 0), ArrowDown: move(1, 0) });
  tell(0, 0);
}
