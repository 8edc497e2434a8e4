// The timeline of chosen ranks: a row a track, an arrow from each send to its receive, and from the chosen event's
// launches to their kernels.
"use strict";

function timelineView(run, selection) {
  const { infos } = run.timeline;
  const isMarked = (track) => run.whyMarked.has(run.ranks[track.rank]);
  const tracks = [...run.timeline.tracks.filter(isMarked), ...run.timeline.tracks.filter((track) => !isMarked(track))];
  if (tracks.length === 0) return;
  const { column } = run.timeline;
  const begin = column("event.begin"), length = column("event.length"), info = column("event.info");
  const microbatch = column("event.microbatch"), stepOf = column("event.step"), open = column("event.open");
  const arrows = column("arrows"), launches = column("launches");
  const kMostArrows = 1500;  // more than that hide the events
  const kNoMicrobatch = 0xffff;
  const left = 230, top = 22, row = tracks.length > 120 ? 9 : 14;

  // Where each event lies, and how far the events of a track up to each one reach: they nest.
  const trackOf = new Uint32Array(begin.length), reach = new Float64Array(begin.length);
  let last = 0;
  tracks.forEach((track, t) => {
    let far = -Infinity;
    for (let e = track.first; e < track.first + track.count; ++e) {
      trackOf[e] = t;
      reach[e] = far = Math.max(far, begin[e] + length[e]);
    }
    last = Math.max(last, far);
  });
  const firstAfter = (track, time) => {  // the first event of a track that ends after `time`, or an ancestor's
    let low = track.first, high = track.first + track.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (reach[middle] > time) high = middle; else low = middle + 1;
    }
    return low;
  };
  const range = new Range(0, last || 1, Math.max(last * 1e-9, 1e-8));
  showStep(run.marks[0]?.step ?? -1);
  range.moved = false;
  let chosen = -1;
  let launched = [];  // of the chosen event: [call, kernel]
  const y = (t) => top + t * row;

  const view = new View("timeline", top + tracks.length * row + 4, (context, width) => {
    const scale = (width - left) / (range.high - range.low);
    const x = (time) => left + (time - range.low) * scale;
    context.fillStyle = theme("quiet");
    context.textAlign = "center";
    for (let i = 0; i <= 6; ++i) {
      const time = range.low + (range.high - range.low) * i / 6;
      context.fillText("+" + duration(time), Math.min(Math.max(x(time), left + 24), width - 30), 9);
    }
    tracks.forEach((track, t) => {
      const rank = run.ranks[track.rank];
      if (t === 0 || tracks[t - 1].rank !== track.rank) {
        context.fillStyle = theme("line");
        context.fillRect(0, y(t) - 1, width, 1);
        context.fillStyle = theme(run.whyMarked.has(rank) ? "bad" : "ink");
        context.textAlign = "left";
        context.fillText(`rank ${rank}`, 0, y(t) + row / 2);
      }
      if (row > 10) {
        context.fillStyle = theme("quiet");
        context.textAlign = "right";
        context.fillText(fitting(context, track.name, 150), left - 6, y(t) + row / 2);
      }
      let narrow = -1;
      for (let e = firstAfter(track, range.low); e < track.first + track.count && begin[e] < range.high; ++e) {
        const from = Math.max(left, x(begin[e])), to = Math.min(width, x(begin[e] + length[e]));
        if (to < left) continue;
        const wide = to - from;
        if (wide < 1) {
          if (Math.floor(from) === narrow) continue;
          narrow = Math.floor(from);
        }
        context.fillStyle = colourOf(infos[info[e]]);
        context.fillRect(from, y(t), Math.max(1, wide - (wide > 3 ? 0.5 : 0)), row - 2);
        if (open[e]) {
          context.strokeStyle = theme("bad");
          context.lineWidth = 2;
          context.strokeRect(from, y(t), Math.max(1, wide), row - 2);
        }
        if (wide > 50 && row > 10) {
          context.fillStyle = "#ffffff";
          context.textAlign = "left";
          context.fillText(fitting(context, nameOf(e), wide - 6, false), from + 3, y(t) + row / 2 - 1);
        }
      }
    });
    drawArrows(context, x, width);
    drawLaunches(context, x, width);
    if (chosen >= 0) {
      context.strokeStyle = theme("ink");
      context.lineWidth = 2;
      const from = Math.max(left, x(begin[chosen]));
      context.strokeRect(from, y(trackOf[chosen]) - 1, Math.max(2, Math.min(width, x(begin[chosen] + length[chosen])) - from),
        row);
    }
  });

  function drawArrows(context, x, width) {
    const seen = [];
    for (let a = 0; a < arrows.length; a += 2) {
      const send = arrows[a], receive = arrows[a + 1];
      const from = begin[send], to = begin[receive] + length[receive];
      const isChosen = send === chosen || receive === chosen;
      if (isChosen || (Math.max(from, to) > range.low && Math.min(from, to) < range.high && seen.length <= kMostArrows))
        seen.push([send, receive, isChosen]);
    }
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, tracks.length * row);
    context.clip();
    for (const [send, receive, isChosen] of seen) {
      if (seen.length > kMostArrows && !isChosen) continue;
      const x0 = x(begin[send]), y0 = y(trackOf[send]) + row / 2 - 1;
      const x1 = x(begin[receive] + length[receive]), y1 = y(trackOf[receive]) + row / 2 - 1;
      context.strokeStyle = context.fillStyle = theme(isChosen ? "bad" : "ink");
      context.globalAlpha = isChosen ? 1 : 0.45;
      drawArrow(context, x0, y0, x1, y1, isChosen ? 2 : 1);
    }
    context.restore();
  }

  // A kernel's launch; of an event of the host, all launches inside it.
  function launchesOf(e) {
    const pairs = [], end = begin[e] + length[e];
    for (let l = 0; l < launches.length; l += 2) {
      const call = launches[l], work = launches[l + 1];
      if (work === e || (trackOf[call] === trackOf[e] && begin[call] >= begin[e] && begin[call] <= end))
        pairs.push([call, work]);
    }
    return pairs;
  }
  function drawLaunches(context, x, width) {
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, tracks.length * row);
    context.clip();
    context.strokeStyle = context.fillStyle = theme("accent");
    for (const [call, work] of launched.slice(0, kMostArrows)) {
      context.globalAlpha = launched.length > 40 ? 0.35 : 0.9;
      const far = trackOf[work] > trackOf[call] ? [row - 2, 0] : [0, row - 2];
      drawArrow(context, x(begin[call]), y(trackOf[call]) + far[0], x(begin[work]), y(trackOf[work]) + far[1], 1);
      context.globalAlpha = 1;
      context.lineWidth = 2;
      context.strokeRect(x(begin[work]), y(trackOf[work]) - 1, Math.max(2, length[work] * (width - left) / (range.high - range.low)), row);
    }
    context.restore();
  }
  // Returns the names of the events around a call, the innermost first.
  function around(call) {
    const track = tracks[trackOf[call]], names = [];
    for (let e = track.first; e < call; ++e)
      if (begin[e] + length[e] >= begin[call] + length[call]) names.unshift(nameOf(e));
    return names.slice(0, 6);
  }
  function launchText(e) {
    if (launched.length === 1 && launched[0][1] === e) {
      const call = launched[0][0], wait = begin[e] - begin[call] - length[call];
      return `\nlaunched ${duration(Math.max(0, wait))} before by ${[nameOf(call), ...around(call)].join(" in ")}`;
    }
    if (launched.length === 0) return "";
    const sum = launched.reduce((total, [, work]) => total + length[work], 0);
    return `\nlaunched ${launched.length} kernel${launched.length > 1 ? "s and copies" : ""} of ${duration(sum)}`;
  }

  // Shows a step of the first rank; where it has no such step, its newest.
  function showStep(step) {
    const events = [];
    for (const track of tracks.filter(({ rank }) => rank === tracks[0].rank))
      for (let e = track.first; e < track.first + track.count; ++e) events.push(e);
    const newest = events.reduce((most, e) => Math.max(most, stepOf[e]), -1);
    const wanted = step >= 0 && events.some((e) => stepOf[e] === step) ? step : newest;
    let low = Infinity, high = -Infinity;
    for (const e of events.filter((event) => stepOf[event] === wanted)) {
      low = Math.min(low, begin[e]);
      high = Math.max(high, begin[e] + length[e]);
    }
    range.show(low - 0.05 * (high - low), Math.max(range.least, 1.1 * (high - low)));
  }

  function nameOf(e) {
    return infos[info[e]].name + (microbatch[e] === kNoMicrobatch ? "" : " m" + microbatch[e]);
  }
  function choose(e, follow) {
    if (e < 0) return;
    chosen = e;
    launched = launchesOf(e);
    const of = infos[info[e]];
    const details = [stepOf[e] >= 0 ? "step " + stepOf[e] : "", of.group ? "group " + of.group : "",
      of.bytes === undefined ? "" : of.bytes + " bytes",
      open[e] ? "never ended" : duration(length[e])].filter((text) => text !== "");
    view.say(`${rankName(run, run.ranks[tracks[trackOf[e]].rank])}: ${nameOf(e)}, ${details.join(", ")}, at +${duration(begin[e])}${launchText(e)}`);
    const middle = begin[e] + length[e] / 2;
    if (follow && (middle < range.low || middle > range.high))
      range.show(middle - (range.high - range.low) / 2, range.high - range.low);
    view.redraw();
  }
  // The event of a track at a time: the innermost, and on empty ground the nearest to the left.
  function eventAt(t, time) {
    const track = tracks[t];
    let found = -1;
    for (let e = track.first; e < track.first + track.count && begin[e] <= time; ++e)
      if (begin[e] + length[e] >= time || found < 0 || begin[found] + length[found] < time) found = e;
    return found;
  }
  const hit = (px, py) => {
    const t = Math.floor((py - top) / row);
    if (px < left || t < 0 || t >= tracks.length) return -1;
    return eventAt(t, range.low + (px - left) / (view.width - left) * (range.high - range.low));
  };
  attachRange(view, range, left);
  view.onPoint(() => {}, (px, py) => {
    const e = hit(px, py);
    if (e < 0) return;
    choose(e, false);
    selection.choose(run.ranks[tracks[trackOf[e]].rank]);
  });
  const move = (by) => () => {
    const track = tracks[chosen < 0 ? 0 : trackOf[chosen]];
    const at = chosen < 0 ? track.first : chosen + by;
    choose(Math.max(track.first, Math.min(track.first + track.count - 1, at)), true);
  };
  const climb = (by) => () => {
    const t = chosen < 0 ? 0 : Math.max(0, Math.min(tracks.length - 1, trackOf[chosen] + by));
    const e = eventAt(t, chosen < 0 ? range.low : begin[chosen]);
    choose(e < 0 ? tracks[t].first : e, true);
  };
  view.onKeys({ ArrowLeft: move(-1), ArrowRight: move(1), ArrowUp: climb(-1), ArrowDown: climb(1) });
}

function drawArrow(context, x0, y0, x1, y1, wide) {
  const angle = Math.atan2(y1 - y0, x1 - x0), head = 4 + 2 * wide;
  context.lineWidth = wide;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - head * Math.cos(angle - 0.4), y1 - head * Math.sin(angle - 0.4));
  context.lineTo(x1 - head * Math.cos(angle + 0.4), y1 - head * Math.sin(angle + 0.4));
  context.fill();
}
