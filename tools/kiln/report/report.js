"use strict";
// The report's page. Sections: the data and what follows from it; small parts; a section a view;
// search, keys and the theme. No library, and nothing is fetched: the data is in the page.

// --- the data ----------------------------------------------------------------------------------

const D = JSON.parse(document.getElementById("data").textContent);
const LEVELS = D.machine.levels; // slowest first
const kernels = D.kernels;
const byName = new Map(kernels.map((k, i) => [k.name, Object.assign(k, { id: i })]));
const codeNodes = [...document.querySelectorAll("script.code")];
const isDefinition = typeof D.definition === "string";
const isGpu = LEVELS.some((l) => l.name === "shared") || D.machine.target !== "cpu";

const sum = (list, f) => list.reduce((s, x) => s + f(x), 0);
const clamp = (x, lo, hi) => Math.max(lo, Math.min(hi, x));

// What a kernel's launch took where it was measured: the mean over its launches of their medians; of
// their least times where the machine was so busy that medians say what others did.
const BUSY = 1.3;
const measuredLaunches = D.measured ? D.measured.launches : [];
const isBusy = sum(measuredLaunches, (l) => l.us) > BUSY * sum(measuredLaunches, (l) => l.least_us);
for (const l of measuredLaunches) l.shown_us = isBusy ? l.least_us : l.us;
function takeMeasured() {
  const of = new Map();
  for (const l of measuredLaunches) {
    const m = of.get(l.kernel) || { us: 0, n: 0 };
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
  ...l, id, k: byName.get(l.kernel),
  us: measuredLaunches[id] && measuredLaunches[id].kernel === l.kernel ? measuredLaunches[id].shown_us
    : byName.get(l.kernel).us,
}));
const peakUnit = (p) => (p ? Math.min(p.all_flops_ns, p.unit_flops_ns * (isGpu ? 1e9 : D.threads)) : 0);
const bandwidth = (l) => Math.min(l.all_bytes_ns, l.unit_bytes_ns * (isGpu ? 1e9 : D.threads)) || 1;
const levelOf = new Map(LEVELS.map((l, i) => [l.name, i]));
const colourOf = (name) => {
  const i = levelOf.get(name);
  const rank = i === undefined ? 0 : Math.round((i * 4) / Math.max(1, LEVELS.length - 1));
  return `var(--l${rank})`;
};

// The fastest cache that holds so many bytes, shared by all: where a tensor can stay between two
// kernels.
const weightBytes = sum([...new Map(D.flows.filter((f) => f.from === -2).map((f) => [f.tensor, f])).values()],
  (f) => f.bytes);
function levelFor(bytes) {
  for (let i = LEVELS.length - 2; i > 0; i--) {
    const l = LEVELS[i];
    const units = isGpu ? D.machine.units : D.threads;
    if (l.explicit || (isGpu && l.sharing < D.machine.units)) continue;
    if (bytes <= l.capacity_bytes * l.usable * (l.sharing > 1 ? 1 : units)) return l;
  }
  return LEVELS[0] || { name: "memory", all_bytes_ns: 1, unit_bytes_ns: 1 };
}

// All edges of the model with what moving them takes at the least: bytes by the bandwidth of the
// level that they pass.
function makeEdges() {
  const out = [];
  for (const f of D.flows) {
    const level = f.from === -2 ? levelFor(Math.max(f.bytes, weightBytes)) : levelFor(f.bytes);
    const passes = f.from === -2 || f.from === -1 || f.to === -1 ? 1 : 2; // written, and read
    f.level = level.name;
    f.us = (f.bytes * passes) / bandwidth(level) / 1e3;
    f.moved = f.bytes * passes;
    f.kind = f.from === -2 ? "weights" : f.from === -1 ? "input" : f.to === -1 ? "output" : "between";
    out.push({ kind: f.kind, tensor: f.tensor, dtype: f.dtype, shape: `(${f.shape.join(", ")})`,
      from: f.from >= 0 ? launches[f.from].kernel : f.from === -1 ? "input" : "weights",
      to: f.to >= 0 ? launches[f.to].kernel : "output", level: f.level, bytes: f.bytes,
      moved: f.moved, us: f.us, n: 1, reason: f.reason, flow: f });
  }
  for (const k of kernels)
    for (const e of k.edges) {
      if (e.level === "memory") continue;
      const steps = e.moved.map((m) => {
        const i = levelOf.get(m.level);
        const bytes = m.read_bytes + m.written_bytes;
        return { level: m.level, bytes, us: i === undefined ? 0 : bytes / bandwidth(LEVELS[i]) / 1e3 };
      });
      const at = levelOf.get(e.level);
      if (!steps.length)
        steps.push({ level: e.level, bytes: 2 * e.bytes,
          us: at === undefined ? 0 : (2 * e.bytes) / bandwidth(LEVELS[at]) / 1e3 });
      const slow = steps.reduce((a, b) => (b.us > a.us ? b : a));
      out.push({ kind: "inside", tensor: e.tensor, dtype: e.dtype, shape: e.shape, from: `${k.name}: ${e.from}`,
        to: `${k.name}: ${e.to}`, level: e.level, bytes: e.bytes, moved: slow.bytes * k.launches,
        us: slow.us * k.launches, n: k.launches, kernel: k, box: e.box, reason: null });
    }
  return out;
}

// Edges of equal layers are one row.
function groupEdges(edges) {
  const groups = new Map();
  for (const e of edges) {
    const key = e.kind === "inside" ? `${e.from}|${e.to}|${e.tensor}` : `${e.kind}|${e.from}|${e.to}|${e.bytes}`;
    const g = groups.get(key);
    if (!g) groups.set(key, { ...e });
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

// Texts of a kernel's code, unpacked when they are first looked at.
const codes = new Map();
async function codeOf(k) {
  if (codes.has(k.id)) return codes.get(k.id);
  const node = codeNodes[k.id];
  if (!node) return { texts: [] };
  const bytes = Uint8Array.from(atob(node.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream();
  const plain = node.dataset.form === "deflate" ? stream.pipeThrough(new DecompressionStream("deflate")) : stream;
  const code = JSON.parse(await new Response(plain).text());
  for (const t of code.texts) {
    t.rows = t.text.split("\n");
    if (t.rows[t.rows.length - 1] === "") t.rows.pop();
    t.of = [];
    for (let i = 0; i < t.lines.length; i += 2) for (let n = 0; n < t.lines[i]; n++) t.of.push(t.lines[i + 1]);
  }
  codes.set(k.id, code);
  return code;
}

// --- small parts -------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  const svg = el.svg.has(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    const isState = key.startsWith("aria-"); // whose false is said
    if (value === null || value === undefined || (value === false && !isState)) continue;
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (key === "style") e.style.cssText = value;
    else e.setAttribute(key, value === true && !isState ? "" : value);
  }
  for (const c of children.flat())
    if (c !== null && c !== undefined && c !== false) e.append(c);
  return e;
}
el.svg = new Set(["svg", "g", "rect", "path", "text", "line", "circle", "title", "polyline"]);

const $ = (id) => document.getElementById(id);
function fill(id, ...children) {
  const e = typeof id === "string" ? $(id) : id;
  e.replaceChildren(...children.flat().filter(Boolean));
  return e;
}
function bytesText(b) {
  if (b < 1e3) return `${Math.round(b)} B`;
  if (b < 1e6) return `${(b / 1e3).toFixed(b < 1e4 ? 1 : 0)} kB`;
  if (b < 1e9) return `${(b / 1e6).toFixed(b < 1e7 ? 2 : 1)} MB`;
  return `${(b / 1e9).toFixed(2)} GB`;
}
function timeText(us) {
  if (!us) return "–";
  if (us < 1) return `${us.toFixed(2)} µs`;
  if (us < 1e3) return `${us.toFixed(us < 100 ? 1 : 0)} µs`;
  return us < 1e6 ? `${(us / 1e3).toFixed(us < 1e4 ? 2 : 1)} ms` : `${(us / 1e6).toFixed(2)} s`;
}
const percent = (x) => (x >= 0.0995 ? `${Math.round(100 * x)} %` : `${(100 * x).toFixed(1)} %`);
const speedText = (gflops) => (gflops < 1e4 ? `${gflops.toFixed(gflops < 1e3 ? 1 : 0)} GFLOP/s` : `${(gflops / 1e3).toFixed(1)} TFLOP/s`);
const rate = (flops, us) => (us > 0 && flops > 0 ? speedText(flops / us / 1e3) : "–");
const tail = (text, n) => (text.length <= n ? text : `…${text.slice(text.length - n + 1)}`);
const head = (text, n) => (text.length <= n ? text : `${text.slice(0, n - 1)}…`);
const chip = (level, text) => el("span", { class: "chip", style: `--c:${colourOf(level)}` }, text || level);
const kernelLink = (name) =>
  byName.has(name) ? el("a", { href: `#kernels/${encodeURIComponent(name)}` }, name) : name;
function track(share, second) {
  return el("div", { class: "track", "aria-hidden": "true" },
    el("i", { style: `width:${(100 * clamp(share, 0, 1)).toFixed(2)}%` }),
    second > 0 ? el("i", { class: "second", style: `left:${(100 * clamp(second, 0, 1)).toFixed(2)}%` }) : null);
}
function go(hash) {
  if (location.hash === hash) show();
  else location.hash = hash;
}
// A row of a table that leads somewhere, by mouse and by keys.
function leads(hash) {
  return { "data-go": hash, tabindex: 0, onclick: () => go(hash),
    onkeydown: (e) => { if (e.key === "Enter") go(hash); } };
}
const edgeHash = (e) =>
  e.kind === "inside" ? `#kernels/${encodeURIComponent(e.kernel.name)}` : `#graph/${D.flows.indexOf(e.flow)}`;

const tip = $("tip");
function showTip(event, ...children) {
  fill(tip, ...children);
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10}px`;
}
const hideTip = () => { tip.hidden = true; };

// A list that only has nodes for what is seen of it.
class Rows {
  constructor(host, height, render) {
    Object.assign(this, { host, height, render, items: [], shown: new Map(), space: el("div", {}) });
    host.replaceChildren(this.space);
    host.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(host);
  }
  set(items) {
    this.items = items;
    this.space.style.height = `${items.length * this.height}px`;
    this.again();
  }
  again() {
    for (const node of this.shown.values()) node.remove();
    this.shown.clear();
    this.draw();
  }
  draw() {
    const first = Math.max(0, Math.floor(this.host.scrollTop / this.height) - 8);
    const last = Math.min(this.items.length,
      Math.ceil((this.host.scrollTop + this.host.clientHeight) / this.height) + 8);
    for (const [i, node] of this.shown)
      if (i < first || i >= last) { node.remove(); this.shown.delete(i); }
    for (let i = first; i < last; i++) {
      if (this.shown.has(i)) continue;
      const node = this.render(this.items[i], i);
      node.style.top = `${i * this.height}px`;
      this.host.append(node);
      this.shown.set(i, node);
    }
  }
  reveal(i) {
    const y = i * this.height;
    if (y < this.host.scrollTop + this.height || y > this.host.scrollTop + this.host.clientHeight - 2 * this.height)
      this.host.scrollTop = Math.max(0, y - this.host.clientHeight / 3);
    this.draw();
  }
}

// Words of a line of code, coloured.
const WORDS = /(\/\/.*|#.*|;.*|"[^"]*")|\b(kernel|param|workspace|shared|local|register|for|if|alloc|instr|prefetch|parallel|vectorized|unrolled|block\.[xyz]|thread\.[xyz]|where|tensor|pack|define|load|store|br|phi|call|ret|getelementptr|fadd|fmul|fma|void|float|double|int|const|extern|__global__|return|split|reorder|vectorize|unroll|tile|cache_write|compute_at|tensorize|merge|bind|stage)\b|(\b\d[\w.]*\b)/g;
function coloured(text, kind) {
  const out = [];
  let from = 0;
  for (const m of text.matchAll(WORDS)) {
    if (m[1] && (m[1][0] === "#" || m[1][0] === ";") && !(kind === "asm" || kind === "llvm" || kind === "script")) continue;
    if (m[1] && m[1][0] === ";" && kind !== "llvm") continue;
    if (m.index > from) out.push(text.slice(from, m.index));
    out.push(el("span", { class: m[1] ? "com" : m[2] ? "kw" : "num" }, m[0]));
    from = m.index + m[0].length;
  }
  out.push(text.slice(from));
  return out;
}

// --- overview ----------------------------------------------------------------------------------

function fact(value, of) {
  return el("div", { class: "fact" }, el("b", {}, value), el("span", {}, of));
}

function facts() {
  const out = [fact(timeText(total), isMeasured ? "measured, sum of kernels" : "predicted a run")];
  const predicted = sum(kernels, (k) => k.predicted_us * k.launches);
  if (isMeasured && predicted) out.push(fact(timeText(predicted), "predicted"));
  if (D.measured) out.push(fact(`${D.measured.median_ms.toFixed(2)} ms`, `median of ${D.measured.runs} runs, the least ${D.measured.least_ms.toFixed(2)} ms`));
  out.push(fact(String(D.launches), `launches of ${kernels.length} kernels`));
  const flops = sum(kernels, (k) => k.flops * k.launches);
  if (flops) out.push(fact(rate(flops, total), `${(flops / 1e9).toFixed(2)} GFLOP`));
  out.push(fact(D.machine.processor, `${D.device}, ${isGpu ? `${D.machine.units} multiprocessors` :
    `${D.threads} thread${D.threads === 1 ? "" : "s"}`}, ${D.measured_device ? "measured" : "nominal"} figures`));
  return el("div", {}, el("div", { class: "facts" }, out), isBusy ? el("p", { class: "soft" },
    `The machine was busy when this was measured: the median times of launches are ${(sum(measuredLaunches, (l) => l.us) /
    sum(measuredLaunches, (l) => l.least_us)).toFixed(1)} times their least, of ${D.measured.runs} runs. The least are shown.`) : null);
}

function edgeWords(e) {
  const where = { between: "passes between two kernels", weights: "is read of the weights", input: "is an input",
    output: "is an output", inside: "stays inside of a kernel" }[e.kind];
  return `${bytesText(e.bytes)}${e.n > 1 ? `, ${e.n} times` : ""}, ${where}`;
}

function edgeCard(e) {
  if (!e) return null;
  return el("div", { class: "card", id: "slowest-edge" },
    el("div", { class: "what" }, e.kind === "between" ? "Slowest edge between kernels" : "Slowest edge"),
    el("div", { class: "big" }, kernelLink(e.from), " → ", kernelLink(e.to)),
    el("div", {}, el("span", { class: "hot" }, `${timeText(e.us)}, ${percent(e.us / total)} of a run`), " · ",
      edgeWords(e), " · ", chip(e.level), " · ", el("span", { class: "mono" }, tail(e.tensor, 44), " ", e.dtype, e.shape)),
    e.reason ? el("div", {}, el("b", {}, "Not fused: "), e.reason)
      : e.kind === "between" ? el("div", { class: "soft" }, "No fusion of its ends was tried.") : null,
    el("a", { href: edgeHash(e) }, "show it in the graph"));
}

function kernelCard(k) {
  return el("div", { class: "card", id: "slowest-kernel" },
    el("div", { class: "what" }, "Slowest kernel"),
    el("div", { class: "big" }, kernelLink(k.name)),
    el("div", {}, el("span", { class: "hot" }, `${timeText(k.total)}, ${percent(k.total / total)} of a run`), " · ",
      k.launches > 1 ? `${k.launches} launches of ${timeText(k.us)} · ` : "", k.bound ? `bound by ${k.bound} · ` : "",
      k.flops > 0 ? rate(k.flops, k.us) : ""),
    el("div", { class: "soft" }, tail(k.nodes || "", 150)),
    k.measured && k.predicted_us ? el("div", {}, `${(k.measured / k.predicted_us).toFixed(2)} times what was predicted`) : null);
}

function kernelTable() {
  const most = byTime[0].total || 1;
  const rows = byTime.slice(0, 60).map((k) => el("tr", leads(`#kernels/${encodeURIComponent(k.name)}`),
    el("td", { class: "clip", style: "width:42%", title: k.nodes }, k.name),
    el("td", { class: "n" }, timeText(k.total)), el("td", { class: "n" }, percent(k.total / total)),
    el("td", { style: "width:26%" }, track(k.total / most, isMeasured ? (k.predicted_us * k.launches) / most : 0)),
    el("td", {}, k.bound || "")));
  return el("table", {}, el("thead", {}, el("tr", {}, ["kernel", "time", "share",
    isMeasured ? "measured | predicted" : "predicted", "bound by"].map((t, i) =>
    el("th", { class: i === 1 || i === 2 ? "n" : "" }, t)))), el("tbody", {}, rows));
}

