// No library, and nothing is fetched: the data is in the page. All files are one script,
// concatenated in the order of cmake/library.cmake.
"use strict";

// The page's data, and derived values: times, levels, edges with their times.
const D = JSON.parse(document.getElementById("data").textContent);
const LEVELS = D.machine.levels;  // slowest first
const kernels = D.kernels;
const byName = new Map(kernels.map((k, i) => [k.name, Object.assign(k, {id: i})]));
const codeNodes = [...document.querySelectorAll("script.code")];
const isDefinition = typeof D.definition === "string";
const isGpu = LEVELS.some((l) => l.name === "shared") || D.machine.target !== "cpu";

const sum = (list, f) => list.reduce((s, x) => s + f(x), 0);
const clamp = (x, lo, hi) => Math.max(lo, Math.min(hi, x));

// The measured time of a kernel's launch: the mean over its launches of their medians; or of their
// minimum times if the machine was so busy that medians measure other processes.
const BUSY = 1.3;
const measuredLaunches = D.measured ? D.measured.launches : [];
const isBusy = sum(measuredLaunches, (l) => l.us) > BUSY * sum(measuredLaunches, (l) => l.least_us);
for (const l of measuredLaunches) l.shown_us = isBusy ? l.least_us : l.us;
function takeMeasured() {
  const of = new Map();
  for (const l of measuredLaunches) {
    const m = of.get(l.kernel) || {us: 0, n: 0};
    m.us += l.shown_us;
    m.n++;
    of.set(l.kernel, m);
  }
  for (const k of kernels) {
    const m = of.get(k.name);
    k.measured = m ? m.us / m.n : k.measured_us || 0;
    k.us = k.measured || k.predicted_us;
    k.total = k.us * k.launches;
  }
}
takeMeasured();
const isMeasured = kernels.some((k) => k.measured > 0);
const total = sum(kernels, (k) => k.total) || 1;
const launches = D.launch_list.map((l, id) => ({
  ...l,
  id,
  k: byName.get(l.kernel),
  us: measuredLaunches[id] && measuredLaunches[id].kernel === l.kernel
    ? measuredLaunches[id].shown_us
    : byName.get(l.kernel).us,
}));
const peakUnit = (p) =>
  (p ? Math.min(p.all_flops_ns, p.unit_flops_ns * (isGpu ? 1e9 : D.threads)) : 0);
const bandwidth = (l) => Math.min(l.all_bytes_ns, l.unit_bytes_ns * (isGpu ? 1e9 : D.threads)) || 1;

// Many kernels of GPUs have fitted prices, which have no parts. What bounds these is told by the
// roofline: a launch, the arithmetic at its peak, or the tensors by memory, if one of them takes
// more than half of the time. Else the kernel waits: for loads, barriers and the last of its tiles.
function peakOf(k) {
  const some = new Set(k.edges.map((e) => e.dtype)),
        has = (...types) => types.some((t) => some.has(t));
  const name = has("f16", "bf16") ? "bf16" : has("f32") ? "f32" : has("i8", "u8") ? "int8" : "f32";
  return peakUnit(D.machine.peaks[name]) ||
    Math.max(...Object.values(D.machine.peaks).map(peakUnit));
}
function leastParts(k) {
  const memory = LEVELS[0];
  return [
    {name: "compute", us: k.flops / peakOf(k) / 1e3 || 0},
    {name: memory ? memory.name : "memory", us: memory ? k.bytes / bandwidth(memory) / 1e3 : 0},
    {name: "launch", us: D.machine.launch_ns / 1e3}
  ];
}
for (const k of kernels) {
  if (k.bound || !(k.us > 0)) continue;
  k.least = leastParts(k);
  const longest = k.least.reduce((a, b) => (b.us > a.us ? b : a));
  k.bound = 2 * longest.us > k.us ? longest.name : "latency";
}
const boundText = (k) => (k.bound ? `${k.least ? "≈ " : ""}${k.bound}` : "");

const levelOf = new Map(LEVELS.map((l, i) => [l.name, i]));
const colourOf = (name) => {
  const i = levelOf.get(name);
  const rank = i === undefined ? 0 : Math.round((i * 4) / Math.max(1, LEVELS.length - 1));
  return `var(--l${rank})`;
};

// The fastest shared cache that holds so many bytes: a tensor can stay there between two kernels.
const weightBytes =
  sum([...new Map(D.flows.filter((f) => f.from === -2).map((f) => [f.tensor, f])).values()],
    (f) => f.bytes);
