// The curves of runs beside each other: loss, step time, tokens a second. Colours that the colour-blind tell apart, and
// a dash for each run.
"use strict";

const kCurveColours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const kCurveDashes = [[], [7, 3], [2, 3], [9, 3, 2, 3]];

function curvesView(run) {
  const curves = run.curves.map((curve) => ({ name: curve.name, steps: run.column(curve.column + "step"),
    loss: run.column(curve.column + "loss"), step_s: run.column(curve.column + "step_s"),
    rate: run.column(curve.column + "rate") }));
  if (curves.length === 0) return;
  const count = (value) => Math.round(value).toLocaleString("en");
  const panels = [
    { of: "loss", title: "loss", text: (value) => value.toPrecision(4), fromZero: false },
    { of: "step_s", title: "step time", text: duration, fromZero: true },
    { of: "rate", title: "tokens/s", text: count, fromZero: true },
  ];
  // A few extreme values, as of a first step, do not set the scale.
  for (const panel of panels) {
    const all = curves.flatMap((curve) => Array.from(curve[panel.of]).filter(Number.isFinite)).sort((a, b) => a - b);
    panel.high = all[Math.min(all.length - 1, Math.floor(all.length * 0.995))] ?? 1;
    panel.low = panel.fromZero ? 0 : all[0] ?? 0;
    panel.high += (panel.high - panel.low || 1) * 0.05;
  }
  const left = 70, line = 18, legend = 8 + line * curves.length, tall = 120, between = 26;
  const firsts = curves.map((curve) => curve.steps[0]), lasts = curves.map((curve) => curve.steps[curve.steps.length - 1]);
  const low = Math.min(...firsts), high = Math.max(...lasts);
  const range = new Range(low, Math.max(high, low + 1), 2);
  let chosen = { curve: 0, index: -1 };
  const styleOf = (context, i) => {
    context.strokeStyle = context.fillStyle = kCurveColours[i % kCurveColours.length];
    context.setLineDash(kCurveDashes[i % kCurveDashes.length]);
    context.lineWidth = i === chosen.curve ? 2.5 : 1.5;
  };
  const view = new View("curves", legend + panels.length * (tall + between) + 24, (context, width) => {
    const x = (step) => left + (step - range.low) / (range.high - range.low) * (width - left);
    curves.forEach((curve, i) => {
      styleOf(context, i);
      context.beginPath();
      context.moveTo(8, 8 + line * i + 4);
      context.lineTo(52, 8 + line * i + 4);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = theme("ink");
      context.textAlign = "left";
      context.fillText(fitting(context, curve.name, width - left), left, 8 + line * i + 4);
    });
    panels.forEach((panel, row) => {
      const top = legend + between + row * (tall + between);
      const y = (value) => top + tall - (value - panel.low) / (panel.high - panel.low) * tall;
      context.strokeStyle = theme("line");
      context.lineWidth = 1;
      context.fillStyle = theme("quiet");
      context.textAlign = "left";
      context.fillText(panel.title, left, top - 10);
      context.textAlign = "right";
      for (const part of [0, 0.5, 1]) {
        const value = panel.low + part * (panel.high - panel.low);
        context.fillText(panel.text(value), left - 6, y(value));
        context.strokeRect(left, y(value), width - left, 0);
      }
      context.save();
      context.beginPath();
      context.rect(left, top - 2, width - left, tall + 4);
      context.clip();
      curves.forEach((curve, i) => {
        styleOf(context, i);
        context.beginPath();
        let draws = false; // where a value is missing the line has a gap
        curve.steps.forEach((step, at) => {
          const value = curve[panel.of][at];
          if (!Number.isFinite(value)) draws = false;
          else if (draws) context.lineTo(x(step), y(value));
          else { context.moveTo(x(step), y(value)); draws = true; }
        });
        context.stroke();
      });
      context.setLineDash([]);
      const { curve, index } = chosen;
      if (index >= 0 && Number.isFinite(curves[curve][panel.of][index])) {
        context.fillStyle = theme("ink");
        context.beginPath();
        context.arc(x(curves[curve].steps[index]), y(curves[curve][panel.of][index]), 4, 0, 7);
        context.fill();
      }
      context.restore();
    });
    context.fillStyle = theme("quiet");
    context.textAlign = "left";
    context.fillText("step " + Math.ceil(range.low), left, view.height - 6);
    context.textAlign = "right";
    context.fillText("step " + Math.floor(range.high), width - 4, view.height - 6);
  });
  // Chooses the point of a run that is nearest to a step.
  const nearest = (curve, step) => {
    const steps = curves[curve].steps;
    let best = 0;
    steps.forEach((at, i) => { if (Math.abs(at - step) < Math.abs(steps[best] - step)) best = i; });
    return best;
  };
  const choose = (curve, index) => {
    const of = curves[curve];
    chosen = { curve, index: Math.max(0, Math.min(of.steps.length - 1, index)) };
    const step = of.steps[chosen.index];
    const values = panels.filter((panel) => Number.isFinite(of[panel.of][chosen.index]))
      .map((panel) => `${panel.title} ${panel.text(of[panel.of][chosen.index])}`);
    view.say(`${of.name}, step ${step}: ${values.join(", ")}`);
    if (step < range.low || step > range.high)
      range.show(step - (range.high - range.low) / 2, range.high - range.low);
    view.redraw();
  };
  attachRange(view, range, left);
  const at = (px, py) => {
    const row = Math.floor((py - 2) / line);
    const curve = row >= 0 && row < curves.length ? row : chosen.curve; // a line of the legend
    choose(curve, nearest(curve, range.low + (px - left) / (view.width - left) * (range.high - range.low)));
  };
  const move = (by) => () => {
    const curve = (chosen.curve + by + curves.length) % curves.length;
    choose(curve, nearest(curve, curves[chosen.curve].steps[Math.max(0, chosen.index)]));
  };
  view.onPoint(() => {}, at);
  view.onKeys({ ArrowLeft: () => choose(chosen.curve, chosen.index - 1),
    ArrowRight: () => choose(chosen.curve, chosen.index + 1), ArrowUp: move(-1), ArrowDown: move(1) });
}