function edgeTable(kind) {
  const some = edges.filter((e) => kind === "all" || e.kind === kind).slice(0, 60);
  const most = some.length ? some[0].us || 1 : 1;
  return el("table", {}, el("thead", {}, el("tr", {}, ["edge", "at", "bytes", "time", "", "not fused, because"].map((t, i) =>
    el("th", { class: i === 2 || i === 3 ? "n" : "" }, t)))), el("tbody", {}, some.map((e) => el("tr", leads(edgeHash(e)),
    el("td", { class: "clip", style: "width:38%", title: `${e.tensor} ${e.dtype}${e.shape}` },
      e.n > 1 ? el("span", { class: "soft" }, `${e.n}× `) : null, `${e.from} → ${e.to}`),
    el("td", {}, chip(e.level)), el("td", { class: "n" }, bytesText(e.moved)),
    el("td", { class: "n" }, timeText(e.us)), el("td", { style: "width:9%" }, track(e.us / most)),
    el("td", { class: "clip soft", style: "width:26%", title: e.reason || "" }, e.reason || "")))));
}

function edgeSection() {
  const host = el("div", {});
  const kinds = [["between", "between kernels"], ["weights", "weights"], ["inside", "inside of kernels"], ["all", "all"]];
  const first = edges.some((e) => e.kind === "between") ? "between" : "all";
  const buttons = kinds.map(([kind, text]) => el("button", { "aria-pressed": kind === first, onclick: (event) => {
    for (const b of buttons) b.setAttribute("aria-pressed", b === event.currentTarget);
    fill(host, edgeTable(kind));
  } }, text));
  fill(host, edgeTable(first));
  return el("div", {}, el("h2", {}, "Edges by time"), el("div", { class: "toggles" }, buttons), host,
    el("p", { class: "soft" }, "Time: the bytes by the bandwidth of the level that they pass, written and read. " +
      "Between kernels that is the fastest cache shared by all that can hold the tensor."));
}

const boundColour = (bound) => ({ compute: "var(--accent)", launch: "var(--soft)" }[bound] || (levelOf.has(bound) ? colourOf(bound) : "var(--bar)"));
function boundBars() {
  const of = new Map();
  for (const k of kernels) of.set(k.bound || "not known", (of.get(k.bound || "not known") || 0) + k.total);
  const rows = [...of].sort((a, b) => b[1] - a[1]), colour = boundColour;
  return el("div", { style: "margin-bottom:12px" },
    el("div", { class: "stack", role: "img", "aria-label": "Time by bound" }, rows.map(([name, us]) =>
      el("i", { style: `--c:${colour(name)};flex:${us}`, title: `${name}: ${timeText(us)}` }))),
    el("div", { class: "key" }, "Time in kernels that are bound by ", rows.map(([name, us]) => el("span", {},
      el("i", { style: `--c:${colour(name)}` }), `${name} ${percent(us / total)}`))));
}

function drawOverview() {
  fill("overview", facts(), el("div", { class: "cards" }, edgeCard(slowestEdge), kernelCard(byTime[0])), boundBars(),
    el("div", { class: "two" }, el("div", {}, el("h2", {}, "Kernels by time"), kernelTable()), edgeSection()));
}

// --- graph -------------------------------------------------------------------------------------

const NODE_W = 190, NODE_H = 46, OPEN_W = 470, GAP_X = 22, GAP_Y = 34, ROW = 16, COLUMN_GAP = 90;
const TOP = 48; // what lies over the graph there
const SMALL = 0.002, SMALL_W = 74, SMALL_H = 26; // of the time of a run: launches that are drawn small
const graph = { nodes: [], edges: [], view: { x: 0, y: 0, s: 1 }, open: new Set(), weights: false, drawn: false,
  chosen: -1, edge: -1 };

// Nodes are launches, and what goes in and out; a layer is the longest way from an input.
function makeGraph() {
  const nodes = launches.map((l) => ({ id: l.id, launch: l, layer: 0 }));
  const ports = new Map();
  const port = (key, text) => {
    if (!ports.has(key)) {
      ports.set(key, { id: nodes.length, text, layer: 0 });
      nodes.push(ports.get(key));
    }
    return ports.get(key).id;
  };
  graph.edges = D.flows.filter((f) => f.from !== -2).map((f) => ({ flow: f,
    a: f.from >= 0 ? f.from : port(`in ${f.tensor}`, `input ${f.tensor}`),
    b: f.to >= 0 ? f.to : port(`out ${f.tensor}`, `output ${f.tensor}`) }));
  const ins = nodes.map(() => []), outs = nodes.map(() => []);
  for (const e of graph.edges) { ins[e.b].push(e); outs[e.a].push(e); }
  Object.assign(graph, { nodes, ins, outs, weightsOf: new Map() });
  D.flows.forEach((f, i) => {
    f.number = i;
    if (f.from === -2) graph.weightsOf.set(f.to, (graph.weightsOf.get(f.to) || 0) + f.bytes);
  });
  for (const e of [...graph.edges].sort((x, y) => y.flow.us - x.flow.us).slice(0, 12)) e.flow.isSlow = true; // labelled from afar, too
  for (const n of nodes) if (!n.launch && n.text.startsWith("input")) n.layer = 0;
  for (const n of nodes) if (n.launch) n.layer = Math.max(0, ...ins[n.id].map((e) => nodes[e.a].layer + 1));
  for (const n of nodes) if (!n.launch && ins[n.id].length) n.layer = Math.max(...ins[n.id].map((e) => nodes[e.a].layer + 1));
  // what is needed late is computed late: inputs and short branches stand beside their readers
  for (let i = nodes.length - 1; i >= 0; i--) {
    const n = nodes[i];
    if (outs[i].length && !ins[i].length) n.layer = Math.max(0, Math.min(...outs[i].map((e) => nodes[e.b].layer)) - 1);
  }
}

