// The chart of step times, with the steps from which on they change.
"use strict";

function stepsView(run) {
  const { numbers, seconds, events } = run.steps;
  if (numbers.length < 2) return;
  const left = 60, top = 24, bottom = 22;
  const range = new Range(0, numbers.length, 2);
  const sorted = [...seconds].sort((a, b) => a - b);
  const most = sorted[sorted.length - 1] * 1.05 || 1;
  let chosen = -1;
  const view = new View("steps", 220, (context, width, height) => {
    const x = (i) => left + (i + 0.5 - range.low) / (range.high - range.low) * (width - left);
    const y = (s) => height - bottom - s / most * (height - top - bottom);
    context.fillStyle = theme("quiet");
    context.textAlign = "right";
    context.strokeStyle = theme("line");
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      context.fillText(duration(most * part), left - 6, y(most * part));
      context.strokeRect(left, y(most * part), width - left, 0);
    }
    context.textAlign = "center";
    const every = Math.ceil((range.high - range.low) / 10);
    for (let i = Math.ceil(range.low / every) * every; i < range.high; i += every)
      context.fillText("step " + numbers[i], Math.min(x(i), width - 30), height - 10);
    context.strokeStyle = theme("accent");
    context.lineWidth = 1.5;
    context.beginPath();
    const first = Math.max(0, Math.floor(range.low)), last = Math.min(numbers.length, Math.ceil(range.high));
    for (let i = first; i < last; ++i) context.lineTo(x(i), y(seconds[i]));
    context.stroke();
    if (last - first < 120) {
      context.fillStyle = theme("accent");
      for (let i = first; i < last; ++i) context.fillRect(x(i) - 2, y(seconds[i]) - 2, 4, 4);
    }
    const rows = [[], [], []]; // of texts, as [from, to]: one that fits in none is told when its step is chosen
    for (const event of events) {
      const i = numbers.indexOf(event.step);
      if (i < first || i >= last) continue;
      context.fillStyle = context.strokeStyle = theme("bad");
      context.setLineDash([4, 3]);
      context.strokeRect(x(i), top - 6, 0, height - top - bottom + 6);
      context.setLineDash([]);
      const isRight = x(i) > width / 2, extent = context.measureText(event.text).width;
      const begin = isRight ? x(i) - 5 - extent : x(i) + 5;
      const row = rows.findIndex((texts) => texts.every(([from, to]) => begin > to || begin + extent < from));
      if (row < 0) continue;
      rows[row].push([begin, begin + extent + 8]);
      context.textAlign = "left";
      context.fillText(event.text, begin, 8 + row * 14);
    }
    if (chosen >= first && chosen < last) {
      context.fillStyle = theme("ink");
      context.beginPath();
      context.arc(x(chosen), y(seconds[chosen]), 5, 0, 7);
      context.fill();
    }
  });
  const choose = (i) => {
    chosen = Math.max(0, Math.min(numbers.length - 1, i));
    const about = events.filter((event) => event.step === numbers[chosen]).map((event) => event.text);
    view.say(`step ${numbers[chosen]}: ${duration(seconds[chosen])}${about.map((text) => "; " + text).join("")}`);
    if (chosen < range.low || chosen >= range.high)
      range.show(chosen - (range.high - range.low) / 2, range.high - range.low);
    view.redraw();
  };
  attachRange(view, range, left);
  const at = (px) => choose(Math.floor(range.low + (px - left) / (view.width - left) * (range.high - range.low)));
  view.onPoint(at, at);
  view.onKeys({ ArrowLeft: () => choose(chosen - 1), ArrowRight: () => choose(chosen + 1) });
}
