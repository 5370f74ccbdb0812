// Elements, formatted numbers, tooltips, tables, and lists with elements for visible rows only.

function el(tag, attributes, ...children) {
  const svg = el.svg.has(tag);
  const e =
    svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    const isState = key.startsWith("aria-");  // whose false is said
    if (value === null || value === undefined || (value === false && !isState)) continue;
    if (key.startsWith("on"))
      e.addEventListener(key.slice(2), value);
    else if (key === "style")
      e.style.cssText = value;
    else
      e.setAttribute(key, value === true && !isState ? "" : value);
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
const speedText = (gflops) => (gflops < 1e4 ? `${gflops.toFixed(gflops < 1e3 ? 1 : 0)} GFLOP/s`
                                            : `${(gflops / 1e3).toFixed(1)} TFLOP/s`);
const rate = (flops, us) => (us > 0 && flops > 0 ? speedText(flops / us / 1e3) : "–");
const tail = (text, n) => (text.length <= n ? text : `…${text.slice(text.length - n + 1)}`);
const head = (text, n) => (text.length <= n ? text : `${text.slice(0, n - 1)}…`);
const chip = (level, text) =>
  el("span", {class: "chip", style: `--c:${colourOf(level)}`}, text || level);
const kernelLink = (name) =>
  byName.has(name) ? el("a", {href: `#kernels/${encodeURIComponent(name)}`}, name) : name;
const bar = (share, colour) => el("div", {class: "track", "aria-hidden": "true"},
  el("i", {style: `width:${(100 * clamp(share, 0, 1)).toFixed(2)}%;background:${colour}`}));
// Heads of numeric columns begin with "#".
function table(heads, rows) {
  const cells = heads.map((h) => el("th", {class: h[0] === "#" ? "n" : null}, h.replace("#", "")));
  return el("table", {}, el("thead", {}, el("tr", {}, cells)), el("tbody", {}, rows));
}
function track(share, second) {
  return el("div", {class: "track", "aria-hidden": "true"},
    el("i", {style: `width:${(100 * clamp(share, 0, 1)).toFixed(2)}%`}),
    second > 0
      ? el("i", {class: "second", style: `left:${(100 * clamp(second, 0, 1)).toFixed(2)}%`})
      : null);
}
function go(hash) {
  if (location.hash === hash)
    show();
  else
    location.hash = hash;
}
// A table row that is a link, for mouse and keyboard.
function leads(hash) {
  return {
    "data-go": hash,
    tabindex: 0,
    onclick: () => go(hash),
    onkeydown: (e) => {
      if (e.key === "Enter") go(hash);
    }
  };
}
const edgeHash = (e) => e.kind === "inside" ? `#kernels/${encodeURIComponent(e.kernel.name)}`
                                            : `#graph/${D.flows.indexOf(e.flow)}`;

const tip = $("tip");
function showTip(event, ...children) {
  fill(tip, ...children);
  tip.hidden = false;
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10}px`;
}
const hideTip = () => {
  tip.hidden = true;
};

// A list with elements for its visible part only.
class Rows {
  constructor(host, height, render) {
    Object.assign(this, {host, height, render, items: [], shown: new Map(), space: el("div", {})});
    host.replaceChildren(this.space);
    host.addEventListener("scroll", () => this.draw(), {passive: true});
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
      if (i < first || i >= last) {
        node.remove();
        this.shown.delete(i);
      }
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
    if (y < this.host.scrollTop + this.height ||
      y > this.host.scrollTop + this.host.clientHeight - 2 * this.height)
      this.host.scrollTop = Math.max(0, y - this.host.clientHeight / 3);
    this.draw();
  }
}

// Syntax highlighting of a line of code.
const KEYWORDS =
  "kernel param workspace shared local register for if alloc instr prefetch parallel vectorized " +
  "unrolled block.x block.y block.z thread.x thread.y thread.z where tensor pack define load " +
  "store br phi call ret getelementptr fadd fmul fma void float double int const extern return " +
  "split reorder vectorize unroll tile cache_write compute_at tensorize merge bind stage f32 f16 " +
  "bf16 i64 i32 u8 i8";
const isKeyword = new Set(KEYWORDS.split(" "));
const WORDS = new RegExp(String.raw`(//.*|#.*|;.*|"[^"]*")|\b(${
                           KEYWORDS.replaceAll(".", "[.]").replaceAll(" ", "|")})\b|` +
    String.raw`(\b\d[\w.]*\b)`,
  "g");
function coloured(text, kind) {
  const out = [];
  let from = 0;
  for (const m of text.matchAll(WORDS)) {
    if (m[1] && (m[1][0] === "#" || m[1][0] === ";") &&
      !(kind === "asm" || kind === "llvm" || kind === "script"))
      continue;
    if (m[1] && m[1][0] === ";" && kind !== "llvm") continue;
    if (m.index > from) out.push(text.slice(from, m.index));
    out.push(el("span", {class: m[1] ? "com" : m[2] ? "kw" : "num"}, m[0]));
    from = m.index + m[0].length;
  }
  out.push(text.slice(from));
  return out;
}
