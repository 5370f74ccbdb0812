// The overview: the slowest edge and kernel, all of them by time.

function fact(value, of) {
  return el("div", {class: "fact"}, el("b", {}, value), el("span", {}, of));
}

function facts() {
  const out = [fact(timeText(total), isMeasured ? "measured, sum of kernels" : "predicted a run")];
  const predicted = sum(kernels, (k) => k.predicted_us * k.launches);
  if (isMeasured && predicted) out.push(fact(timeText(predicted), "predicted"));
  if (D.measured)
    out.push(fact(`${D.measured.median_ms.toFixed(2)} ms`,
      `median of ${D.measured.runs} runs, the least ${D.measured.least_ms.toFixed(2)} ms`));
  out.push(fact(String(D.launches),
    `launch${D.launches === 1 ? "" : "es"} of ${kernels.length} kernel${
      kernels.length === 1 ? "" : "s"}`));
  const flops = sum(kernels, (k) => k.flops * k.launches);
  if (flops) out.push(fact(rate(flops, total), `${(flops / 1e9).toFixed(2)} GFLOP`));
  out.push(fact(D.machine.processor,
    `${D.device}, ${
      isGpu ? `${D.machine.units} multiprocessors`
            : `${D.threads} thread${D.threads === 1 ? "" : "s"}`}, ${
      D.measured_device ? "measured" : "nominal"} figures`));
  return el("div", {}, el("div", {class: "facts"}, out),
    isBusy
      ? el("p", {class: "soft"},
          `The machine was busy when this was measured: the median times of launches are ${
            (sum(measuredLaunches, (l) => l.us) / sum(measuredLaunches, (l) => l.least_us))
              .toFixed(1)} times their least, of ${D.measured.runs} runs. The least are shown.`)
      : null);
}

function edgeWords(e) {
  const where = {
    between: "passes between two kernels",
    weights: "is read of the weights",
    input: "is an input",
    output: "is an output",
    inside: "stays inside of a kernel"
  }[e.kind];
  return `${bytesText(e.bytes)}${e.n > 1 ? `, ${e.n} times` : ""}, ${where}`;
}

function edgeCard(e) {
  if (!e) return null;
  return el("div", {class: "card", id: "slowest-edge"},
    el("div", {class: "what"},
      e.kind === "between" ? "Slowest edge between kernels" : "Slowest edge"),
    el("div", {class: "big"}, kernelLink(e.from), " → ", kernelLink(e.to)),
    el("div", {},
      el("span", {class: "hot"}, `${timeText(e.us)}, ${percent(e.us / total)} of a run`), " · ",
      edgeWords(e), " · ", chip(e.level)),
    el("div", {class: "mono"}, tail(e.tensor, 60), " ", e.dtype, e.shape),
    e.reason                 ? el("div", {}, el("b", {}, "Not fused: "), e.reason)
      : e.kind === "between" ? el("div", {class: "soft"}, "No fusion of its ends was tried.")
                             : null,
    el("a", {href: edgeHash(e)}, "show it in the graph"));
}

function kernelCard(k) {
  return el("div", {class: "card", id: "slowest-kernel"},
    el("div", {class: "what"}, "Slowest kernel"), el("div", {class: "big"}, kernelLink(k.name)),
    el("div", {},
      el("span", {class: "hot"}, `${timeText(k.total)}, ${percent(k.total / total)} of a run`),
      " · ", k.launches > 1 ? `${k.launches} launches of ${timeText(k.us)} · ` : "",
      [k.bound ? `bound by ${boundText(k)}` : "", k.flops > 0 ? rate(k.flops, k.us) : ""]
        .filter(Boolean)
        .join(" · ")),
    el("div", {class: "soft", style: "overflow-wrap:anywhere"}, tail(k.nodes || "", 150)),
    k.measured && k.predicted_us
      ? el("div", {}, `${(k.measured / k.predicted_us).toFixed(2)} times what was predicted`)
      : null);
}