function sizeOf(n) {
  const k = n.launch && n.launch.k;
  if (k && graph.open.has(n.id)) return { w: OPEN_W, h: NODE_H + 6 + ROW * k.prims.length };
  if (k && n.launch.us < SMALL * total) return { w: SMALL_W, h: SMALL_H, isSmall: true };
  return { w: NODE_W, h: n.launch ? NODE_H : SMALL_H };
}

// Barycentres of what is above, so that edges cross seldom.
function orderLayers() {
  const layers = [];
  for (const n of graph.nodes) (layers[n.layer] = layers[n.layer] || []).push(n);
  const full = layers.filter(Boolean);
  const place = new Map();
  for (const layer of full) {
    for (const n of layer) {
      const above = graph.ins[n.id].map((e) => place.get(e.a)).filter((x) => x !== undefined);
      n.centre = above.length ? sum(above, (x) => x) / above.length : 0;
    }
    layer.sort((a, b) => a.centre - b.centre || a.id - b.id);
    layer.forEach((n, i) => place.set(n.id, i - (layer.length - 1) / 2));
  }
  return full;
}

function placeColumns(layers, n_columns) {
  const heights = layers.map((layer) => Math.max(...layer.map((n) => sizeOf(n).h)) + GAP_Y);
  const limit = sum(heights, (h) => h) / n_columns;
  let x = 0, column = 0, y = 0, most = 0, widest = 0;
  const columns = [[]];
  layers.forEach((layer, i) => {
    if (y + heights[i] / 2 > limit && columns.length < n_columns) { columns.push([]); y = 0; }
    columns[columns.length - 1].push(i);
    y += heights[i];
  });
  for (const of of columns) {
    widest = Math.max(...of.map((i) => sum(layers[i], (n) => sizeOf(n).w + GAP_X) - GAP_X));
    y = 0;
    for (const i of of) {
      let left = x + (widest - (sum(layers[i], (n) => sizeOf(n).w + GAP_X) - GAP_X)) / 2;
      for (const n of layers[i]) {
        Object.assign(n, { isSmall: false }, sizeOf(n), { x: left, y, column });
        left += n.w + GAP_X;
      }
      y += heights[i];
    }
    most = Math.max(most, y);
    x += widest + COLUMN_GAP;
    column++;
  }
  return { w: x - COLUMN_GAP, h: most };
}

// As many columns as show all of it in the largest size.
function layoutGraph() {
  const layers = orderLayers(), box = $("graph").getBoundingClientRect();
  const w = Math.max(400, box.width - 40), h = Math.max(300, box.height - TOP - 20);
  let best = { s: 0, n: 1 };
  for (let n = 1; n <= Math.min(24, layers.length); n++) {
    const size = placeColumns(layers, n), s = Math.min(w / size.w, h / size.h);
    if (s > best.s) best = { s, n };
  }
  graph.size = placeColumns(layers, best.n);
}

function fitGraph() {
  const box = $("graph").getBoundingClientRect();
  const s = Math.min(1.2, (box.width - 40) / graph.size.w, (box.height - TOP - 20) / graph.size.h);
  graph.view = { s, x: (box.width - graph.size.w * s) / 2, y: TOP + (box.height - TOP - graph.size.h * s) / 2 };
  paintGraph();
}

function edgePath(a, b) {
  const ax = a.x + a.w / 2, ay = a.y + a.h, bx = b.x + b.w / 2, by = b.y;
  if (a.column === b.column && by > ay - 1) {
    if (b.layer - a.layer <= 1 || by - ay <= GAP_Y + 2) {
      const m = (by - ay) / 2;
      return { d: `M${ax} ${ay}C${ax} ${ay + m} ${bx} ${by - m} ${bx} ${by}`, x: (ax + bx) / 2, y: (ay + by) / 2 };
    }
    const g = Math.max(a.x + a.w, b.x + b.w) + 24 + 5 * Math.min(7, b.layer - a.layer);
    const y1 = a.y + a.h * 0.7, y2 = b.y + b.h * 0.3;
    return { d: `M${a.x + a.w} ${y1}C${g} ${y1} ${g} ${y2} ${b.x + b.w} ${y2}`, x: (a.x + a.w + 3 * g) / 4, y: (y1 + y2) / 2 };
  }
  const y1 = a.y + a.h / 2, y2 = b.y + b.h / 2, forth = b.x >= a.x + a.w;
  const x1 = forth ? a.x + a.w : a.x, x2 = forth ? b.x : b.x + b.w, m = forth ? 44 : -44;
  return { d: `M${x1} ${y1}C${x1 + m} ${y1} ${x2 - m} ${y2} ${x2} ${y2}`, x: x1 + m, y: y1 - 6 };
}

const isSlowest = (f) => slowestEdge && slowestEdge.kind === "between" && f.from >= 0 && f.to >= 0 &&
  launches[f.from].kernel === slowestEdge.from && launches[f.to].kernel === slowestEdge.to && f.bytes === slowestEdge.bytes;

function edgeTip(event, f) {
  showTip(event, el("div", {}, el("b", {}, f.from >= 0 ? launches[f.from].kernel : "input", " → ",
    f.to >= 0 ? launches[f.to].kernel : "output")),
  el("div", {}, chip(f.level), ` ${bytesText(f.bytes)}, ${timeText(f.us)} to move`),
  el("div", { class: "mono" }, `${f.tensor} ${f.dtype}(${f.shape.join(", ")})`),
  f.reason ? el("div", {}, el("b", {}, "Not fused: "), f.reason) : null);
}

function paintEdge(e, seen, labels) {
  const a = graph.nodes[e.a], b = graph.nodes[e.b], f = e.flow;
  const x0 = Math.min(a.x, b.x) - 70, x1 = Math.max(a.x + a.w, b.x + b.w) + 70;
  const y0 = Math.min(a.y, b.y), y1 = Math.max(a.y + a.h, b.y + b.h);
  if (x1 < seen.x0 || x0 > seen.x1 || y1 < seen.y0 || y0 > seen.y1) return [];
  const p = edgePath(a, b), chosen = graph.chosen, number = f.number;
  const faint = graph.edge >= 0 ? graph.edge !== number : chosen >= 0 && e.a !== chosen && e.b !== chosen;
  const width = clamp(1 + 1.6 * Math.log10(Math.max(1, f.bytes / 1e4)), 1, 8);
  const over = { onmousemove: (event) => edgeTip(event, f), onmouseleave: hideTip, onclick: () => go(`#graph/${number}`) };
  const glows = graph.edge >= 0 ? graph.edge === number : isSlowest(f);
  return [glows ? el("path", { class: "edge glow", d: p.d, "stroke-width": Math.max(12, width + 8) }) : null,
    el("path", { class: `edge${faint ? " faint" : ""}`, d: p.d, style: `--c:${colourOf(f.level)}`, "stroke-width": width }),
    el("path", { class: "hit", d: p.d, ...over }),
    (labels || f.isSlow || glows) && !faint ? el("text", { class: `edge-label${glows ? " hot" : ""}`, x: p.x, y: p.y + 4,
      "text-anchor": "middle", style: `font-size:${clamp(11 / graph.view.s, 11, 26)}px` },
    glows ? `${isSlowest(f) ? "slowest: " : ""}${bytesText(f.bytes)}, ${timeText(f.us)}` : bytesText(f.bytes)) : null];
}

