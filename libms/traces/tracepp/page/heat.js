// The heat maps: what each rank spends more or less time on than its stage, and the mesh's cells, dp by pp.
"use strict";

// Rows are measures, columns are ranks; where ranks are narrower than a pixel, the largest difference among them shows.
function rankMap(run, selection) {
  const count = run.ranks.length;
  if (count < 2 || run.measures.length === 0) return;  // one rank has nothing to be compared with
  const left = 190, top = 20, row = 18, bottom = 18;
  const range = new Range(0, count, Math.min(4, count));
  const rows = run.measures.map((measure) => ({ measure, above: aboveStage(measure) }));
  const most = run.full_difference;
  const cellAt = (index) => (index - range.low) / (range.high - range.low);
  const view = new View("ranks", top + rows.length * row + bottom, (context, width, height) => {
    const colour = differenceColours();
    const x = (index) => left + cellAt(index) * (width - left);
    const wide = (width - left) / (range.high - range.low);
    const columns = Math.min(Math.ceil(range.high - range.low), Math.floor(width - left));
    rows.forEach(({ measure, above }, r) => {
      context.fillStyle = theme(measure.part ? "ink" : "quiet");
      context.textAlign = "right";
      context.fillText(measure.name, left - 8, top + r * row + row / 2, left - 12);
      for (let c = 0; c < columns; ++c) {
        const from = Math.floor(range.low + c * (range.high - range.low) / columns);
        const to = Math.max(from + 1, Math.floor(range.low + (c + 1) * (range.high - range.low) / columns));
        let worst = 0;
        for (let i = from; i < to && i < count; ++i) if (Math.abs(above[i]) > Math.abs(worst)) worst = above[i];
        context.fillStyle = colour(worst / most);
        context.fillRect(x(from), top + r * row, Math.max(1, x(to) - x(from) - (wide > 4 ? 1 : 0)), row - 1);
      }
    });
    context.fillStyle = theme("quiet");
    context.textAlign = "center";
    const every = Math.ceil((range.high - range.low) / 10);
    for (let i = Math.ceil(range.low / every) * every; i < Math.min(range.high, count); i += every)
      context.fillText("rank " + run.ranks[i], Math.min(Math.max(x(i) + wide / 2, left + 18), width - 34), height - 8);
    const bar = (rank, style, text) => {
      const index = run.indexOf.get(rank);
      if (index === undefined || index < range.low - 1 || index > range.high) return;
      context.strokeStyle = context.fillStyle = style;
      context.lineWidth = 2;
      context.strokeRect(x(index) - 1, top - 1, Math.max(wide, 2) + 1, rows.length * row + 1);
      context.textAlign = x(index) > width * 0.7 ? "right" : "left";
      context.fillText(text, x(index), 8);
    };
    bar(selection.rank, theme("ink"), run.whyMarked.has(selection.rank) ? "" : "rank " + selection.rank);
    const shown = run.marks.slice(0, 4);
    shown.forEach((mark) => bar(mark.rank, theme("bad"), mark === shown[0] ? `rank ${mark.rank}: ${mark.why}` : ""));
  });
  const tell = (index, r) => {
    if (index < 0 || index >= count) return;
    const parts = (r === null ? rows.filter(({ measure }) => measure.part) : [rows[r]]).map(({ measure, above }) =>
      `${measure.name} ${duration(measure.values[index])} (${above[index] < 0 ? "-" : "+"}` +
      `${duration(Math.abs(above[index]))})`);
    const why = run.whyMarked.get(run.ranks[index]);
    view.say(`${rankName(run, run.ranks[index])}${why ? ", " + why : ""}: in a step, ${parts.join(", ")}; ` +
      "in brackets, against the median of its stage");
  };
  const hit = (px, py) => [Math.floor(range.low + (px - left) / (view.width - left) * (range.high - range.low)),
    Math.floor((py - top) / row)];
  attachRange(view, range, left);
  view.onPoint((px, py) => {
    const [index, r] = hit(px, py);
    if (px >= left && r >= 0 && r < rows.length) tell(index, r);
  }, (px, py) => {
    const [index] = hit(px, py);
    if (px >= left && index >= 0 && index < count) selection.choose(run.ranks[index]);
  });
  const next = (by) => () => {
    const index = Math.max(0, Math.min(count - 1, (run.indexOf.get(selection.rank) ?? 0) + by));
    if (index < range.low || index >= range.high) range.show(index - (range.high - range.low) / 2, range.high - range.low);
    selection.choose(run.ranks[index]);
  };
  view.onKeys({ ArrowLeft: next(-1), ArrowRight: next(1) });
  selection.listen(() => { tell(run.indexOf.get(selection.rank) ?? -1, null); view.redraw(); });
}

