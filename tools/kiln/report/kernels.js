// The page of a kernel: bottleneck, candidates, edges, and texts of code with linked lines.

// The list at the left of a view: kernels by time, filtered.
class KernelList {
  constructor(view) {
    this.view = view;
    this.order = byTime;
    this.list =
      el("div", {class: "list", role: "listbox", tabindex: 0, "aria-label": "Kernels by time"});
    const input = el("input", {
      type: "search",
      placeholder: "Filter",
      "aria-label": "Filter kernels",
      oninput: () => this.filter(input.value)
    });
    this.root = el("div", {class: "side"}, el("div", {class: "filter"}, input), this.list);
    this.rows = new Rows(this.list, 38, (k) => this.row(k));
    this.list.addEventListener("keydown", (e) => {
      const by = {ArrowDown: 1, ArrowUp: -1}[e.key];
      if (by) {
        e.preventDefault();
        this.step(by);
      }
    });
    this.rows.set(this.order);
  }
  row(k) {
    return el("div", {
      class: "row",
      role: "option",
      "aria-selected": k === this.chosen,
      title: k.nodes || k.name,
      onclick: () => go(`#${this.view}/${encodeURIComponent(k.name)}`)
    },
      el("span", {class: "n"}, `${timeText(k.total)} · ${percent(k.total / total)}`), k.name,
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
  const parts = [
    ["compute", k.compute_us, "var(--accent)"],
    ...k.costed.map((c) => [c.level, c.us, colourOf(c.level)]),
    ["launch", k.launch_us, "var(--soft)"],
    ...(k.least || []).map((p) => [p.name, p.us, boundColour(p.name), "≥ "])
  ].filter((p) => p[1] > 0);
  const most = Math.max(...parts.map((p) => p[1]), k.us, 1e-9);
  return el("table", {},
    el("tbody", {},
      parts.map(([name, us, colour, sign]) => el("tr", {},
                  el("td", {}, name === k.bound ? el("b", {}, name, " (bound)") : name),
                  el("td", {class: "n"}, sign, timeText(us)),
                  el("td", {style: "width:55%"}, bar(us / most, colour)))),
      k.least && k.predicted_us ? el("tr", {}, el("td", {}, el("b", {}, "predicted, as a whole")),
                                    el("td", {class: "n"}, timeText(k.predicted_us)),
                                    el("td", {}, track(k.predicted_us / most)))
                                : null,
      k.measured
        ? el("tr", {}, el("td", {}, el("b", {}, "measured")),
            el("td", {class: "n"}, timeText(k.measured)), el("td", {}, track(k.measured / most)))
        : null));
}

function whyText(k) {
  if (!k.taken.family) return "Its schedule was given, not searched.";
  const priced = k.rivals.filter((r) => r.predicted_us > 0 && !r.refused);
  const next = priced.reduce((a, b) => (!a || b.predicted_us < a.predicted_us ? b : a), null);
  const than = next ? `The next best, ${next.family}, ${next.tiles}, is predicted to take ${
                        timeText(next.predicted_us)}` +
      (k.taken.predicted_us
          ? `, ${(next.predicted_us / k.taken.predicted_us).toFixed(2)} times as long.`
          : ".")
                    : "";
  const price = k.taken.predicted_us ? ` at ${timeText(k.taken.predicted_us)}` : "";
  return `${k.taken.family}, ${k.taken.tiles}${price}: the ${
    isMeasured
      ? ""
      : "predicted "}best of ${k.candidates} candidate${k.candidates === 1 ? "" : "s"}. ${than}`;
}

function candidateTable(k) {
  const all = [{...k.taken, taken: true}, ...k.rivals].filter((c) => c.family);
  const most = Math.max(...all.map((c) => c.predicted_us), 1e-9);
  const sorted = all.sort((a, b) => (a.predicted_us || 1e18) - (b.predicted_us || 1e18));
  return el("div", {class: "scroll", style: "max-height:230px"},
    table(["", "family", "tiles", "#price", "", "refused, because"],
      sorted.map(
        (c) => el("tr", {}, el("td", {}, c.taken ? "✓" : ""),
          el("td", {}, c.taken ? el("b", {}, c.family) : c.family),
          el("td", {class: "mono"}, c.tiles),
          el("td", {class: "n"}, c.predicted_us ? timeText(c.predicted_us) : "not priced"),
          el("td", {style: "width:16%"}, c.predicted_us ? track(c.predicted_us / most) : ""),
          el("td", {class: "soft"}, c.refused || "")))));
}

function kernelEdges(k) {
  return el("div", {class: "scroll", style: "max-height:260px"},
    table(["at", "tensor", "from → to", "#bytes", "moved", "box"],
      k.edges.map(
        (e) =>
          el("tr", {}, el("td", {}, chip(e.level)),
            el("td", {class: "mono", title: e.tensor}, tail(e.tensor, 30), ` ${e.dtype}${e.shape}`),
            el("td", {class: "mono"}, `${e.from} → ${e.to}`),
            el("td", {class: "n"}, bytesText(e.bytes)),
            el("td", {},
              e.moved.map(
                (m) => el("span", {
                  title: `${m.level}: ${bytesText(m.read_bytes)} read, ${
                    bytesText(m.written_bytes)} written`
                },
                  chip(m.level, `${m.level} ${bytesText(m.read_bytes + m.written_bytes)}`), " "))),
            el("td", {class: "mono"}, e.box || "")))));
}

function neighbourTable(k) {
  if (!k.neighbours.length)
    return el("p", {class: "soft"}, "No neighbour was left out where there was a choice.");
  return el("div", {class: "scroll", style: "max-height:230px"},
    table(["with", "of", "not fused, because"],
      k.neighbours.map(
        (n) => el("tr", {},
          el("td", {}, n.before ? "← " : "→ ", n.kernel ? kernelLink(n.kernel) : "pieces"),
          el("td", {class: "mono", title: n.tensor}, tail(n.tensor, 28)),
          el("td", {}, n.reason)))));
}

// A text of code, with elements for visible lines only; a line is linked to the line of the loops
// from which it is made.
class Pane {
  constructor(text, hooks) {
    this.text = text;
    this.hooks = hooks;
    this.on = 0;
    this.host = el("div", {class: "lines", tabindex: 0, role: "region", "aria-label": text.name});
    this.root = el("div", {class: "pane"},
      el("h4", {}, el("span", {}, text.name),
        el("span", {class: "soft"}, `${text.rows.length} lines`)),
      this.host);
    this.rows = new Rows(this.host, 18, (row, i) => this.line(row, i));
    const widest = text.rows.reduce((m, r) => Math.max(m, r.length), 0);
    this.rows.space.style.width = `${widest + 10}ch`;
    this.rows.set(text.rows);
    this.host.addEventListener("keydown", (e) => this.key(e));
  }
  line(row, i) {
    const of = this.text.of[i] || 0;
    const hue = (of * 47) % 360;
    return el("div", {
      class:
        `l${of ? " linked" : ""}${of && of === this.on ? " on" : ""}${i === this.at ? " at" : ""}`,
      onclick: () => {
        this.at = i;
        this.hooks.choose(of, this);
      },
      onmouseenter: () => this.hooks.hover(of, this)
    },
      el("span", {class: "no"}, String(i + 1)),
      el("span", {class: "tie", style: of ? `background:hsl(${hue} 60% 55%)` : ""}),
      coloured(row.replace(/\t/g, "  "), this.text.name));
  }
  key(e) {
    const by = {ArrowDown: 1, ArrowUp: -1}[e.key];
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

// Texts side by side; the choice of texts is kept from kernel to kernel.
let shownTexts = null;
function codeSection(code) {
  const names = code.texts.map((t) => t.name), host = el("div", {class: "panes"});
  const ordinary = ["loops", ...names.slice(2)].slice(0, 4).filter((n) => names.includes(n));
  if (!shownTexts || !shownTexts.some((n) => names.includes(n)))
    shownTexts = ordinary.length ? ordinary : names;
  let panes = [], held = 0;
  const hooks = {
    hover: (of, pane) => {
      if (!held)
        for (const p of panes) p.light(of, p !== pane && of > 0);
    },
    choose: (of, pane) => {
      held = of === held && pane.on === of ? 0 : of;
      for (const p of panes) p.light(of, p !== pane && of > 0);
    },
  };
  const draw = () => {
    panes = code.texts.filter((t) => shownTexts.includes(t.name)).map((t) => new Pane(t, hooks));
    fill(host, panes.map((p) => p.root));
    for (const p of panes) {  // where the code begins that is of loops
      p.rows.draw();
      const first = p.text.of.findIndex((of) => of > 0);
      if (first > 20) p.host.scrollTop = (first - 3) * 18;
    }
  };
  const buttons = names.map((n) => el("button", {
    "aria-pressed": shownTexts.includes(n),
    onclick: (e) => {
      shownTexts = shownTexts.includes(n) ? shownTexts.filter((x) => x !== n) : [...shownTexts, n];
      e.currentTarget.setAttribute("aria-pressed", shownTexts.includes(n));
      draw();
    }
  },
                              n));
  requestAnimationFrame(draw);
  return el("div", {}, el("h3", {}, "Script, loops and code"),
    el("div", {class: "toggles"}, buttons,
      el("span", {class: "soft"},
        "Lines of one colour are of one line of the loops. Click holds a line, arrows move.")),
    host);
}

async function kernelPage(k) {
  const page = [
    el("h2", {}, k.name),
    el("div", {class: "facts"},
      fact(timeText(k.us), `${k.measured ? "measured" : "predicted"} a launch`),
      k.measured && k.predicted_us
        ? fact(timeText(k.predicted_us),
            `predicted, ${(k.measured / k.predicted_us).toFixed(2)}× measured`)
        : null,
      fact(`${percent(k.total / total)}`,
        `of a run, ${k.launches} launch${k.launches === 1 ? "" : "es"}`),
      fact(rate(k.flops, k.us), `${(k.flops / 1e6).toFixed(1)} MFLOP`),
      k.bound ? fact(k.bound, k.least ? "bounds it, by the roofline" : "bounds it") : null,
      fact(
        String(k.tiles || 1), `tile${k.tiles === 1 ? "" : "s"}, tail ${(k.tail || 1).toFixed(2)}`)),
    el("p", {class: "soft", style: "overflow-wrap:anywhere;margin:0 0 6px"},
      head(k.nodes || "", 400), k.beside ? ` · beside ${k.beside}, in one launch` : ""),
    el("div", {class: "why"}, el("b", {}, "Why this schedule: "), whyText(k)),
    el("div", {class: "grid2"}, el("div", {}, el("h3", {}, "Time of a launch"), timeParts(k)),
      el("div", {}, el("h3", {}, `Candidates, ${k.candidates}`), candidateTable(k))),
    el("h3", {}, "Edges"), kernelEdges(k), el("h3", {}, "Not fused with"), neighbourTable(k),
    el("h3", {}, "Statements"),
    el("div", {class: "scroll stmt", style: "padding:6px 10px"},
      k.prims.map((p) => el("div", {style: "white-space:pre"}, p.text)))
  ];
  page.push(codeSection(await codeOf(k)));
  return page;
}

const kernelView = {};
async function drawKernels(argument) {
  const k = byName.get(argument) || kernelView.k || byTime[0];
  if (!kernelView.list) {
    kernelView.list = new KernelList("kernels");
    kernelView.body = el("div", {class: "body", tabindex: 0, "aria-live": "polite"});
    fill("kernels", el("div", {class: "sides"}, kernelView.list.root, kernelView.body));
  }
  kernelView.k = k;
  kernelView.list.choose(k);
  const page = await kernelPage(k);
  if (kernelView.k !== k) return;
  fill(kernelView.body, page);
  kernelView.body.scrollTop = 0;
}
