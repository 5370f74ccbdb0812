// Views, theme and keys: the entry of the script.

const views = [
  {id: "overview", title: "Overview", draw: drawOverview},
  {id: "graph", title: "Graph", draw: drawGraph},
  {id: "kernels", title: "Kernels", draw: drawKernels},
  {id: "roofline", title: "Roofline", draw: drawRoofline},
  {id: "timeline", title: "Time line", draw: drawTimeline},
  {id: "traffic", title: "Traffic", draw: drawTraffic},
  {id: "statements", title: "Statements", draw: drawStatements},
];
let current = views[0];

// Draws the view of the address. The root element's data-shown is the drawn address, for programs
// that drive the page.
async function show() {
  const hash = location.hash;
  const [id, ...rest] = hash.slice(1).split("/");
  current = views.find((v) => v.id === id) || views[0];
  hideTip();
  for (const v of views) {
    $(v.id).hidden = v !== current;
    $(`tab-${v.id}`).setAttribute("aria-selected", v === current);
    $(`tab-${v.id}`).tabIndex = v === current ? 0 : -1;
  }
  await current.draw(decodeURIComponent(rest.join("/")));
  if (hash === location.hash) document.documentElement.dataset.shown = hash || `#${current.id}`;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  if (current.id === "timeline" && line.canvas) paintLine();
}
const systemTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
function firstTheme() {
  let kept = null;
  try {
    kept = localStorage.getItem("kiln-theme");
  } catch { /* a file may have no storage */
  }
  return kept || systemTheme();
}
// Stores settings that differ from the system's.
function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    if (theme === systemTheme())
      localStorage.removeItem("kiln-theme");
    else
      localStorage.setItem("kiln-theme", theme);
  } catch { /* as above */
  }
  setTheme(theme);
}

const keys = [
  ["1 – 7", "the views"], ["/", "search"], ["?", "these keys"], ["t", "dark or light"],
  ["j, k", "the next kernel by time, the one before"], ["s", "the slowest edge in the graph"],
  ["+, -, 0", "graph and time line: larger, smaller, all"],
  ["arrows", "move in lists, code, graph and time line"], ["Enter", "open what is chosen"],
  ["Space", "graph: a kernel's statements"], ["Esc", "close"]
];
function stepKernel(by) {
  const list = current.id === "statements" ? statementView.list : kernelView.list;
  if (list && (current.id === "statements" || current.id === "kernels"))
    list.step(by);
  else
    go(`#kernels/${encodeURIComponent(byTime[0].name)}`);
}
function graphKey(key) {
  const box = $("graph").getBoundingClientRect(), v = graph.view;
  const acts = {
    "+": () => zoomGraph(1.25, box.width / 2, box.height / 2),
    "-": () => zoomGraph(0.8, box.width / 2, box.height / 2),
    0: () => {
      clearChoice();
      fitGraph();
    },
    ArrowLeft: () => {
      v.x += 60;
      askPaint();
    },
    ArrowRight: () => {
      v.x -= 60;
      askPaint();
    },
    ArrowUp: () => {
      v.y += 60;
      askPaint();
    },
    ArrowDown: () => {
      v.y -= 60;
      askPaint();
    }
  };
  if (acts[key]) acts[key]();
  return Boolean(acts[key]);
}
// Whether a key goes to a field. A field that was hidden, as in the search dialog when it closes,
// keeps the focus until the next frame is drawn: keys before that are the page's.
const isTyping = (e) => e.matches("input, select, textarea") && e.getClientRects().length > 0;
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || isTyping(e.target) ||
    document.querySelector("dialog[open]"))
    return;
  const acts = {
    "/": openSearch,
    "?": () => $("help").showModal(),
    t: switchTheme,
    j: () => stepKernel(1),
    k: () => stepKernel(-1),
    s: () => {
      if (slowestEdge) go(edgeHash(slowestEdge));
    },
    Escape: () => {
      if (graph.drawn) {
        clearChoice();
        paintGraph();
      }
    }
  };
  const view = views[Number(e.key) - 1];
  if (view) {
    e.preventDefault();
    go(`#${view.id}`);
  } else if (acts[e.key]) {
    e.preventDefault();
    acts[e.key]();
  } else if (current.id === "graph" && graphKey(e.key))
    e.preventDefault();
});

function begin() {
  const name = (D.path || D.model).split("/").pop();
  document.title = `${name} – Kiln report`;
  $("title").textContent = name;
  $("title").title = `${D.path}, by Kiln ${D.kiln}`;
  fill("tabs",
    views.map((v, i) => el("button", {
      role: "tab",
      id: `tab-${v.id}`,
      "aria-controls": v.id,
      "aria-keyshortcuts": String(i + 1),
      onclick: () => go(`#${v.id}`),
      onkeydown: (e) => {
        const by = {ArrowRight: 1, ArrowLeft: -1}[e.key];
        if (by) {
          const to = views[(i + by + views.length) % views.length];
          go(`#${to.id}`);
          $(`tab-${to.id}`).focus();
        }
      }
    },
                v.title)));
  fill("help", el("h2", {}, "Keys"),
    el("dl", {}, keys.flatMap(([k, what]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, what)])),
    el("p", {}, el("button", {onclick: () => $("help").close()}, "Close")));
  $("search-button").onclick = openSearch;
  $("theme-button").onclick = switchTheme;
  $("help-button").onclick = () => $("help").showModal();
  setTheme(firstTheme());
  addEventListener("hashchange", show);
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      if (current.id === "graph") {
        layoutGraph();
        fitGraph();
      } else if (current.id === "roofline")
        drawRoofline();
    }, 120);
  });
  show();
}
begin();