// Three maps, dp by pp: seconds of a step in forwards, in backwards and waiting. A cell is its slowest tp rank.
function meshMaps(run, selection) {
  const { dp, pp } = run.mesh;
  const shown = run.maps;
  if (shown.length === 0 || run.ranks.length < 2 || !run.knows_mesh) return;
  const top = 22, gap = 24, left = 36;
  const cellHigh = Math.max(6, Math.min(28, Math.floor(200 / pp)));
  const box = (width, m) => ({ x: left + m * (width + gap) / shown.length,
    wide: (width + gap) / shown.length - gap - left });
  const view = new View("mesh", top + pp * cellHigh + 22, (context, width) => {
    const colour = differenceColours();
    shown.forEach((map, m) => {
      const { x, wide } = box(width, m);
      context.fillStyle = theme("ink");
      context.textAlign = "left";
      context.fillText(`${map.role}: ${duration(map.low)} to ${duration(map.high)}`, x, 9);
      const columns = Math.min(dp, Math.floor(wide));
      for (let stage = 0; stage < pp; ++stage) {
        for (let c = 0; c < columns; ++c) {
          const from = Math.floor(c * dp / columns), to = Math.floor((c + 1) * dp / columns);
          let value = NaN;
          for (let d = from; d < to; ++d) {
            const cell = map.cells[stage * dp + d];
            if (cell >= 0 && !(Math.abs(value - map.middle) >= Math.abs(cell - map.middle))) value = cell;
          }
          context.fillStyle = Number.isNaN(value) ? theme("page") : colour((value - map.middle) / map.full);
          const cellWide = wide / columns;
          context.fillRect(x + c * cellWide, top + stage * cellHigh, Math.max(1, cellWide - (cellWide > 4 ? 1 : 0)),
            cellHigh - 1);
        }
        if (pp <= 20) {
          context.fillStyle = theme("quiet");
          context.textAlign = "right";
          context.fillText("pp " + stage, x - 4, top + (stage + 0.5) * cellHigh, left - 4);
        }
      }
      context.fillStyle = theme("quiet");
      context.textAlign = "left";
      context.fillText(`dp 0 to ${dp - 1}`, x, top + pp * cellHigh + 10);
      const outline = (rank, style) => {
        const at = coordOf(run.mesh, rank);
        context.strokeStyle = style;
        context.lineWidth = 2;
        context.strokeRect(x + at.dp * wide / dp - 1, top + at.pp * cellHigh - 1, Math.max(3, wide / dp) + 1, cellHigh + 1);
      };
      outline(selection.rank, theme("ink"));
      run.marks.slice(0, 4).forEach((mark) => outline(mark.rank, theme("bad")));
    });
  });
  const tell = (at) => {
    const parts = shown.map((map) => [map.role, map.cells[at.pp * dp + at.dp]]).filter(([, value]) => value >= 0);
    view.say(`dp ${at.dp} pp ${at.pp}: ` + (parts.length === 0 ? "no trace"
      : parts.map(([role, value]) => `${role} ${duration(value)}`).join(", ") + " a step"));
  };
  const hit = (px, py) => {
    for (let m = 0; m < shown.length; ++m) {
      const { x, wide } = box(view.width, m);
      const at = { dp: Math.floor((px - x) / wide * dp), pp: Math.floor((py - top) / cellHigh), tp: 0 };
      if (at.dp >= 0 && at.dp < dp && at.pp >= 0 && at.pp < pp) return at;
    }
    return null;
  };
  view.onPoint((px, py) => { const at = hit(px, py); if (at) tell(at); },
    (px, py) => { const at = hit(px, py); if (at) selection.choose(rankAt(run.mesh, at)); });
  view.onKeys(selection.keys);
  selection.listen(() => { tell(coordOf(run.mesh, selection.rank)); view.redraw(); });
}