// The statements of a kernel that is open, and what passes between them at their left.
function paintStatements(n, k) {
  const names = k.prims.map((p) => p.text.slice(0, p.text.search(/[(\s=]/)));
  const out = k.prims.map((p, i) => el("text", { class: "stmt", x: n.x + 62, y: n.y + NODE_H + 10 + ROW * i },
    head(p.text, 58), el("title", {}, p.text)));
  let lane = 0;
  for (const e of k.edges) {
    const from = names.indexOf(e.from);
    if (from < 0) continue;
    const last = Math.max(...e.to.split(", ").map((t) => names.indexOf(t.split(" ")[0])));
    if (last <= from) continue;
    const x = n.x + 54 - 7 * (lane++ % 6), y0 = n.y + NODE_H + 7 + ROW * from, y1 = n.y + NODE_H + 7 + ROW * last;
    out.push(el("path", { class: "edge", style: `--c:${colourOf(e.level)}`, "stroke-width": 2.5,
      d: `M${n.x + 60} ${y0}H${x}V${y1}H${n.x + 60}` }), el("path", { class: "hit", d: `M${x} ${y0}V${y1}`,
      onmousemove: (event) => showTip(event, el("b", {}, `${e.tensor}: ${e.from} → ${e.to}`),
        el("div", {}, chip(e.level), ` ${bytesText(e.bytes)}`, e.box ? `, box ${e.box}` : "")), onmouseleave: hideTip }));
  }
  return out;
}

function nodeTip(event, n) {
  const k = n.launch.k;
  showTip(event, el("b", {}, k.name), el("div", {}, `${timeText(n.launch.us)}, ${percent(n.launch.us / total)} of a run`,
    k.bound ? `, bound by ${k.bound}` : ""), el("div", { class: "soft" }, head(n.launch.nodes, 220)),
  el("div", { class: "soft" }, "Click: its statements. Double click: its page."));
}

function paintNode(n, detail) {
  const k = n.launch && n.launch.k, share = k ? n.launch.us / total : 0;
  const most = graph.most || 1, heat = k ? Math.sqrt(n.launch.us / most) : 0;
  const weights = graph.weightsOf.get(n.id) || 0;
  const g = el("g", { class: `node${k ? "" : " io"}${graph.chosen === n.id ? " chosen" : ""}`, tabindex: 0, role: "button",
    "data-node": n.id, "aria-label": k ? `${k.name}, ${timeText(n.launch.us)}, ${percent(share)}` : n.text,
    "aria-expanded": k ? graph.open.has(n.id) : null,
    onclick: () => { if (k && !graph.moved) toggleNode(n.id); },
    ondblclick: () => { if (k) go(`#kernels/${encodeURIComponent(k.name)}`); },
    onkeydown: (e) => {
      if (e.key === "Enter" && k) go(`#kernels/${encodeURIComponent(k.name)}`);
      if (e.key === " " && k) { e.preventDefault(); toggleNode(n.id); }
    },
    onmousemove: (e) => { if (k) nodeTip(e, n); }, onmouseleave: hideTip },
  el("rect", { class: "box", x: n.x, y: n.y, width: n.w, height: n.h, rx: 6 }),
  k ? el("rect", { class: "heat", x: n.x, y: n.y, width: n.w, height: n.h, rx: 6, "fill-opacity": (0.5 * heat).toFixed(3) }) : null);
  if (!k || n.isSmall) {
    const text = k ? k.name.split("_").slice(0, 2).join("_") : n.text;
    g.append(el("text", { class: "small", x: n.x + 6, y: n.y + 17 }, head(text, k ? 10 : 28)));
    return g;
  }
  if (!detail) { // from afar: its number and its time, as large as there is room for
    const size = clamp(11 / graph.view.s, 12, 30);
    g.append(el("text", { x: n.x + 8, y: n.y + 23 + size / 3, style: `font-size:${size}px` },
      `${k.name.split("_")[0]} ${timeText(n.launch.us)}`));
    return g;
  }
  g.append(el("text", { x: n.x + 8, y: n.y + 18 }, head(k.name, n.w > NODE_W ? 60 : 26)),
    el("text", { class: "small", x: n.x + 8, y: n.y + 36 },
      `${timeText(n.launch.us)} · ${percent(share)}${weights > 1e4 ? ` · w ${bytesText(weights)}` : ""}`));
  if (graph.open.has(n.id)) g.append(...paintStatements(n, k));
  return g;
}

// Nodes are made for what is seen and as much around it; while these are enough, and texts would not
// be of other sizes, moving and zooming only moves them.
const detailOf = (s) => Math.round(4 * Math.log2(s));
function paintGraph() {
  graph.world = null;
  movePainted();
}
function movePainted() {
  const box = $("graph").getBoundingClientRect(), { x, y, s } = graph.view;
  const seen = { x0: -x / s, y0: -y / s, x1: (box.width - x) / s, y1: (box.height - y) / s };
  const p = graph.painted;
  const isEnough = graph.world && Math.abs(detailOf(s) - p.detail) <= (s > 0.7 === p.s > 0.7 ? 1 : 0) &&
    (p.isAll || (seen.x0 >= p.x0 && seen.y0 >= p.y0 && seen.x1 <= p.x1 && seen.y1 <= p.y1));
  if (!isEnough) makePainted(seen, s);
  graph.world.setAttribute("transform", `translate(${x} ${y}) scale(${s})`);
}

function makePainted(seen, s) {
  const w = seen.x1 - seen.x0, h = seen.y1 - seen.y0;
  const around = { x0: seen.x0 - w / 2, y0: seen.y0 - h / 2, x1: seen.x1 + w / 2, y1: seen.y1 + h / 2, detail: detailOf(s), s };
  around.isAll = around.x0 < -100 && around.y0 < -100 && around.x1 > graph.size.w + 100 && around.y1 > graph.size.h + 100;
  const inside = (n) => n.x + n.w >= around.x0 && n.x <= around.x1 && n.y + n.h >= around.y0 && n.y <= around.y1;
  const world = el("g", {});
  const nodes = graph.nodes.filter(inside).map((n) => paintNode(n, s > 0.7));
  const drawn = [...graph.edges].sort((a, b) => isSlowest(a.flow) - isSlowest(b.flow))
    .flatMap((e) => paintEdge(e, around, s > 0.7)).filter(Boolean);
  world.append(...drawn.filter((e) => e.classList.contains("edge")), ...drawn.filter((e) => e.classList.contains("hit")),
    ...nodes, ...drawn.filter((e) => e.classList.contains("edge-label")));
  const focused = document.activeElement && document.activeElement.dataset && document.activeElement.dataset.node;
  graph.svg.replaceChildren(world);
  if (focused !== undefined) graph.svg.querySelector(`[data-node="${focused}"]`)?.focus({ preventScroll: true });
  Object.assign(graph, { world, painted: around });
}
let paintAsked = false;
function askPaint() {
  if (paintAsked) return;
  paintAsked = true;
  requestAnimationFrame(() => { paintAsked = false; movePainted(); });
}

function toggleNode(id) {
  const n = graph.nodes[id], at = { x: n.x, y: n.y };
  if (graph.open.has(id)) graph.open.delete(id);
  else graph.open.add(id);
  graph.chosen = graph.open.has(id) ? id : -1;
  graph.edge = -1;
  layoutGraph();
  graph.view.x += (at.x - n.x) * graph.view.s; // it stays where it is
  graph.view.y += (at.y - n.y) * graph.view.s;
  paintGraph();
}

function zoomGraph(factor, cx, cy) {
  const v = graph.view, s = clamp(v.s * factor, 0.03, 3);
  v.x = cx - ((cx - v.x) * s) / v.s;
  v.y = cy - ((cy - v.y) * s) / v.s;
  v.s = s;
  askPaint();
}

function centreOn(n, s) {
  const box = $("graph").getBoundingClientRect();
  const within = (at, size, room) => (size * s < room ? (room - size * s) / 2 : clamp(at, room - 40 - size * s, 40));
  graph.view = { s, x: within(box.width / 2 - (n.x + n.w / 2) * s, graph.size.w, box.width),
    y: within(box.height / 2 - (n.y + n.h) * s, graph.size.h, box.height - TOP) + TOP };
}

function chooseEdge(number) {
  const e = graph.edges.find((g) => g.flow.number === number);
  graph.edge = e ? number : -1;
  graph.chosen = -1;
  if (!e) { // weights: their reader
    graph.chosen = D.flows[number] ? D.flows[number].to : -1;
    if (graph.chosen >= 0) centreOn(graph.nodes[graph.chosen], 0.9);
  } else {
    centreOn(graph.nodes[e.a], clamp(graph.view.s, 0.7, 1));
  }
  const f = D.flows[number];
  fill(graph.panel, el("b", {}, f.from >= 0 ? kernelLink(launches[f.from].kernel) : f.kind, " → ",
    f.to >= 0 ? kernelLink(launches[f.to].kernel) : "output"),
  el("div", {}, chip(f.level), ` ${bytesText(f.bytes)}, ${timeText(f.us)} to move, ${percent(f.us / total)} of a run`),
  el("div", { class: "mono" }, `${f.tensor} ${f.dtype}(${f.shape.join(", ")})`),
  el("div", {}, el("b", {}, "Not fused: "), f.reason || "no fusion of its ends was tried"));
  graph.panel.hidden = false;
  paintGraph();
}

function dragGraph(svg) {
  let from = null;
  svg.addEventListener("pointerdown", (e) => { from = { x: e.clientX, y: e.clientY, v: { ...graph.view } }; graph.moved = false; });
  svg.addEventListener("pointermove", (e) => {
    if (!from || e.buttons !== 1) return;
    if (Math.hypot(e.clientX - from.x, e.clientY - from.y) > 4) graph.moved = true;
    if (!graph.moved) return;
    graph.view.x = from.v.x + e.clientX - from.x;
    graph.view.y = from.v.y + e.clientY - from.y;
    askPaint();
  });
  addEventListener("pointerup", () => { from = null; });
  svg.addEventListener("wheel", (e) => {
    e.preventDefault();
    const box = svg.getBoundingClientRect();
    zoomGraph(Math.exp(-e.deltaY / 400), e.clientX - box.x, e.clientY - box.y);
  }, { passive: false });
}

function legend() {
  return el("div", { class: "overlay legend", title: "An edge has the colour of the fastest cache that can hold its tensor" },
    el("div", { class: "key" }, LEVELS.slice().reverse().map((l) => el("span", {}, el("i", { style: `--c:${colourOf(l.name)}` }), l.name)),
      el("span", {}, "redder: longer · wider: more bytes · glowing: the slowest edge · click: statements · double click: its page")));
}

function drawGraph(argument) {
  if (!graph.drawn) {
    makeGraph();
    graph.most = Math.max(...launches.map((l) => l.us));
    graph.svg = el("svg", { class: "canvas", role: "group", "aria-label": "Launches and the tensors between them" });
    graph.panel = el("div", { class: "overlay panel", hidden: true });
    const zoom = (f) => () => { const b = $("graph").getBoundingClientRect(); zoomGraph(f, b.width / 2, b.height / 2); };
    fill("graph", graph.svg, legend(), graph.panel, el("div", { class: "overlay controls" },
      el("button", { onclick: () => chooseEdge(D.flows.indexOf(slowestEdge.flow)) }, "slowest edge"),
      el("button", { onclick: zoom(1.25), "aria-label": "larger" }, "+"), el("button", { onclick: zoom(0.8), "aria-label": "smaller" }, "−"),
      el("button", { onclick: () => { clearChoice(); fitGraph(); } }, "all")));
    dragGraph(graph.svg);
    layoutGraph();
    graph.drawn = true;
    fitGraph();
  }
  if (argument !== "" && D.flows[+argument]) chooseEdge(+argument);
  else paintGraph();
}
function clearChoice() {
  graph.chosen = graph.edge = -1;
  graph.panel.hidden = true;
}

// --- kernels -----------------------------------------------------------------------------------

// The list at the left of a view: kernels by time, filtered.
class KernelList {
  constructor(view) {
    this.view = view;
    this.order = byTime;
    this.list = el("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": "Kernels by time" });
    const input = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter kernels",
      oninput: () => this.filter(input.value) });
    this.root = el("div", { class: "side" }, el("div", { class: "filter" }, input), this.list);
    this.rows = new Rows(this.list, 38, (k) => this.row(k));
    this.list.addEventListener("keydown", (e) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
      if (by) { e.preventDefault(); this.step(by); }
    });
    this.rows.set(this.order);
  }
  row(k) {
    return el("div", { class: "row", role: "option", "aria-selected": k === this.chosen, title: k.nodes || k.name,
      onclick: () => go(`#${this.view}/${encodeURIComponent(k.name)}`) },
    el("span", { class: "n" }, `${timeText(k.total)} · ${percent(k.total / total)}`), k.name,
    track(k.total / (byTime[0].total || 1)));
  }
  filter(text) {
    const want = text.toLowerCase();
    this.order = byTime.filter((k) => `${k.name} ${k.nodes}`.toLowerCase().includes(want));
    this.rows.set(this.order);
  }
  step(by) {
    const i = clamp(this.order.indexOf(this.chosen) + by, 0, this.order.length - 1);
    if (this.order[i]) go(`#${this.view}/${encodeURIComponent(this.order[i].name)}`);
  }
  choose(k) {
    this.chosen = k;
    this.rows.again();
    const i = this.order.indexOf(k);
    if (i >= 0) this.rows.reveal(i);
  }
}

function timeParts(k) {
  const parts = [["compute", k.compute_us, "var(--accent)"], ...k.costed.map((c) => [c.level, c.us, colourOf(c.level)]),
    ["launch", k.launch_us, "var(--soft)"]].filter((p) => p[1] > 0);
  const most = Math.max(...parts.map((p) => p[1]), k.us, 1e-9);
  return el("table", {}, el("tbody", {}, parts.map(([name, us, colour]) => el("tr", {},
    el("td", {}, name === k.bound ? el("b", {}, name, " (bound)") : name), el("td", { class: "n" }, timeText(us)),
    el("td", { style: "width:55%" }, el("div", { class: "track" }, el("i", { style: `width:${(100 * us) / most}%;background:${colour}` }))))),
  k.measured ? el("tr", {}, el("td", {}, el("b", {}, "measured")), el("td", { class: "n" }, timeText(k.measured)),
    el("td", {}, track(k.measured / most))) : null));
}

