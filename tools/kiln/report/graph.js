// The graph of launches: layers in columns, edges by level, kernels that expand to statements.

const NODE_W = 190, NODE_H = 46, OPEN_W = 470, GAP_X = 22, GAP_Y = 34, ROW = 16, COLUMN_GAP = 90;
const TOP = 48;  // what lies over the graph there
const SMALL = 0.002, SMALL_W = 74,
      SMALL_H = 26;  // of the time of a run: launches that are drawn small
const graph = {
  nodes: [],
  edges: [],
  view: {x: 0, y: 0, s: 1},
  open: new Set(),
  weights: false,
  drawn: false,
  chosen: -1,
  edge: -1
};

// Nodes are launches, inputs and outputs; a layer is the longest path from an input.
function makeGraph() {
  const nodes = launches.map((l) => ({id: l.id, launch: l, layer: 0}));
  const ports = new Map();
  const port = (key, text) => {
    if (!ports.has(key)) {
      ports.set(key, {id: nodes.length, text, layer: 0});
      nodes.push(ports.get(key));
    }
    return ports.get(key).id;
  };
  graph.edges = D.flows.filter((f) => f.from !== -2).map((f) => ({
    flow: f,
    a: f.from >= 0 ? f.from : port(`in ${f.tensor}`, `input ${f.tensor}`),
    b: f.to >= 0 ? f.to : port(`out ${f.tensor}`, `output ${f.tensor}`)
  }));
  const ins = nodes.map(() => []), outs = nodes.map(() => []);
  for (const e of graph.edges) {
    ins[e.b].push(e);
    outs[e.a].push(e);
  }
  Object.assign(graph, {nodes, ins, outs, weightsOf: new Map()});
  D.flows.forEach((f, i) => {
    f.number = i;
    if (f.from === -2) graph.weightsOf.set(f.to, (graph.weightsOf.get(f.to) || 0) + f.bytes);
  });
  for (const e of [...graph.edges].sort((x, y) => y.flow.us - x.flow.us).slice(0, 12))
    e.flow.isSlow = true;  // labelled from afar, too
  for (const n of nodes)
    if (!n.launch && n.text.startsWith("input")) n.layer = 0;
  for (const n of nodes)
    if (n.launch) n.layer = Math.max(0, ...ins[n.id].map((e) => nodes[e.a].layer + 1));
  for (const n of nodes)
    if (!n.launch && ins[n.id].length)
      n.layer = Math.max(...ins[n.id].map((e) => nodes[e.a].layer + 1));
  // each node moves to the latest layer possible: inputs and short branches are next to their
  // readers
  for (let i = nodes.length - 1; i >= 0; i--) {
    const n = nodes[i];
    if (outs[i].length && !ins[i].length)
      n.layer = Math.max(0, Math.min(...outs[i].map((e) => nodes[e.b].layer)) - 1);
  }
}

function sizeOf(n) {
  const k = n.launch && n.launch.k;
  if (k && graph.open.has(n.id)) return {w: OPEN_W, h: NODE_H + 6 + ROW * k.prims.length};
  if (k && n.launch.us < SMALL * total) return {w: SMALL_W, h: SMALL_H, isSmall: true};
  return {w: NODE_W, h: n.launch ? NODE_H : SMALL_H};
}

// Orders nodes by the barycentres of their predecessors, to reduce crossings.
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
    if (y + heights[i] / 2 > limit && columns.length < n_columns) {
      columns.push([]);
      y = 0;
    }
    columns[columns.length - 1].push(i);
    y += heights[i];
  });
  for (const of of columns) {
    widest = Math.max(...of.map((i) => sum(layers[i], (n) => sizeOf(n).w + GAP_X) - GAP_X));
    y = 0;
    for (const i of of ) {
      let left = x + (widest - (sum(layers[i], (n) => sizeOf(n).w + GAP_X) - GAP_X)) / 2;
      for (const n of layers[i]) {
        Object.assign(n, {isSmall: false}, sizeOf(n), {x: left, y, column});
        left += n.w + GAP_X;
      }
      y += heights[i];
    }
    most = Math.max(most, y);
    x += widest + COLUMN_GAP;
    column++;
  }
  return {w: x - COLUMN_GAP, h: most};
}

