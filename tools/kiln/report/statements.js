// The loop nest of a kernel, with the cost of each line.

// Lines of the loops as a tree, with iterations, arithmetic and bytes of each.
function readNest(text) {
  const root = {depth: -1, body: [], n: 1}, open = [root], lines = [];
  text.rows.forEach((row, i) => {
    const s = row.trim();
    if (s === "}") {
      open.pop();
      return;
    }
    const up = open[open.length - 1];
    const node = {i, s, depth: open.length - 1, n: up.n, body: [], flops: 0, bytes: 0, up};
    const loop = /^for (\S+?):(\S+)/.exec(s);
    if (loop) {
      node.isLoop = true;
      node.var = loop[1];
      node.extent = Number(loop[2]);
      node.n = up.n * (node.extent >= 0 ? node.extent : 1);
    } else if (!s.endsWith("{"))
      Object.assign(node, costOf(s, up.n));
    up.body.push(node);
    lines.push(node);
    if (s.endsWith("{")) open.push(node);
  });
  for (let i = lines.length - 1; i >= 0; i--) {
    lines[i].up.flops = (lines[i].up.flops || 0) + lines[i].flops;
    lines[i].up.bytes = (lines[i].up.bytes || 0) + lines[i].bytes;
  }
  return {root, lines};
}
function costOf(s, n) {
  const instr = /^instr (\S+?)\(/.exec(s);
  if (instr) {
    const mnk = /m(\d+)n(\d+)k(\d+)/.exec(instr[1]), tile = /\.(\d+)x(\d+)$/.exec(instr[1]);
    const flops = mnk ? 2 * mnk[1] * mnk[2] * mnk[3] : tile ? 32 * tile[1] * tile[2] : 0;
    return {flops: n * flops, bytes: n * 4 * (s.split("[").length - 1)};
  }
  if (!/[+*a-z]?=/.test(s) || s.startsWith("param") || s.startsWith("workspace"))
    return {flops: 0, bytes: 0};
  const value = s.replace(/\[[^\]]*\]/g, "[]");
  const right = value.slice(value.indexOf("=") + 1);
  const ops = (right.match(/[-+*/]|\b(min|max|exp|sqrt|tanh|erf|log)\(/g) || []).length +
    (/[+*]=|max=|min=/.test(value) ? 1 : 0);
  return {flops: n * ops, bytes: 4 * n * (s.split("[").length - 1)};
}

const statementView = {
  closed: new Set()
};
function nestRow(node, k, totals) {
  const part = (share, colour, what) => el("i", {
    style: `width:${(50 * share).toFixed(1)}px;margin-right:${
      (52 - 50 * share).toFixed(1)}px;background:${colour}`,
    title: `${what} ${percent(share)}`
  });
  const words = [];
  let from = 0;
  for (const m of node.s.matchAll(/[A-Za-z_][\w.]*/g)) {
    words.push(...coloured(node.s.slice(from, m.index), "loops"));
    const isWord = isKeyword.has(m[0]);
    words.push(el("span", isWord ? {class: "kw"} : {class: "v", "data-v": m[0]}, m[0]));
    from = m.index + m[0].length;
  }
  words.push(...coloured(node.s.slice(from), "loops"));
  const closed = statementView.closed.has(node.i), folds = node.body.length > 0;
  return el(
      "div", {
        class: "l",
        onclick: folds ?
            () => {
              if (closed)
                statementView.closed.delete(node.i);
              else
                statementView.closed.add(node.i);
              statementView.refresh();
            } :
            null,
        title: node.isLoop ? `${node.n.toLocaleString()} iterations` :
                             `run ${node.n.toLocaleString()} times`
      },
      el("span", {class: "no"}, String(node.i + 1)),
      el("span", {class: "bars"},
         part(totals.flops ? node.flops / totals.flops : 0, "var(--accent)", "arithmetic"),
         part(totals.bytes ? node.bytes / totals.bytes : 0, "var(--l0)", "accesses")),
      "  ".repeat(node.depth), el("span", {class: "fold"}, folds ? (closed ? "▸" : "▾") : ""),
      words, closed ? el("span", {class: "com"}, " … }") : "");
}

function lightVariable(host, name) {
  for (const e of host.querySelectorAll(".v")) e.classList.toggle("same", e.dataset.v === name);
}

async function drawStatements(argument) {
  const v = statementView, k = byName.get(argument) || v.k || byTime[0];
  if (!v.list) {
    v.list = new KernelList("statements");
    v.body = el("div", {class: "body", style: "display:flex;flex-direction:column;height:100%"});
    fill("statements", el("div", {class: "sides"}, v.list.root, v.body));
  }
  if (v.k !== k) v.closed.clear();
  v.k = k;
  v.list.choose(k);
  const code = await codeOf(k), loops = code.texts.find((t) => t.name === "loops");
  if (v.k !== k) return;
  const host =
    el("div", {class: "lines scroll", tabindex: 0, role: "region", "aria-label": "Loop nest"});
  fill(v.body, el("h2", {}, `${k.name}: loop nest`),
    isDefinition
      ? el("details", {open: kernels.length === 1}, el("summary", {}, `Definition, ${D.path}`),
          el("pre", {class: "scroll mono", style: "padding:6px 10px;margin:4px 0;max-height:170px"},
            D.definition))
      : null,
    el("div", {class: "stmt", style: "margin:4px 0"},
      k.prims.slice(0, 12).map((p) => el("div", {}, p.text))),
    el("div", {class: "key"}, el("span", {}, el("i", {style: "--c:var(--accent)"}), "arithmetic"),
      el("span", {}, el("i", {style: "--c:var(--l0)"}),
        "accesses, each line's share of the kernel, counted by iterations"),
      "Click folds a loop; pointing at a name marks it everywhere."),
    host);
  if (!loops) return;
  const nest = readNest(loops), totals = {flops: nest.root.flops, bytes: nest.root.bytes};
  const rows = new Rows(host, 18, (node) => nestRow(node, k, totals));
  v.refresh = () => {
    const hidden = (n) => n.up && (v.closed.has(n.up.i) || hidden(n.up));
    rows.set(nest.lines.filter((n) => !hidden(n)));
  };
  host.addEventListener("mouseover", (e) => {
    if (e.target.dataset.v) lightVariable(host, e.target.dataset.v);
  });
  rows.space.style.width = `${loops.rows.reduce((m, r) => Math.max(m, r.length), 0) + 30}ch`;
  v.refresh();
}