function whyText(k) {
  if (!k.taken.family) return "Its schedule was given, not searched.";
  const priced = k.rivals.filter((r) => r.predicted_us > 0 && !r.refused);
  const next = priced.reduce((a, b) => (!a || b.predicted_us < a.predicted_us ? b : a), null);
  const than = next ? `The next best, ${next.family}, ${next.tiles}, is predicted to take ${timeText(next.predicted_us)}` +
    (k.taken.predicted_us ? `, ${(next.predicted_us / k.taken.predicted_us).toFixed(2)} times as long.` : ".") : "";
  const price = k.taken.predicted_us ? ` at ${timeText(k.taken.predicted_us)}` : "";
  return `${k.taken.family}, ${k.taken.tiles}${price}: the ${isMeasured ? "" : "predicted "}best of ${k.candidates} candidate${k.candidates === 1 ? "" : "s"}. ${than}`;
}

function candidateTable(k) {
  const all = [{ ...k.taken, taken: true }, ...k.rivals].filter((c) => c.family);
  const most = Math.max(...all.map((c) => c.predicted_us), 1e-9);
  const sorted = all.sort((a, b) => (a.predicted_us || 1e18) - (b.predicted_us || 1e18));
  return el("div", { class: "scroll", style: "max-height:230px" }, el("table", {}, el("thead", {}, el("tr", {}, ["", "family", "tiles", "price", "", "refused, because"].map((t) => el("th", {}, t)))),
    el("tbody", {}, sorted.map((c) => el("tr", {}, el("td", {}, c.taken ? "✓" : ""), el("td", {}, c.taken ? el("b", {}, c.family) : c.family),
      el("td", { class: "mono" }, c.tiles), el("td", { class: "n" }, c.predicted_us ? timeText(c.predicted_us) : "not priced"),
      el("td", { style: "width:16%" }, c.predicted_us ? track(c.predicted_us / most) : ""), el("td", { class: "soft" }, c.refused || ""))))));
}

function kernelEdges(k) {
  return el("div", { class: "scroll", style: "max-height:260px" }, el("table", {}, el("thead", {}, el("tr", {}, ["at", "tensor", "from → to", "bytes", "moved", "box"].map((t, i) => el("th", { class: i === 3 ? "n" : "" }, t)))),
    el("tbody", {}, k.edges.map((e) => el("tr", {}, el("td", {}, chip(e.level)), el("td", { class: "mono", title: e.tensor }, tail(e.tensor, 30), ` ${e.dtype}${e.shape}`),
      el("td", { class: "mono" }, `${e.from} → ${e.to}`), el("td", { class: "n" }, bytesText(e.bytes)),
      el("td", {}, e.moved.map((m) => el("span", { title: `${m.level}: ${bytesText(m.read_bytes)} read, ${bytesText(m.written_bytes)} written` },
        chip(m.level, `${m.level} ${bytesText(m.read_bytes + m.written_bytes)}`), " "))), el("td", { class: "mono" }, e.box || ""))))));
}

function neighbourTable(k) {
  if (!k.neighbours.length) return el("p", { class: "soft" }, "No neighbour was left out where there was a choice.");
  return el("div", { class: "scroll", style: "max-height:230px" }, el("table", {}, el("thead", {}, el("tr", {}, ["with", "of", "not fused, because"].map((t) => el("th", {}, t)))),
    el("tbody", {}, k.neighbours.map((n) => el("tr", {}, el("td", {}, n.before ? "← " : "→ ", n.kernel ? kernelLink(n.kernel) : "pieces"),
      el("td", { class: "mono", title: n.tensor }, tail(n.tensor, 28)), el("td", {}, n.reason))))));
}

// A text of code, of which only the lines that are seen have nodes; a line is tied to the line of
// the loops that it is made of.
class Pane {
  constructor(text, hooks) {
    this.text = text;
    this.hooks = hooks;
    this.on = 0;
    this.host = el("div", { class: "lines", tabindex: 0, role: "region", "aria-label": text.name });
    this.root = el("div", { class: "pane" }, el("h4", {}, el("span", {}, text.name), el("span", { class: "soft" }, `${text.rows.length} lines`)), this.host);
    this.rows = new Rows(this.host, 18, (row, i) => this.line(row, i));
    const widest = text.rows.reduce((m, r) => Math.max(m, r.length), 0);
    this.rows.space.style.width = `${widest + 10}ch`;
    this.rows.set(text.rows);
    this.host.addEventListener("keydown", (e) => this.key(e));
  }
  line(row, i) {
    const of = this.text.of[i] || 0;
    const hue = (of * 47) % 360;
    return el("div", { class: `l${of ? " linked" : ""}${of && of === this.on ? " on" : ""}${i === this.at ? " at" : ""}`,
      onclick: () => { this.at = i; this.hooks.choose(of, this); }, onmouseenter: () => this.hooks.hover(of, this) },
    el("span", { class: "no" }, String(i + 1)), el("span", { class: "tie", style: of ? `background:hsl(${hue} 60% 55%)` : "" }),
    coloured(row.replace(/\t/g, "  "), this.text.name));
  }
  key(e) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!by) return;
    e.preventDefault();
    this.at = clamp((this.at === undefined ? -1 : this.at) + by, 0, this.text.rows.length - 1);
    this.rows.reveal(this.at);
    this.hooks.choose(this.text.of[this.at] || 0, this);
  }
  light(of, moves) {
    if (of === this.on && !moves) return;
    this.on = of;
    const first = of ? this.text.of.indexOf(of) : -1;
    if (moves && first >= 0) this.rows.reveal(first);
    this.rows.again();
  }
}

// Texts side by side; those that are shown are remembered from kernel to kernel.
let shownTexts = null;
function codeSection(code) {
  const names = code.texts.map((t) => t.name), host = el("div", { class: "panes" });
  const ordinary = ["loops", ...names.slice(2)].slice(0, 4).filter((n) => names.includes(n));
  if (!shownTexts || !shownTexts.some((n) => names.includes(n))) shownTexts = ordinary.length ? ordinary : names;
  let panes = [], held = 0;
  const hooks = {
    hover: (of, pane) => { if (!held) for (const p of panes) p.light(of, p !== pane && of > 0); },
    choose: (of, pane) => { held = of === held && pane.on === of ? 0 : of; for (const p of panes) p.light(of, p !== pane && of > 0); },
  };
  const draw = () => {
    panes = code.texts.filter((t) => shownTexts.includes(t.name)).map((t) => new Pane(t, hooks));
    fill(host, panes.map((p) => p.root));
    for (const p of panes) { // where the code begins that is of loops
      p.rows.draw();
      const first = p.text.of.findIndex((of) => of > 0);
      if (first > 20) p.host.scrollTop = (first - 3) * 18;
    }
  };
  const buttons = names.map((n) => el("button", { "aria-pressed": shownTexts.includes(n), onclick: (e) => {
    shownTexts = shownTexts.includes(n) ? shownTexts.filter((x) => x !== n) : [...shownTexts, n];
    e.currentTarget.setAttribute("aria-pressed", shownTexts.includes(n));
    draw();
  } }, n));
  requestAnimationFrame(draw);
  return el("div", {}, el("h3", {}, "Script, loops and code"), el("div", { class: "toggles" }, buttons,
    el("span", { class: "soft" }, "Lines of one colour are of one line of the loops. Click holds a line, arrows move.")), host);
}

async function kernelPage(k) {
  const page = [el("h2", {}, k.name), el("div", { class: "facts" },
    fact(timeText(k.us), `${k.measured ? "measured" : "predicted"} a launch`),
    k.measured && k.predicted_us ? fact(timeText(k.predicted_us), `predicted, ${(k.measured / k.predicted_us).toFixed(2)}× measured`) : null,
    fact(`${percent(k.total / total)}`, `of a run, ${k.launches} launch${k.launches === 1 ? "" : "es"}`),
    fact(rate(k.flops, k.us), `${(k.flops / 1e6).toFixed(1)} MFLOP`), k.bound ? fact(k.bound, "bounds it") : null,
    fact(String(k.tiles || 1), `tile${k.tiles === 1 ? "" : "s"}, tail ${(k.tail || 1).toFixed(2)}`)),
  el("p", { class: "soft", style: "overflow-wrap:anywhere;margin:0 0 6px" }, head(k.nodes || "", 400),
    k.beside ? ` · beside ${k.beside}, in one launch` : ""),
  el("div", { class: "why" }, el("b", {}, "Why this schedule: "), whyText(k)),
  el("div", { class: "grid2" }, el("div", {}, el("h3", {}, "Time of a launch"), timeParts(k)),
    el("div", {}, el("h3", {}, `Candidates, ${k.candidates}`), candidateTable(k))), el("h3", {}, "Edges"), kernelEdges(k), el("h3", {}, "Not fused with"), neighbourTable(k),
  el("h3", {}, "Statements"), el("div", { class: "scroll stmt", style: "padding:6px 10px" }, k.prims.map((p) => el("div", { style: "white-space:pre" }, p.text)))];
  page.push(codeSection(await codeOf(k)));
  return page;
}

const kernelView = {};
async function drawKernels(argument) {
  const k = byName.get(argument) || kernelView.k || byTime[0];
  if (!kernelView.list) {
    kernelView.list = new KernelList("kernels");
    kernelView.body = el("div", { class: "body", tabindex: 0, "aria-live": "polite" });
    fill("kernels", el("div", { class: "sides" }, kernelView.list.root, kernelView.body));
  }
  kernelView.k = k;
  kernelView.list.choose(k);
  const page = await kernelPage(k);
  if (kernelView.k !== k) return;
  fill(kernelView.body, page);
  kernelView.body.scrollTop = 0;
}

// --- roofline ----------------------------------------------------------------------------------

const roofline = { level: LEVELS[0] ? LEVELS[0].name : "memory" };
function movedAt(k, level) {
  const t = k.traffic.find((x) => x.level === level) || (level === (LEVELS[0] || {}).name ? k.traffic.find((x) => x.level.startsWith("memory")) : null);
  return t ? t.read_bytes + t.written_bytes : level === (LEVELS[0] || {}).name ? k.bytes : 0;
}

function rooflinePoints() {
  return kernels.map((k) => ({ k, bytes: movedAt(k, roofline.level) })).filter((p) => p.k.flops > 0 && p.bytes > 0 && p.k.us > 0)
    .map((p) => ({ ...p, x: p.k.flops / p.bytes, y: p.k.flops / p.k.us / 1e3 })).sort((a, b) => b.k.total - a.k.total);
}