function levelFor(bytes) {
  for (let i = LEVELS.length - 2; i > 0; i--) {
    const l = LEVELS[i];
    const units = isGpu ? D.machine.units : D.threads;
    if (l.explicit || (isGpu && l.sharing < D.machine.units)) continue;
    if (bytes <= l.capacity_bytes * l.usable * (l.sharing > 1 ? 1 : units)) return l;
  }
  return LEVELS[0] || {name: "memory", all_bytes_ns: 1, unit_bytes_ns: 1};
}

// All edges of the model with the least time to move them: bytes by the bandwidth of the level that
// they pass.
function makeEdges() {
  const out = [];
  for (const f of D.flows) {
    const level = f.from === -2 ? levelFor(Math.max(f.bytes, weightBytes)) : levelFor(f.bytes);
    const passes = f.from === -2 || f.from === -1 || f.to === -1 ? 1 : 2;  // written, and read
    f.level = level.name;
    f.us = (f.bytes * passes) / bandwidth(level) / 1e3;
    f.moved = f.bytes * passes;
    f.kind = f.from === -2 ? "weights"
      : f.from === -1      ? "input"
      : f.to === -1        ? "output"
                           : "between";
    out.push({
      kind: f.kind,
      tensor: f.tensor,
      dtype: f.dtype,
      shape: `(${f.shape.join(", ")})`,
      from: f.from >= 0 ? launches[f.from].kernel
        : f.from === -1 ? "input"
                        : "weights",
      to: f.to >= 0 ? launches[f.to].kernel : "output",
      level: f.level,
      bytes: f.bytes,
      moved: f.moved,
      us: f.us,
      n: 1,
      reason: f.reason,
      flow: f
    });
  }
  for (const k of kernels)
    for (const e of k.edges) {
      if (e.level === "memory") continue;
      const steps = e.moved.map((m) => {
        const i = levelOf.get(m.level);
        const bytes = m.read_bytes + m.written_bytes;
        return {
          level: m.level,
          bytes,
          us: i === undefined ? 0 : bytes / bandwidth(LEVELS[i]) / 1e3
        };
      });
      const at = levelOf.get(e.level);
      if (!steps.length)
        steps.push({
          level: e.level,
          bytes: 2 * e.bytes,
          us: at === undefined ? 0 : (2 * e.bytes) / bandwidth(LEVELS[at]) / 1e3
        });
      const slow = steps.reduce((a, b) => (b.us > a.us ? b : a));
      out.push({
        kind: "inside",
        tensor: e.tensor,
        dtype: e.dtype,
        shape: e.shape,
        from: `${k.name}: ${e.from}`,
        to: `${k.name}: ${e.to}`,
        level: e.level,
        bytes: e.bytes,
        moved: slow.bytes * k.launches,
        us: slow.us * k.launches,
        n: k.launches,
        kernel: k,
        box: e.box,
        reason: null
      });
    }
  return out;
}

// Edges of equal layers share a row.
function groupEdges(edges) {
  const groups = new Map();
  for (const e of edges) {
    const key = e.kind === "inside" ? `${e.from}|${e.to}|${e.tensor}`
                                    : `${e.kind}|${e.from}|${e.to}|${e.bytes}`;
    const g = groups.get(key);
    if (!g)
      groups.set(key, {...e});
    else {
      g.us += e.us;
      g.moved += e.moved;
      g.n += 1;
      g.reason = g.reason || e.reason;
    }
  }
  return [...groups.values()].sort((a, b) => b.us - a.us);
}
const edges = groupEdges(makeEdges());
const slowestEdge = edges.find((e) => e.kind === "between") || edges[0];
const byTime = [...kernels].sort((a, b) => b.total - a.total);

// Texts of a kernel's code, decompressed when they are first shown.
const codes = new Map();
async function codeOf(k) {
  if (codes.has(k.id)) return codes.get(k.id);
  const node = codeNodes[k.id];
  if (!node) return {texts: []};
  const bytes = Uint8Array.from(atob(node.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream();
  const plain = node.dataset.form === "deflate"
    ? stream.pipeThrough(new DecompressionStream("deflate"))
    : stream;
  const code = JSON.parse(await new Response(plain).text());
  for (const t of code.texts) {
    t.rows = t.text.split("\n");
    if (t.rows[t.rows.length - 1] === "") t.rows.pop();
    t.of = [];
    for (let i = 0; i < t.lines.length; i += 2)
      for (let n = 0; n < t.lines[i]; n++) t.of.push(t.lines[i + 1]);
  }
  codes.set(k.id, code);
  return code;
}