// The number of columns at which the whole graph is largest.
function layoutGraph() {
  const layers = orderLayers(), box = $("graph").getBoundingClientRect();
  const w = Math.max(400, box.width - 40), h = Math.max(300, box.height - TOP - 20);
  let best = {s: 0, n: 1};
  for (let n = 1; n <= Math.min(24, layers.length); n++) {
    const size = placeColumns(layers, n), s = Math.min(w / size.w, h / size.h);
    if (s > best.s) best = {s, n};
  }
  graph.size = placeColumns(layers, best.n);
}

function fitGraph() {
  const box = $("graph").getBoundingClientRect();
  const s = Math.min(1.2, (box.width - 40) / graph.size.w, (box.height - TOP - 20) / graph.size.h);
  graph.view = {
    s,
    x: (box.width - graph.size.w * s) / 2,
    y: TOP + (box.height - TOP - graph.size.h * s) / 2
  };
  paintGraph();
}

function edgePath(a, b) {
  const ax = a.x + a.w / 2, ay = a.y + a.h, bx = b.x + b.w / 2, by = b.y;
  if (a.column === b.column && by > ay - 1) {
    if (b.layer - a.layer <= 1 || by - ay <= GAP_Y + 2) {
      const m = (by - ay) / 2;
      return {
        d: `M${ax} ${ay}C${ax} ${ay + m} ${bx} ${by - m} ${bx} ${by}`,
        x: (ax + bx) / 2,
        y: (ay + by) / 2,
        isFlat: Math.abs(bx - ax) > by - ay
      };
    }
    const g = Math.max(a.x + a.w, b.x + b.w) + 24 + 5 * Math.min(7, b.layer - a.layer);
    const y1 = a.y + a.h * 0.7, y2 = b.y + b.h * 0.3;
    return {
      d: `M${a.x + a.w} ${y1}C${g} ${y1} ${g} ${y2} ${b.x + b.w} ${y2}`,
      x: (a.x + a.w + 3 * g) / 4,
      y: (y1 + y2) / 2
    };
  }
  const y1 = a.y + a.h / 2, y2 = b.y + b.h / 2, forth = b.x >= a.x + a.w;
  const x1 = forth ? a.x + a.w : a.x, x2 = forth ? b.x : b.x + b.w, m = forth ? 44 : -44;
  return {d: `M${x1} ${y1}C${x1 + m} ${y1} ${x2 - m} ${y2} ${x2} ${y2}`, x: x1 + m, y: y1 - 6};
}

const isSlowest = (f) => slowestEdge && slowestEdge.kind === "between" && f.from >= 0 &&
  f.to >= 0 && launches[f.from].kernel === slowestEdge.from &&
  launches[f.to].kernel === slowestEdge.to && f.bytes === slowestEdge.bytes;

function edgeTip(event, f) {
  showTip(event,
    el("div", {},
      el("b", {}, f.from >= 0 ? launches[f.from].kernel : "input", " → ",
        f.to >= 0 ? launches[f.to].kernel : "output")),
    el("div", {}, chip(f.level), ` ${bytesText(f.bytes)}, ${timeText(f.us)} to move`),
    el("div", {class: "mono"}, `${f.tensor} ${f.dtype}(${f.shape.join(", ")})`),
    f.reason ? el("div", {}, el("b", {}, "Not fused: "), f.reason) : null);
}

function paintEdge(e, seen, labels) {
  const a = graph.nodes[e.a], b = graph.nodes[e.b], f = e.flow;
  const x0 = Math.min(a.x, b.x) - 70, x1 = Math.max(a.x + a.w, b.x + b.w) + 70;
  const y0 = Math.min(a.y, b.y), y1 = Math.max(a.y + a.h, b.y + b.h);
  if (x1 < seen.x0 || x0 > seen.x1 || y1 < seen.y0 || y0 > seen.y1) return [];
  const p = edgePath(a, b), chosen = graph.chosen, number = f.number;
  const faint =
    graph.edge >= 0 ? graph.edge !== number : chosen >= 0 && e.a !== chosen && e.b !== chosen;
  const width = clamp(1 + 1.6 * Math.log10(Math.max(1, f.bytes / 1e4)), 1, 8);
  const over = {
    onmousemove: (event) => edgeTip(event, f),
    onmouseleave: hideTip,
    onclick: () => go(`#graph/${number}`)
  };
  const glows = graph.edge >= 0 ? graph.edge === number : isSlowest(f);
  return [
    glows ? el("path", {class: "edge glow", d: p.d, "stroke-width": Math.max(12, width + 8)})
          : null,
    el("path", {
      class: `edge${faint ? " faint" : ""}`,
      d: p.d,
      style: `--c:${colourOf(f.level)}`,
      "stroke-width": width
    }),
    el("path", {class: "hit", d: p.d, ...over}),
    (labels || f.isSlow || glows) && !faint
      ? el("text", {
          class: `edge-label${glows ? " hot" : ""}`,
          // beside the line, which would strike it through; above one that is nearly level
          x: p.isFlat ? p.x : p.x + width / 2 + 5,
          y: p.isFlat ? p.y - width / 2 - 3 : p.y + 4,
          "text-anchor": p.isFlat ? "middle" : "start",
          style: `font-size:${clamp(11 / graph.view.s, 11, 26)}px`
        },
          glows ? `${isSlowest(f) ? "slowest: " : ""}${bytesText(f.bytes)}, ${timeText(f.us)}`
                : bytesText(f.bytes))
      : null
  ];
}