function rooflineFigure(w, h) {
  const points = rooflinePoints(), roofs = LEVELS.filter((l, i) => i < LEVELS.length - 1 && !(l.explicit && l.sharing > 1));
  const peaks = Object.entries(D.machine.peaks).filter(([name, p]) => p.all_flops_ns > 0 && (name !== "int8"));
  const most = Math.max(...peaks.map(([, p]) => peakUnit(p)), 1), m = { l: 62, r: 24, t: 18, b: 44 };
  const xs = [...points.map((p) => p.x), most / bandwidth(LEVELS[0] || { all_bytes_ns: 1, unit_bytes_ns: 1 })];
  const ys = [...points.map((p) => p.y), most];
  const x0 = Math.floor(Math.log10(Math.max(1e-3, Math.min(...xs)))), x1 = Math.ceil(Math.log10(Math.max(...xs) * 1.5));
  const y0 = Math.floor(Math.log10(Math.max(1e-2, Math.min(...ys)))), y1 = Math.log10(most * 2.2);
  const X = (v) => m.l + ((Math.log10(v) - x0) / (x1 - x0)) * (w - m.l - m.r);
  const Y = (v) => h - m.b - ((Math.log10(v) - y0) / (y1 - y0)) * (h - m.t - m.b);
  const svg = el("svg", { class: "figure", viewBox: `0 0 ${w} ${h}`, role: "group", "aria-label": "Roofline: speed by arithmetic intensity" });
  for (let e = x0; e <= x1; e++) svg.append(el("line", { class: "grid", x1: X(10 ** e), x2: X(10 ** e), y1: m.t, y2: h - m.b }),
    el("text", { class: "soft", x: X(10 ** e), y: h - m.b + 16, "text-anchor": "middle" }, String(+(10 ** e).toPrecision(1))));
  for (let e = y0; e <= y1; e++) svg.append(el("line", { class: "grid", x1: m.l, x2: w - m.r, y1: Y(10 ** e), y2: Y(10 ** e) }),
    el("text", { class: "soft", x: m.l - 6, y: Y(10 ** e) + 4, "text-anchor": "end" }, String(+(10 ** e).toPrecision(1))));
  svg.append(el("text", { x: (w + m.l) / 2, y: h - 8, "text-anchor": "middle" }, `FLOP per byte that crosses ${roofline.level}`),
    el("text", { x: 14, y: h / 2, transform: `rotate(-90 14 ${h / 2})`, "text-anchor": "middle" }, "GFLOP/s"));
  for (const l of roofs) {
    const b = bandwidth(l), from = Math.max(10 ** x0, 10 ** y0 / b), to = Math.min(10 ** x1, most / b);
    if (from >= to || b <= 1) continue;
    const isIts = l.name === roofline.level;
    svg.append(el("line", { x1: X(from), y1: Y(from * b), x2: X(to), y2: Y(to * b), stroke: colourOf(l.name), "stroke-width": isIts ? 3 : 1.5, "stroke-dasharray": isIts ? null : "5 4" }),
      el("text", { x: X(from) + 4, y: Y(from * b) - 6, fill: colourOf(l.name), style: `fill:${colourOf(l.name)}`,
        transform: `rotate(${(-Math.atan2(Y(from * b) - Y(to * b), X(to) - X(from)) * 180) / Math.PI} ${X(from)} ${Y(from * b)})` }, `${l.name} ${b.toFixed(0)} GB/s`));
  }
  for (const [name, p] of peaks) svg.append(el("line", { x1: X(Math.max(10 ** x0, peakUnit(p) / Math.max(...roofs.map(bandwidth)))), x2: w - m.r, y1: Y(peakUnit(p)), y2: Y(peakUnit(p)), stroke: "var(--text)", "stroke-width": 1.5 }),
    el("text", { x: w - m.r, y: Y(peakUnit(p)) - 5, "text-anchor": "end", class: "halo" }, `${name} ${speedText(peakUnit(p))}`));
  const largest = Math.max(...points.map((p) => p.k.total), 1e-9);
  points.forEach((p, i) => {
    const r = 4 + 15 * Math.sqrt(p.k.total / largest), hash = `#kernels/${encodeURIComponent(p.k.name)}`;
    svg.append(el("circle", { class: "dot", cx: X(p.x), cy: Y(p.y), r, tabindex: 0, role: "link", "fill-opacity": 0.65,
      "aria-label": `${p.k.name}: ${speedText(p.y)} at ${p.x.toFixed(1)} FLOP per byte`,
      style: `fill:${boundColour(p.k.bound)}`,
      onclick: () => go(hash), onkeydown: (e) => { if (e.key === "Enter") go(hash); },
      onmousemove: (e) => showTip(e, el("b", {}, p.k.name), el("div", {}, `${speedText(p.y)}, ${p.x.toFixed(2)} FLOP per byte`),
        el("div", {}, `${timeText(p.k.total)}, ${percent(p.k.total / total)} of a run, bound by ${p.k.bound || "?"}`)), onmouseleave: hideTip }));
    if (i < 5) svg.append(el("text", { class: "halo", x: X(p.x), y: Y(p.y) + (i % 2 ? r + 13 : -r - 4), "text-anchor": "middle" }, head(p.k.name, 26)));
  });
  return svg;
}

function drawRoofline() {
  const box = $("roofline").getBoundingClientRect();
  const names = LEVELS.filter((l, i) => i === 0 || kernels.some((k) => movedAt(k, l.name) > 0)).map((l) => l.name);
  const pick = el("select", { "aria-label": "Level", onchange: (e) => { roofline.level = e.target.value; drawRoofline(); } },
    names.map((n) => el("option", { value: n, selected: n === roofline.level }, n)));
  const left = kernels.filter((k) => !(k.flops > 0)).length;
  fill("roofline", el("div", { class: "toggles" }, el("h2", { style: "margin:0 10px 0 0" }, "Roofline"), "bytes of ", pick,
    el("span", { class: "soft" }, `Each dot is a kernel, as large as its share of the ${isMeasured ? "measured" : "predicted"} time, coloured by what bounds it.` +
      (left ? ` ${left} without arithmetic are left out.` : ""))),
  rooflineFigure(Math.max(500, box.width - 36), Math.max(320, box.height - 70)));
}

// --- time line ---------------------------------------------------------------------------------

const line = { from: 0, to: 0, tracks: null };
function makeTracks() {
  const m = D.measured, spans = [];
  let at = 0;
  if (m && m.launches.length) {
    for (const [id, start, us] of m.run) spans.push({ name: m.launches[id].kernel, nodes: m.launches[id].nodes, at: start, us, id });
  } else
    for (const l of launches) { spans.push({ name: l.kernel, nodes: l.nodes, at, us: l.k.us, id: l.id }); at += l.k.us; }
  const first = isGpu ? "stream" : "launches";
  const tracks = [{ name: m ? first : `${first}, predicted`, spans }];
  for (const [id, thread, start, us] of m ? m.spans : []) {
    while (tracks.length < thread + 2) tracks.push({ name: `thread ${tracks.length - 1}`, spans: [] });
    tracks[thread + 1].spans.push({ name: m.launches[id].kernel, nodes: m.launches[id].nodes, at: start, us, id });
  }
  line.busy = new Map(); // by launch, time of all threads together
  for (const t of tracks.slice(1)) for (const s of t.spans) line.busy.set(s.id, (line.busy.get(s.id) || 0) + s.us);
  line.tracks = tracks;
  line.end = Math.max(...tracks.map((t) => Math.max(0, ...t.spans.map((s) => s.at + s.us))), 1e-3);
  line.from = 0;
  line.to = line.end;
}

const hueOf = (name) => [...name].reduce((h, c) => (h * 31 + c.charCodeAt(0)) % 360, 7);
const LINE_TOP = 64, TRACK_H = 46, COUNT_H = 90;
function paintLine() {
  const c = line.canvas, box = c.getBoundingClientRect(), r = devicePixelRatio || 1, g = c.getContext("2d");
  if (c.width !== Math.round(box.width * r) || c.height !== Math.round(box.height * r)) { c.width = Math.round(box.width * r); c.height = Math.round(box.height * r); }
  const css = getComputedStyle(document.documentElement), v = (n) => css.getPropertyValue(n).trim();
  const dark = document.documentElement.dataset.theme === "dark", w = box.width - 110;
  const X = (us) => 100 + ((us - line.from) / (line.to - line.from)) * w;
  g.setTransform(r, 0, 0, r, 0, 0);
  g.fillStyle = v("--bg");
  g.fillRect(0, 0, box.width, box.height);
  g.font = "12px system-ui, sans-serif";
  const step = 10 ** Math.floor(Math.log10((line.to - line.from) / 5)), unit = (line.to - line.from) / step > 20 ? 5 * step : (line.to - line.from) / step > 10 ? 2 * step : step;
  for (let t = Math.ceil(line.from / unit) * unit; t <= line.to; t += unit) {
    g.fillStyle = v("--line");
    g.fillRect(X(t), LINE_TOP - 14, 1, box.height);
    g.fillStyle = v("--soft");
    g.fillText(t === 0 ? "0" : timeText(t), X(t) + 3, LINE_TOP - 4);
  }
  line.tracks.forEach((t, i) => {
    const y = LINE_TOP + 6 + i * TRACK_H;
    g.fillStyle = v("--text");
    g.fillText(t.name, 10, y + 20);
    g.save();
    g.beginPath();
    g.rect(100, y, w, TRACK_H);
    g.clip();
    for (const s of t.spans) {
      if (s.at + s.us < line.from || s.at > line.to) continue;
      const x = X(s.at), width = Math.max(1, X(s.at + s.us) - x - (X(s.at + s.us) - x > 4 ? 1 : 0));
      g.fillStyle = `hsl(${hueOf(s.name)} ${dark ? "45% 42%" : "55% 72%"})`;
      g.fillRect(x, y + 2, width, 34);
      if (line.over === s) { g.strokeStyle = v("--hot"); g.lineWidth = 2; g.strokeRect(x, y + 2, width, 34); }
      if (width < 34) continue;
      g.fillStyle = v("--text");
      g.fillText(head(s.name, Math.floor((width - 8) / 6.6)), Math.max(x, 100) + 4, y + 18);
      if (width > 60) g.fillText(timeText(s.us), Math.max(x, 100) + 4, y + 32);
    }
    g.restore();
  });
  const y = LINE_TOP + 14 + line.tracks.length * TRACK_H, step2 = COUNT_H + 24;
  const per = (s, x) => (x && s.us > 0 ? x / s.us / 1e3 : 0), of = (s) => byName.get(s.name) || {};
  paintCounter(g, v, X, w, y, "GFLOP/s", (s) => per(s, of(s).flops));
  paintCounter(g, v, X, w, y + step2, "GB/s at least", (s) => per(s, of(s).bytes));
  if (line.tracks.length > 1) paintCounter(g, v, X, w, y + 2 * step2, "threads busy", (s) => (s.us > 0 ? (line.busy.get(s.id) || 0) / s.us : 0));
}

// Over time, below the tracks: |of| says how high a span of the first track is.
function paintCounter(g, v, X, w, y, name, of) {
  const spans = line.tracks[0].spans, most = Math.max(...spans.map(of), 1e-9);
  g.fillStyle = v("--text");
  g.fillText(name, 10, y + 20);
  g.fillStyle = v("--soft");
  g.fillText(`to ${most.toFixed(most < 10 ? 1 : 0)}`, 10, y + 36);
  g.save();
  g.beginPath();
  g.rect(100, y, w, COUNT_H);
  g.clip();
  g.fillStyle = v("--bar-strong");
  for (const s of spans) {
    if (s.at + s.us < line.from || s.at > line.to) continue;
    const h = (of(s) / most) * COUNT_H;
    g.fillRect(X(s.at), y + COUNT_H - h, Math.max(1, X(s.at + s.us) - X(s.at)), h);
  }
  g.restore();
  g.fillStyle = v("--line");
  g.fillRect(100, y + COUNT_H, w, 1);
}

