// The mesh in three dimensions: a plane a pipeline stage, on it dp to the right and tp to the back.
"use strict";

// The states of a rank in a run that hangs: tracepp/hang/hang.h, Cell.
const kCells = ["neither waits nor is suspected", "waits for others", "suspect", "no trace"];

function gridView(run, selection) {
  const { dp, pp, tp } = run.mesh;
  if (run.world === 1 || !(run.hang || (run.knows_mesh && run.ranks.length > 1))) return;
  const left = 60, top = 16;
  // The depth of a plane, and the distance from plane to plane.
  const deep = Math.max(10, Math.min(90, tp * 14)), slant = 0.8;
  const between = deep + Math.max(14, Math.min(40, 300 / pp));
  const above = run.measures.length === 0 ? null : aboveStage(run.measures[0]);
  const most = above === null ? 1 : above.reduce((a, b) => Math.max(a, Math.abs(b)), 0.02 * (run.usual_step_s || 1));
  const place = (width) => {
    const wide = Math.min(120, (width - left - 20 - deep * slant) / dp);
    return {
      wide,
      // A corner of a rank's cell: `u` and `v` from 0 to 1 within it.
      x: (at, u, v) => left + (at.dp + u) * wide + (at.tp + v) / tp * deep * slant,
      y: (at, u, v) => top + at.pp * between + deep - (at.tp + v) / tp * deep,
    };
  };
  const outline = (context, p, at) => {
    context.beginPath();
    context.moveTo(p.x(at, 0, 0), p.y(at, 0, 0));
    context.lineTo(p.x(at, 1, 0), p.y(at, 1, 0));
    context.lineTo(p.x(at, 1, 1), p.y(at, 1, 1));
    context.lineTo(p.x(at, 0, 1), p.y(at, 0, 1));
    context.closePath();
  };
  const cellColours = () => [theme("none"), "#d9a514", "#d62828", theme("page")];
  const view = new View("grid", top + pp * between + 14, (context, width) => {
    const p = place(width), colour = differenceColours(), ofState = cellColours();
    const shrink = Math.min(p.wide, deep / tp) > 5;
    for (let rank = 0; rank < run.world; ++rank) {
      const at = coordOf(run.mesh, rank), index = run.indexOf.get(rank);
      outline(context, p, at);
      if (run.hang && run.hang.cells.length > rank) context.fillStyle = ofState[run.hang.cells[rank]];
      else context.fillStyle = index === undefined || above === null ? theme("page") : colour(above[index] / most);
      context.fill();
      if (shrink) {
        context.strokeStyle = theme(index === undefined ? "line" : "page");
        context.lineWidth = 1;
        context.stroke();
      }
    }
    context.fillStyle = theme("quiet");
    context.textAlign = "right";
    for (let stage = 0; run.knows_mesh && stage < pp; ++stage) context.fillText("pp " + stage, left - 8, top + stage * between + deep - 6);
    context.textAlign = "left";
    context.fillText(run.knows_mesh ? `dp 0 to ${dp - 1} to the right, tp 0 to ${tp - 1} to the back`
      : `ranks 0 to ${dp - 1} to the right: how they lie on dp, pp and tp is not known`, left, top + pp * between);
    drawPeers(context, p);
    for (const mark of run.marks) {
      outline(context, p, coordOf(run.mesh, mark.rank));
      context.strokeStyle = theme("bad");
      context.lineWidth = 3;
      context.stroke();
    }
    const worst = run.marks[0];
    if (worst) label(context, p, worst.rank, `rank ${worst.rank}: ${worst.why}`, theme("bad"), width);
  });

  function label(context, p, rank, text, style, width) {
    const at = coordOf(run.mesh, rank), x = p.x(at, 1, 0) + 6, y = p.y(at, 1, 0) + 8;
    const wide = context.measureText(text).width, from = Math.min(x, width - wide - 4);
    context.fillStyle = theme("page");
    context.globalAlpha = 0.85;
    context.fillRect(from - 3, y - 8, wide + 6, 16);
    context.globalAlpha = 1;
    context.fillStyle = style;
    context.textAlign = "left";
    context.fillText(text, from, y);
  }

  // The selected rank's groups on each axis, and where activations and gradients go.
  function drawPeers(context, p) {
    const at = coordOf(run.mesh, selection.rank);
    const line = (axis, style) => {
      context.strokeStyle = style;
      context.lineWidth = 2;
      for (let i = 0; i < run.mesh[axis]; ++i) {
        outline(context, p, { ...at, [axis]: i });
        context.stroke();
      }
    };
    if (run.knows_mesh) for (const axis of ["dp", "tp", "pp"]) line(axis, kindColours[axis]);
    const middle = (stage, aside) => [p.x({ ...at, pp: stage }, 0.5, 0.5) + aside, p.y({ ...at, pp: stage }, 0.5, 0.5)];
    for (let stage = 0; stage + 1 < pp; ++stage) {
      context.strokeStyle = context.fillStyle = kindColours.forward;
      drawArrow(context, ...middle(stage, -4), ...middle(stage + 1, -4), 2);
      context.strokeStyle = context.fillStyle = kindColours.backward;
      drawArrow(context, ...middle(stage + 1, 4), ...middle(stage, 4), 2);
    }
    outline(context, p, at);
    context.strokeStyle = theme("ink");
    context.lineWidth = 3;
    context.stroke();
  }

  function tell() {
    const rank = selection.rank, at = coordOf(run.mesh, rank), index = run.indexOf.get(rank);
    const lines = [rankName(run, rank)];
    if (run.whyMarked.has(rank)) lines.push("marked: " + run.whyMarked.get(rank));
    if (run.hang && run.hang.cells.length > rank) lines.push("state: " + kCells[run.hang.cells[rank]]);
    if (index !== undefined) {
      if (run.hang) lines.push("last operation: " + run.hang.texts[run.hang.last[index]]);
      lines.push("ended: " + run.texts[run.endings[index]]);
      if (above !== null) {
        lines.push(`computes ${duration(run.measures[0].values[index])} a step, ` +
          `${above[index] < 0 ? "-" : "+"}${duration(Math.abs(above[index]))} against the median of its stage`);
      }
    }
    const stage = (by) => rankAt(run.mesh, { ...at, pp: at.pp + by });
    if (at.pp + 1 < pp) lines.push(`activations go on to rank ${stage(1)}`);
    if (at.pp > 0) lines.push(`gradients go back to rank ${stage(-1)}`);
    const peers = (axis, size) => {
      const list = Array.from({ length: Math.min(size, 12) }, (_, i) => rankAt(run.mesh, { ...at, [axis]: i }));
      return `${axis} group: ranks ${list.join(", ")}${size > list.length ? " and " + (size - list.length) + " more" : ""}`;
    };
    if (tp > 1) lines.push(peers("tp", tp));
    if (dp > 1 && run.knows_mesh) lines.push(peers("dp", dp));
    view.say(lines.join("\n"));
  }
  view.onPoint(() => {}, (px, py) => {
    const p = place(view.width);
    for (let stage = pp - 1; stage >= 0; --stage) {
      const depth = (top + stage * between + deep - py) / deep;  // 0 in front, 1 at the back
      if (depth < 0 || depth >= 1) continue;
      const d = Math.floor((px - left - depth * deep * slant) / p.wide);
      if (d >= 0 && d < dp) selection.choose(rankAt(run.mesh, { dp: d, pp: stage, tp: Math.floor(depth * tp) }));
    }
  });
  view.onKeys(selection.keys);
  selection.listen(() => { tell(); view.redraw(); });
}
