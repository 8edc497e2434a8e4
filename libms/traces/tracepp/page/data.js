// The data of the page: a JSON document, and columns of numbers that are packed and compressed.
"use strict";

// Returns a function of a column's name that returns its typed array, from an element of packed columns.
async function unpack(element, columns) {
  const characters = atob(element.textContent), packed = new Uint8Array(characters.length);
  for (let i = 0; i < packed.length; ++i) packed[i] = characters.charCodeAt(i);
  const stream = new DecompressionStream("gzip"), writer = stream.writable.getWriter();
  writer.write(packed);
  writer.close();
  const bytes = await new Response(stream.readable).arrayBuffer();
  const types = { f64: Float64Array, f32: Float32Array, i32: Int32Array, u32: Uint32Array, u16: Uint16Array,
    u8: Uint8Array };
  return (name) => {
    const entry = columns[name];
    return entry ? new types[entry.type](bytes, entry.at, entry.count) : null;
  };
}

// Returns the run of a page: its JSON document, with `column(name)` for its typed arrays. Those of the timeline come
// later: loadTimeline().
async function loadRun(page) {
  const run = JSON.parse(page.getElementById("run").textContent);
  run.column = await unpack(page.getElementById("numbers"), run.columns);
  run.ranks = run.column("ranks");
  run.hosts = run.column("hosts");
  run.endings = run.column("endings");
  for (const measure of run.measures) {
    measure.values = run.column(measure.column);
    measure.medians = run.column(measure.column + ".medians");
  }
  if (run.hang) {
    run.hang.last = run.column("last");
    run.hang.cells = run.column("cells");
  }
  for (const map of run.maps) map.cells = run.column("cells." + map.role);
  run.world = run.mesh.dp * run.mesh.pp * run.mesh.tp;
  run.indexOf = new Map(Array.from(run.ranks, (rank, index) => [rank, index]));
  run.whyMarked = new Map(run.marks.map((mark) => [mark.rank, mark.why]));
  return run;
}

// The whole page must be there.
async function loadTimeline(run, page) {
  run.timeline.column = await unpack(page.getElementById("events"), run.timeline.columns);
}

// tp is the fastest axis, then dp, then pp: mesh/mesh.h.
function coordOf(mesh, rank) {
  return { tp: rank % mesh.tp, dp: Math.floor(rank / mesh.tp) % mesh.dp, pp: Math.floor(rank / (mesh.tp * mesh.dp)) };
}
const rankAt = (mesh, at) => (at.pp * mesh.dp + at.dp) * mesh.tp + at.tp;

// Returns a measure's values less the median of the ranks of the same stage, whose work is the same.
const aboveStage = (measure) => measure.values.map((value, index) => value - measure.medians[index]);

// Where the mesh is not known a place has no name: all ranks are laid out as one row.
const placeName = (run, at) => (run.knows_mesh ? `dp ${at.dp} pp ${at.pp} tp ${at.tp}` : "");

function rankName(run, rank) {
  const index = run.indexOf.get(rank);
  const host = index === undefined ? "no trace" : run.texts[run.hosts[index]];
  const where = [placeName(run, coordOf(run.mesh, rank)), host].filter((part) => part).join(", ");
  return `rank ${rank}` + (where ? ` (${where})` : "");
}

// "1.23 s", "45.6 ms", "7.8 \u00b5s", "9.1 ns".
function duration(seconds) {
  const size = Math.abs(seconds);
  if (size >= 1) return seconds.toPrecision(4) + " s";
  if (size >= 1e-3) return (seconds * 1e3).toPrecision(4) + " ms";
  return size === 0 || size >= 9.995e-7 ? (seconds * 1e6).toPrecision(3) + " \u00b5s" : (seconds * 1e9).toPrecision(3) + " ns";
}