function kernelTable() {
  const most = byTime[0].total || 1;
  const rows = byTime.slice(0, 60).map(
    (k) => el("tr", leads(`#kernels/${encodeURIComponent(k.name)}`),
      el("td", {class: "clip", style: "width:42%", title: k.nodes}, k.name),
      el("td", {class: "n"}, timeText(k.total)), el("td", {class: "n"}, percent(k.total / total)),
      el("td", {style: "width:26%"},
        track(k.total / most, isMeasured ? (k.predicted_us * k.launches) / most : 0)),
      el("td", {style: "white-space:nowrap"}, boundText(k))));
  return table(
    ["kernel", "#time", "#share", isMeasured ? "measured | predicted" : "predicted", "bound by"],
    rows);
}

function edgeTable(kind) {
  const some = edges.filter((e) => kind === "all" || e.kind === kind).slice(0, 60);
  const most = some.length ? some[0].us || 1 : 1;
  return table(["edge", "at", "#bytes", "#time", "", "not fused, because"],
    some.map(
      (e) => el("tr", leads(edgeHash(e)),
        el("td", {class: "clip", style: "width:38%", title: `${e.tensor} ${e.dtype}${e.shape}`},
          e.n > 1 ? el("span", {class: "soft"}, `${e.n}× `) : null, `${e.from} → ${e.to}`),
        el("td", {}, chip(e.level)), el("td", {class: "n"}, bytesText(e.moved)),
        el("td", {class: "n"}, timeText(e.us)), el("td", {style: "width:9%"}, track(e.us / most)),
        el(
          "td", {class: "clip soft", style: "width:26%", title: e.reason || ""}, e.reason || ""))));
}

function edgeSection() {
  const host = el("div", {});
  const kinds = [
    ["between", "between kernels"], ["weights", "weights"], ["inside", "inside of kernels"],
    ["all", "all"]
  ];
  const first = edges.some((e) => e.kind === "between") ? "between" : "all";
  const buttons = kinds.map(([kind, text]) => el("button", {
    "aria-pressed": kind === first,
    onclick: (event) => {
      for (const b of buttons) b.setAttribute("aria-pressed", b === event.currentTarget);
      fill(host, edgeTable(kind));
    }
  },
                              text));
  fill(host, edgeTable(first));
  return el("div", {}, el("h2", {}, "Edges by time"), el("div", {class: "toggles"}, buttons), host,
    el("p", {class: "soft"},
      "Time: the bytes by the bandwidth of the level that they pass, written and read. " +
        "Between kernels that is the fastest cache shared by all that can hold the tensor."));
}

const boundColour = (bound) => ({compute: "var(--accent)", launch: "var(--soft)"}[bound] ||
  (levelOf.has(bound) ? colourOf(bound) : "var(--bar)"));
function boundBars() {
  const of = new Map();
  for (const k of kernels)
    of.set(k.bound || "not known", (of.get(k.bound || "not known") || 0) + k.total);
  const rows = [...of].sort((a, b) => b[1] - a[1]), colour = boundColour;
  return el("div", {style: "margin-bottom:12px"},
    el("div", {class: "stack", role: "img", "aria-label": "Time by bound"},
      rows.map(([name, us]) => el("i",
                 {style: `--c:${colour(name)};flex:${us}`, title: `${name}: ${timeText(us)}`}))),
    el("div", {class: "key"}, "Time in kernels that are bound by ",
      rows.map(([name, us]) => el("span", {}, el("i", {style: `--c:${colour(name)}`}),
                 `${name} ${percent(us / total)}`)),
      kernels.some((k) => k.least)
        ? el("span", {}, "≈ by the roofline, of kernels whose price has no parts")
        : null));
}

function drawOverview() {
  fill("overview", facts(),
    el("div", {class: "cards"}, edgeCard(slowestEdge), kernelCard(byTime[0])), boundBars(),
    el("div", {class: "two"}, el("div", {}, el("h2", {}, "Kernels by time"), kernelTable()),
      edgeSection()));
}