function lineAt(e) {
  const box = line.canvas.getBoundingClientRect(), w = box.width - 110;
  const us = line.from + ((e.clientX - box.x - 100) / w) * (line.to - line.from);
  const t = line.tracks[Math.floor((e.clientY - box.y - LINE_TOP - 6) / TRACK_H)];
  return { us, span: t && t.spans.find((s) => us >= s.at && us <= s.at + s.us) };
}
function zoomLine(factor, at) {
  const width = clamp((line.to - line.from) * factor, line.end / 1e4, line.end);
  const share = (at - line.from) / (line.to - line.from);
  line.from = clamp(at - share * width, 0, line.end - width);
  line.to = line.from + width;
  requestAnimationFrame(paintLine);
}
function panLine(us) {
  const width = line.to - line.from;
  line.from = clamp(line.from + us, 0, line.end - width);
  line.to = line.from + width;
  requestAnimationFrame(paintLine);
}

function drawTimeline() {
  if (!line.canvas) {
    makeTracks();
    let from = null;
    line.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `Time line: ${line.tracks.map((t) => t.name).join(", ")}`,
      onpointerdown: (e) => { from = { x: e.clientX, moved: false }; },
      onpointerup: (e) => { const s = lineAt(e).span; if (from && !from.moved && s && byName.has(s.name)) go(`#kernels/${encodeURIComponent(s.name)}`); from = null; },
      onpointermove: (e) => {
        const at = lineAt(e);
        if (from && e.buttons === 1) {
          const by = e.clientX - from.x;
          if (Math.abs(by) > 3 || from.moved) { from.moved = true; from.x = e.clientX; panLine((-by / (line.canvas.clientWidth - 110)) * (line.to - line.from)); }
        } else if (at.span !== line.over) { line.over = at.span; requestAnimationFrame(paintLine); }
        if (at.span) showTip(e, el("b", {}, at.span.name), el("div", {}, `${timeText(at.span.us)} at ${timeText(at.span.at)}`), el("div", { class: "soft" }, head(at.span.nodes || "", 200)));
        else hideTip();
      }, onpointerleave: hideTip,
      onkeydown: (e) => {
        const w = line.to - line.from, mid = line.from + w / 2;
        const act = { ArrowLeft: () => panLine(-w / 8), ArrowRight: () => panLine(w / 8), "+": () => zoomLine(0.7, mid), "-": () => zoomLine(1.4, mid), 0: () => zoomLine(1e9, mid) }[e.key];
        if (act) { e.preventDefault(); e.stopPropagation(); act(); }
      } });
    line.canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) panLine(((e.deltaX || e.deltaY) / 800) * (line.to - line.from));
      else zoomLine(Math.exp(e.deltaY / 400), lineAt(e).us);
    }, { passive: false });
    fill("timeline", line.canvas, el("div", { class: "overlay", style: "left:10px;top:8px" },
      D.measured ? `The fastest of ${D.measured.runs} runs that were recorded: ${timeText(line.end)}.` : "Predicted: launches one behind the other. --measure runs the model.",
      " Wheel zooms, drag moves, 0 shows all."));
    new ResizeObserver(() => { if (!$("timeline").hidden) paintLine(); }).observe(line.canvas);
  }
  paintLine();
}

// --- traffic -----------------------------------------------------------------------------------

function trafficRows() {
  const rows = LEVELS.map((l) => {
    const has = kernels.some((k) => k.traffic.some((t) => t.level === l.name));
    const of = (f) => sum(kernels, (k) => sum(k.traffic.filter((t) => t.level === l.name), f) * k.launches);
    return { name: l.name, level: l, read: of((t) => t.read_bytes), written: of((t) => t.written_bytes), has };
  }).filter((r) => r.has);
  return rows;
}

// What the simulator counted of the kernels that it could follow, and what was predicted of these.
const hasCounted = kernels.some((k) => k.counted);
function counted(level) {
  const of = (list) => sum(list.filter((t) => t.level === level), (t) => t.read_bytes + t.written_bytes);
  const some = kernels.filter((k) => k.counted);
  return { bytes: sum(some, (k) => of(k.counted) * k.launches), predicted: sum(some, (k) => of(k.traffic) * k.launches), n: some.length };
}

function drawTraffic() {
  const rows = trafficRows(), least = sum(kernels, (k) => k.bytes * k.launches), m = D.measured;
  const most = Math.max(...rows.map((r) => r.read + r.written), least, (m && m.missed_bytes) || 0, 1);
  const row = (name, bytes, colour, note) => el("tr", {}, el("td", {}, name), el("td", { class: "n" }, bytes ? bytesText(bytes) : "–"),
    el("td", { style: "width:46%" }, el("div", { class: "track" }, el("i", { style: `width:${(100 * bytes) / most}%;background:${colour}` }))), el("td", { class: "soft" }, note));
  const summary = el("table", {}, el("thead", {}, el("tr", {}, ["traffic of a run", "bytes", "", ""].map((t, i) => el("th", { class: i === 1 ? "n" : "" }, t)))), el("tbody", {},
    row("memory, at least", least, "var(--soft)", "what kernels read and write, once each"),
    rows.flatMap((r) => [row(el("span", {}, chip(r.name), " predicted"), r.read + r.written, colourOf(r.name),
      `${bytesText(r.read)} read, ${bytesText(r.written)} written; ${timeText((r.read + r.written) / bandwidth(r.level) / 1e3)} at ${bandwidth(r.level).toFixed(0)} GB/s`),
    hasCounted ? row(el("span", {}, chip(r.name), " counted"), counted(r.name).bytes, colourOf(r.name),
      `by the simulator, in ${counted(r.name).n} of ${kernels.length} kernels; ${(counted(r.name).bytes / Math.max(1, counted(r.name).predicted)).toFixed(2)} times what was predicted of these`) : null,
    r.name === (LEVELS[0] || {}).name && m && m.missed_bytes ? row(el("span", {}, chip(r.name), " measured"), m.missed_bytes, colourOf(r.name),
      `misses of the last cache, a line each; ${(m.missed_bytes / Math.max(1, r.read + r.written)).toFixed(2)} times what was predicted`) : null])));
  const notes = [];
  if (!hasCounted && !isGpu) notes.push("Counted: not asked for; --count runs every kernel in the simulator.");
  if (!m) notes.push("Measured: not asked for; --measure runs the model.");
  else if (m.no_counters) notes.push(`Measured: there is no count of misses: ${m.no_counters}.`);
  const names = rows.map((r) => r.name);
  const sorted = kernels.filter((k) => k.traffic.length).sort((a, b) => sum(b.traffic, (t) => t.read_bytes + t.written_bytes) * b.launches - sum(a.traffic, (t) => t.read_bytes + t.written_bytes) * a.launches);
  const largest = new Map(names.map((n) => [n, Math.max(...kernels.map((k) => movedAt(k, n) * k.launches), 1)]));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ["kernel", "at least", ...names.flatMap((n) => [n, ""]), ...(hasCounted ? ["counted / predicted"] : []), "memory / least"].map((t, i) => el("th", { class: i > 0 && t ? "n" : "" }, t)))),
    el("tbody", {}, sorted.slice(0, 200).map((k) => el("tr", leads(`#kernels/${encodeURIComponent(k.name)}`), el("td", {}, k.launches > 1 ? el("span", { class: "soft" }, `${k.launches}× `) : null, k.name), el("td", { class: "n" }, bytesText(k.bytes * k.launches)),
      names.flatMap((n) => [el("td", { class: "n" }, bytesText(movedAt(k, n) * k.launches)), el("td", { style: "width:11%" },
        el("div", { class: "track" }, el("i", { style: `width:${(100 * movedAt(k, n) * k.launches) / largest.get(n)}%;background:${colourOf(n)}` })))]),
      hasCounted ? el("td", { class: "n" }, k.counted && movedAt(k, names[0]) ? (sum(k.counted.filter((t) => t.level === names[0]), (t) => t.read_bytes + t.written_bytes) / movedAt(k, names[0])).toFixed(2) : "–") : null,
      el("td", { class: "n" }, k.bytes ? el("span", { class: movedAt(k, names[0]) / k.bytes > 2 ? "hot" : "" }, (movedAt(k, names[0]) / k.bytes).toFixed(2)) : "–")))));
  fill("traffic", el("h2", {}, "Traffic by level"), summary, notes.map((n) => el("p", { class: "soft", style: "margin:4px 0" }, n)), el("h2", { style: "margin-top:16px" }, "By kernel"), table);
}

// --- statements: the loop nest, with what each line costs -----------------------------------------