// The statements of an expanded kernel; tensors between them are drawn at their left.
function paintStatements(n, k) {
  const names = k.prims.map((p) => p.text.slice(0, p.text.search(/[(\s=]/)));
  const out =
    k.prims.map((p, i) => el("text", {class: "stmt", x: n.x + 62, y: n.y + NODE_H + 10 + ROW * i},
                  head(p.text, 58), el("title", {}, p.text)));
  let lane = 0;
  for (const e of k.edges) {
    const from = names.indexOf(e.from);
    if (from < 0) continue;
    const last = Math.max(...e.to.split(", ").map((t) => names.indexOf(t.split(" ")[0])));
    if (last <= from) continue;
    const x = n.x + 54 - 7 * (lane++ % 6), y0 = n.y + NODE_H + 7 + ROW * from,
          y1 = n.y + NODE_H + 7 + ROW * last;
    out.push(el("path", {
      class: "edge",
      style: `--c:${colourOf(e.level)}`,
      "stroke-width": 2.5,
      d: `M${n.x + 60} ${y0}H${x}V${y1}H${n.x + 60}`
    }),
      el("path", {
        class: "hit",
        d: `M${x} ${y0}V${y1}`,
        onmousemove: (event) => showTip(event, el("b", {}, `${e.tensor}: ${e.from} → ${e.to}`),
          el("div", {}, chip(e.level), ` ${bytesText(e.bytes)}`, e.box ? `, box ${e.box}` : "")),
        onmouseleave: hideTip
      }));
  }
  return out;
}

function nodeTip(event, n) {
  const k = n.launch.k;
  showTip(event, el("b", {}, k.name),
    el("div", {}, `${timeText(n.launch.us)}, ${percent(n.launch.us / total)} of a run`,
      k.bound ? `, bound by ${boundText(k)}` : ""),
    el("div", {class: "soft"}, head(n.launch.nodes, 220)),
    el("div", {class: "soft"}, "Click: its statements. Double click: its page."));
}

function paintNode(n, detail) {
  const k = n.launch && n.launch.k, share = k ? n.launch.us / total : 0;
  const most = graph.most || 1, heat = k ? Math.sqrt(n.launch.us / most) : 0;
  const weights = graph.weightsOf.get(n.id) || 0;
  const g = el("g", {
    class: `node${k ? "" : " io"}${graph.chosen === n.id ? " chosen" : ""}`,
    tabindex: 0,
    role: "button",
    "data-node": n.id,
    "aria-label": k ? `${k.name}, ${timeText(n.launch.us)}, ${percent(share)}` : n.text,
    "aria-expanded": k ? graph.open.has(n.id) : null,
    onclick: () => {
      if (k && !graph.moved) toggleNode(n.id);
    },
    ondblclick: () => {
      if (k) go(`#kernels/${encodeURIComponent(k.name)}`);
    },
    onkeydown: (e) => {
      if (e.key === "Enter" && k) go(`#kernels/${encodeURIComponent(k.name)}`);
      if (e.key === " " && k) {
        e.preventDefault();
        toggleNode(n.id);
      }
    },
    onmousemove: (e) => {
      if (k) nodeTip(e, n);
    },
    onmouseleave: hideTip
  },
    el("rect", {class: "box", x: n.x, y: n.y, width: n.w, height: n.h, rx: 6}),
    k ? el("rect", {
      class: "heat",
      x: n.x,
      y: n.y,
      width: n.w,
      height: n.h,
      rx: 6,
      "fill-opacity": (0.5 * heat).toFixed(3)
    })
      : null);
  if (!k || n.isSmall) {
    const text = k ? k.name.split("_").slice(0, 2).join("_") : n.text;
    g.append(el("text", {class: "small", x: n.x + 6, y: n.y + 17}, head(text, k ? 10 : 28)));
    return g;
  }
  if (!detail) {  // from afar: its number and its time, as large as there is room for
    const size = clamp(11 / graph.view.s, 12, 30);
    g.append(el("text", {x: n.x + 8, y: n.y + 23 + size / 3, style: `font-size:${size}px`},
      `${k.name.split("_")[0]} ${timeText(n.launch.us)}`));
    return g;
  }
  g.append(el("text", {x: n.x + 8, y: n.y + 18}, head(k.name, n.w > NODE_W ? 60 : 26)),
    el("text", {class: "small", x: n.x + 8, y: n.y + 36},
      `${timeText(n.launch.us)} · ${percent(share)}${
        weights > 1e4 ? ` · w ${bytesText(weights)}` : ""}`));
  if (graph.open.has(n.id)) g.append(...paintStatements(n, k));
  return g;
}

// Elements are made for the visible part and a margin around it; while these suffice, and texts
// keep their sizes, moving and zooming only transforms them.
const detailOf = (s) => Math.round(4 * Math.log2(s));
function paintGraph() {
  graph.world = null;
  movePainted();
}
function movePainted() {
  const box = $("graph").getBoundingClientRect(), {x, y, s} = graph.view;
  const seen = {x0: -x / s, y0: -y / s, x1: (box.width - x) / s, y1: (box.height - y) / s};
  const p = graph.painted;
  const isEnough = graph.world &&
    Math.abs(detailOf(s) - p.detail) <= (s > 0.7 === p.s > 0.7 ? 1 : 0) &&
    (p.isAll || (seen.x0 >= p.x0 && seen.y0 >= p.y0 && seen.x1 <= p.x1 && seen.y1 <= p.y1));
  if (!isEnough) makePainted(seen, s);
  graph.world.setAttribute("transform", `translate(${x} ${y}) scale(${s})`);
}

function makePainted(seen, s) {
  const w = seen.x1 - seen.x0, h = seen.y1 - seen.y0;
  const around = {
    x0: seen.x0 - w / 2,
    y0: seen.y0 - h / 2,
    x1: seen.x1 + w / 2,
    y1: seen.y1 + h / 2,
    detail: detailOf(s),
    s
  };
  around.isAll = around.x0 < -100 && around.y0 < -100 && around.x1 > graph.size.w + 100 &&
    around.y1 > graph.size.h + 100;
  const inside = (n) =>
    n.x + n.w >= around.x0 && n.x <= around.x1 && n.y + n.h >= around.y0 && n.y <= around.y1;
  const world = el("g", {});
  const nodes = graph.nodes.filter(inside).map((n) => paintNode(n, s > 0.7));
  const drawn = [...graph.edges]
                  .sort((a, b) => isSlowest(a.flow) - isSlowest(b.flow))
                  .flatMap((e) => paintEdge(e, around, s > 0.7))
                  .filter(Boolean);
  world.append(...drawn.filter((e) => e.classList.contains("edge")),
    ...drawn.filter((e) => e.classList.contains("hit")), ...nodes,
    ...drawn.filter((e) => e.classList.contains("edge-label")));
  const focused =
    document.activeElement && document.activeElement.dataset && document.activeElement.dataset.node;
  graph.svg.replaceChildren(world);
  if (focused !== undefined)
    graph.svg.querySelector(`[data-node="${focused}"]`)?.focus({preventScroll: true});
  Object.assign(graph, {world, painted: around});
}
let paintAsked = false;
function askPaint() {
  if (paintAsked) return;
  paintAsked = true;
  requestAnimationFrame(() => {
    paintAsked = false;
    movePainted();
  });
}

function toggleNode(id) {
  const n = graph.nodes[id], at = {x: n.x, y: n.y};
  if (graph.open.has(id))
    graph.open.delete(id);
  else
    graph.open.add(id);
  graph.chosen = graph.open.has(id) ? id : -1;
  graph.edge = -1;
  layoutGraph();
  graph.view.x += (at.x - n.x) * graph.view.s;  // it stays where it is
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
  const within = (at, size, room) =>
    (size * s < room ? (room - size * s) / 2 : clamp(at, room - 40 - size * s, 40));
  graph.view = {
    s,
    x: within(box.width / 2 - (n.x + n.w / 2) * s, graph.size.w, box.width),
    y: within(box.height / 2 - (n.y + n.h) * s, graph.size.h, box.height - TOP) + TOP
  };
}

function chooseEdge(number) {
  const e = graph.edges.find((g) => g.flow.number === number);
  graph.edge = e ? number : -1;
  graph.chosen = -1;
  if (!e) {  // weights: their reader
    graph.chosen = D.flows[number] ? D.flows[number].to : -1;
    if (graph.chosen >= 0) centreOn(graph.nodes[graph.chosen], 0.9);
  } else {
    centreOn(graph.nodes[e.a], clamp(graph.view.s, 0.7, 1));
  }
  const f = D.flows[number];
  fill(graph.panel,
    el("b", {}, f.from >= 0 ? kernelLink(launches[f.from].kernel) : f.kind, " → ",
      f.to >= 0 ? kernelLink(launches[f.to].kernel) : "output"),
    el("div", {}, chip(f.level),
      ` ${bytesText(f.bytes)}, ${timeText(f.us)} to move, ${percent(f.us / total)} of a run`),
    el("div", {class: "mono"}, `${f.tensor} ${f.dtype}(${f.shape.join(", ")})`),
    el("div", {}, el("b", {}, "Not fused: "), f.reason || "no fusion of its ends was tried"));
  graph.panel.hidden = false;
  paintGraph();
}

function dragGraph(svg) {
  let from = null;
  svg.addEventListener("pointerdown", (e) => {
    from = {x: e.clientX, y: e.clientY, v: {...graph.view}};
    graph.moved = false;
  });
  svg.addEventListener("pointermove", (e) => {
    if (!from || e.buttons !== 1) return;
    if (Math.hypot(e.clientX - from.x, e.clientY - from.y) > 4) graph.moved = true;
    if (!graph.moved) return;
    graph.view.x = from.v.x + e.clientX - from.x;
    graph.view.y = from.v.y + e.clientY - from.y;
    askPaint();
  });
  addEventListener("pointerup", () => {
    from = null;
  });
  svg.addEventListener("wheel", (e) => {
    e.preventDefault();
    const box = svg.getBoundingClientRect();
    zoomGraph(Math.exp(-e.deltaY / 400), e.clientX - box.x, e.clientY - box.y);
  }, {passive: false});
}

function legend() {
  return el("div", {
    class: "overlay legend",
    title: "An edge has the colour of the fastest cache that can hold its tensor"
  },
    el("div", {class: "key"},
      LEVELS.slice().reverse().map(
        (l) => el("span", {}, el("i", {style: `--c:${colourOf(l.name)}`}), l.name)),
      el("span", {},
        "redder: longer · wider: more bytes · glowing: the slowest edge · " +
          "click: statements · double click: its page")));
}

function drawGraph(argument) {
  if (!graph.drawn) {
    makeGraph();
    graph.most = Math.max(...launches.map((l) => l.us));
    graph.svg = el("svg",
      {class: "canvas", role: "group", "aria-label": "Launches and the tensors between them"});
    graph.panel = el("div", {class: "overlay panel", hidden: true});
    const zoom = (f) => () => {
      const b = $("graph").getBoundingClientRect();
      zoomGraph(f, b.width / 2, b.height / 2);
    };
    fill("graph", graph.svg, legend(), graph.panel,
      el("div", {class: "overlay controls"},
        el(
          "button", {onclick: () => chooseEdge(D.flows.indexOf(slowestEdge.flow))}, "slowest edge"),
        el("button", {onclick: zoom(1.25), "aria-label": "larger"}, "+"),
        el("button", {onclick: zoom(0.8), "aria-label": "smaller"}, "−"),
        el("button", {
          onclick: () => {
            clearChoice();
            fitGraph();
          }
        },
          "all")));
    dragGraph(graph.svg);
    layoutGraph();
    graph.drawn = true;
    fitGraph();
  }
  if (argument !== "" && D.flows[+argument])
    chooseEdge(+argument);
  else
    paintGraph();
}
function clearChoice() {
  graph.chosen = graph.edge = -1;
  graph.panel.hidden = true;
}