// Lines of the loops as a tree, with iterations, arithmetic and bytes of each.
function readNest(text) {
  const root = { depth: -1, body: [], n: 1 }, open = [root], lines = [];
  text.rows.forEach((row, i) => {
    const s = row.trim();
    if (s === "}") { open.pop(); return; }
    const up = open[open.length - 1];
    const node = { i, s, depth: open.length - 1, n: up.n, body: [], flops: 0, bytes: 0, up };
    const loop = /^for (\S+?):(\S+)/.exec(s);
    if (loop) { node.isLoop = true; node.var = loop[1]; node.extent = Number(loop[2]); node.n = up.n * (node.extent >= 0 ? node.extent : 1); }
    else Object.assign(node, costOf(s, up.n));
    up.body.push(node);
    lines.push(node);
    if (s.endsWith("{")) open.push(node);
  });
  for (let i = lines.length - 1; i >= 0; i--) {
    lines[i].up.flops = (lines[i].up.flops || 0) + lines[i].flops;
    lines[i].up.bytes = (lines[i].up.bytes || 0) + lines[i].bytes;
  }
  return { root, lines };
}
function costOf(s, n) {
  const instr = /^instr (\S+?)\(/.exec(s);
  if (instr) {
    const mnk = /m(\d+)n(\d+)k(\d+)/.exec(instr[1]), tile = /\.(\d+)x(\d+)$/.exec(instr[1]);
    const flops = mnk ? 2 * mnk[1] * mnk[2] * mnk[3] : tile ? 32 * tile[1] * tile[2] : 0;
    return { flops: n * flops, bytes: n * 4 * (s.split("[").length - 1) };
  }
  if (!/[+*a-z]?=/.test(s) || s.startsWith("param") || s.startsWith("workspace")) return { flops: 0, bytes: 0 };
  const value = s.replace(/\[[^\]]*\]/g, "[]");
  const right = value.slice(value.indexOf("=") + 1);
  const ops = (right.match(/[-+*/]|\b(min|max|exp|sqrt|tanh|erf|log)\(/g) || []).length + (/[+*]=|max=|min=/.test(value) ? 1 : 0);
  return { flops: n * ops, bytes: 4 * n * (s.split("[").length - 1) };
}

const statementView = { closed: new Set() };
function nestRow(node, k, totals) {
  const bar = (share, colour, what) => el("i", { style: `width:${(50 * share).toFixed(1)}px;margin-right:${(52 - 50 * share).toFixed(1)}px;background:${colour}`, title: `${what} ${percent(share)}` });
  const words = [];
  let from = 0;
  for (const m of node.s.matchAll(/[A-Za-z_][\w.]*/g)) {
    words.push(...coloured(node.s.slice(from, m.index), "loops"));
    const isWord = /^(for|if|alloc|instr|prefetch|kernel|param|workspace|shared|local|register|tensor|where|pack|parallel|vectorized|unrolled|(block|thread)\.[xyz]|f32|f16|bf16|i64|i32)$/.test(m[0]);
    words.push(el("span", isWord ? { class: "kw" } : { class: "v", "data-v": m[0] }, m[0]));
    from = m.index + m[0].length;
  }
  words.push(...coloured(node.s.slice(from), "loops"));
  const closed = statementView.closed.has(node.i), folds = node.body.length > 0;
  return el("div", { class: "l", onclick: folds ? () => {
    if (closed) statementView.closed.delete(node.i);
    else statementView.closed.add(node.i);
    statementView.refresh();
  } : null, title: node.isLoop ? `${node.n.toLocaleString()} iterations` : `run ${node.n.toLocaleString()} times` },
  el("span", { class: "no" }, String(node.i + 1)), el("span", { class: "bars" }, bar(totals.flops ? node.flops / totals.flops : 0, "var(--accent)", "arithmetic"), bar(totals.bytes ? node.bytes / totals.bytes : 0, "var(--l0)", "accesses")),
  "  ".repeat(node.depth), el("span", { class: "fold" }, folds ? (closed ? "▸" : "▾") : ""), words, closed ? el("span", { class: "com" }, " … }") : "");
}

function lightVariable(host, name) {
  for (const e of host.querySelectorAll(".v")) e.classList.toggle("same", e.dataset.v === name);
}

async function drawStatements(argument) {
  const v = statementView, k = byName.get(argument) || v.k || byTime[0];
  if (!v.list) {
    v.list = new KernelList("statements");
    v.body = el("div", { class: "body", style: "display:flex;flex-direction:column;height:100%" });
    fill("statements", el("div", { class: "sides" }, v.list.root, v.body));
  }
  if (v.k !== k) v.closed.clear();
  v.k = k;
  v.list.choose(k);
  const code = await codeOf(k), loops = code.texts.find((t) => t.name === "loops");
  if (v.k !== k) return;
  const host = el("div", { class: "lines scroll", tabindex: 0, role: "region", "aria-label": "Loop nest" });
  fill(v.body, el("h2", {}, `${k.name}: loop nest`), isDefinition ? el("details", { open: kernels.length === 1 }, el("summary", {}, `Definition, ${D.path}`),
    el("pre", { class: "scroll mono", style: "padding:6px 10px;margin:4px 0;max-height:170px" }, D.definition)) : null,
  el("div", { class: "stmt", style: "margin:4px 0" }, k.prims.slice(0, 12).map((p) => el("div", {}, p.text))),
  el("div", { class: "key" }, el("span", {}, el("i", { style: "--c:var(--accent)" }), "arithmetic"), el("span", {}, el("i", { style: "--c:var(--l0)" }), "accesses, each line's share of the kernel, counted by iterations"),
    "Click folds a loop; pointing at a name marks it everywhere."), host);
  if (!loops) return;
  const nest = readNest(loops), totals = { flops: nest.root.flops, bytes: nest.root.bytes };
  const rows = new Rows(host, 18, (node) => nestRow(node, k, totals));
  v.refresh = () => {
    const hidden = (n) => n.up && (v.closed.has(n.up.i) || hidden(n.up));
    rows.set(nest.lines.filter((n) => !hidden(n)));
  };
  host.addEventListener("mouseover", (e) => { if (e.target.dataset.v) lightVariable(host, e.target.dataset.v); });
  rows.space.style.width = `${loops.rows.reduce((m, r) => Math.max(m, r.length), 0) + 30}ch`;
  v.refresh();
}

// --- search ------------------------------------------------------------------------------------

function makeIndex() {
  const out = views.map((v) => ({ text: v.title, kind: "view", hash: `#${v.id}` }));
  for (const k of kernels) out.push({ text: k.name, kind: "kernel", hash: `#kernels/${encodeURIComponent(k.name)}`, more: tail(k.nodes || "", 60) });
  for (const l of launches) for (const node of l.nodes.split("+"))
    out.push({ text: node, kind: "node", hash: `#kernels/${encodeURIComponent(l.kernel)}`, more: l.kernel });
  D.flows.forEach((f, i) => out.push({ text: f.tensor, kind: "tensor", hash: `#graph/${i}`, more: bytesText(f.bytes) }));
  for (const k of kernels) for (const p of k.prims) out.push({ text: p.text, kind: "statement", hash: `#statements/${encodeURIComponent(k.name)}`, more: k.name });
  return out;
}
const finder = { index: null, found: [], at: 0 };
function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  finder.index = finder.index || makeIndex();
  finder.found = [];
  for (const x of finder.index) {
    const t = `${x.text} ${x.kind}`.toLowerCase();
    if (words.every((w) => t.includes(w))) finder.found.push(x);
    if (finder.found.length >= 60) break;
  }
  finder.at = 0;
  showFound();
}
function showFound() {
  fill("search-results", finder.found.map((x, i) => el("li", { role: "option", id: `found-${i}`, "aria-selected": i === finder.at,
    onclick: () => openFound(i) }, el("span", { class: "soft" }, `${x.kind} `), el("span", { class: "mono" }, head(x.text, 80)), x.more ? el("span", { class: "soft" }, ` ${x.more}`) : null)));
  $("search-input").setAttribute("aria-activedescendant", `found-${finder.at}`);
  $(`found-${finder.at}`)?.scrollIntoView({ block: "nearest" });
}
function openFound(i) {
  const x = finder.found[i];
  $("search").close();
  if (x) go(x.hash);
}
function openSearch() {
  $("search").showModal();
  $("search-input").select();
  find($("search-input").value);
}
$("search-input").addEventListener("input", (e) => find(e.target.value));
$("search-input").addEventListener("keydown", (e) => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  if (by) { e.preventDefault(); finder.at = clamp(finder.at + by, 0, finder.found.length - 1); showFound(); }
  if (e.key === "Enter") { e.preventDefault(); openFound(finder.at); }
});

// --- views, theme and keys ---------------------------------------------------------------------

const views = [
  { id: "overview", title: "Overview", draw: drawOverview },
  { id: "graph", title: "Graph", draw: drawGraph },
  { id: "kernels", title: "Kernels", draw: drawKernels },
  { id: "roofline", title: "Roofline", draw: drawRoofline },
  { id: "timeline", title: "Time line", draw: drawTimeline },
  { id: "traffic", title: "Traffic", draw: drawTraffic },
  { id: "statements", title: "Statements", draw: drawStatements },
];
let current = views[0];

function show() {
  const [id, ...rest] = location.hash.slice(1).split("/");
  current = views.find((v) => v.id === id) || views[0];
  hideTip();
  for (const v of views) {
    $(v.id).hidden = v !== current;
    $(`tab-${v.id}`).setAttribute("aria-selected", v === current);
    $(`tab-${v.id}`).tabIndex = v === current ? 0 : -1;
  }
  return current.draw(decodeURIComponent(rest.join("/")));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  if (current.id === "timeline" && line.canvas) paintLine();
}
const systemTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
function firstTheme() {
  let kept = null;
  try { kept = localStorage.getItem("kiln-theme"); } catch { /* a file may have no storage */ }
  return kept || systemTheme();
}
// What is not as the system has it is remembered.
function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    if (theme === systemTheme()) localStorage.removeItem("kiln-theme");
    else localStorage.setItem("kiln-theme", theme);
  } catch { /* as above */ }
  setTheme(theme);
}

const keys = [
  ["1 – 7", "the views"], ["/", "search"], ["?", "these keys"], ["t", "dark or light"], ["j, k", "the next kernel by time, the one before"],
  ["s", "the slowest edge in the graph"], ["+, -, 0", "graph and time line: larger, smaller, all"], ["arrows", "move in lists, code, graph and time line"],
  ["Enter", "open what is chosen"], ["Space", "graph: a kernel's statements"], ["Esc", "close"]];
function stepKernel(by) {
  const list = current.id === "statements" ? statementView.list : kernelView.list;
  if (list && (current.id === "statements" || current.id === "kernels")) list.step(by);
  else go(`#kernels/${encodeURIComponent(byTime[0].name)}`);
}
function graphKey(key) {
  const box = $("graph").getBoundingClientRect(), v = graph.view;
  const acts = { "+": () => zoomGraph(1.25, box.width / 2, box.height / 2), "-": () => zoomGraph(0.8, box.width / 2, box.height / 2),
    0: () => { clearChoice(); fitGraph(); }, ArrowLeft: () => { v.x += 60; askPaint(); }, ArrowRight: () => { v.x -= 60; askPaint(); },
    ArrowUp: () => { v.y += 60; askPaint(); }, ArrowDown: () => { v.y -= 60; askPaint(); } };
  if (acts[key]) acts[key]();
  return Boolean(acts[key]);
}
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, select, textarea") || document.querySelector("dialog[open]")) return;
  const acts = { "/": openSearch, "?": () => $("help").showModal(), t: switchTheme, j: () => stepKernel(1), k: () => stepKernel(-1),
    s: () => { if (slowestEdge) go(edgeHash(slowestEdge)); }, Escape: () => { if (graph.drawn) { clearChoice(); paintGraph(); } } };
  const view = views[Number(e.key) - 1];
  if (view) go(`#${view.id}`);
  else if (acts[e.key]) { e.preventDefault(); acts[e.key](); }
  else if (current.id === "graph" && graphKey(e.key)) e.preventDefault();
});

function begin() {
  const name = (D.path || D.model).split("/").pop();
  document.title = `${name} – Kiln report`;
  $("title").textContent = name;
  $("title").title = `${D.path}, by Kiln ${D.kiln}`;
  fill("tabs", views.map((v, i) => el("button", { role: "tab", id: `tab-${v.id}`, "aria-controls": v.id, "aria-keyshortcuts": String(i + 1), onclick: () => go(`#${v.id}`),
    onkeydown: (e) => { const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key]; if (by) { const to = views[(i + by + views.length) % views.length]; go(`#${to.id}`); $(`tab-${to.id}`).focus(); } } }, v.title)));
  fill("help", el("h2", {}, "Keys"), el("dl", {}, keys.flatMap(([k, what]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, what)])), el("p", {}, el("button", { onclick: () => $("help").close() }, "Close")));
  $("search-button").onclick = openSearch;
  $("theme-button").onclick = switchTheme;
  $("help-button").onclick = () => $("help").showModal();
  setTheme(firstTheme());
  addEventListener("hashchange", show);
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => { if (current.id === "graph") { layoutGraph(); fitGraph(); } else if (current.id === "roofline") drawRoofline(); }, 120); });
  show();
}
begin();
