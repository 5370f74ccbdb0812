// The roofline: speed by arithmetic intensity, below bandwidths and peaks.

const roofline = {
  level: LEVELS[0] ? LEVELS[0].name : "memory"
};
// Bytes that a kernel moves out of a level: by analysis of its loops, or else by its cost; from
// memory, at least the compulsory traffic. 0: unknown.
function movedAt(k, level) {
  const t = k.traffic.find((x) => x.level === level), c = k.costed.find((x) => x.level === level);
  return t                             ? t.read_bytes + t.written_bytes
    : c                                ? c.bytes
    : level === (LEVELS[0] || {}).name ? k.bytes
                                       : 0;
}

function rooflinePoints() {
  // data that a cache is assumed to hold from the previous kernel must not raise the intensity
  const least = (k) => (roofline.level === (LEVELS[0] || {}).name ? k.bytes : 0);
  return kernels.map((k) => ({k, bytes: Math.max(movedAt(k, roofline.level), least(k))}))
    .filter((p) => p.k.flops > 0 && p.bytes > 0 && p.k.us > 0)
    .map((p) => ({...p, x: p.k.flops / p.bytes, y: p.k.flops / p.k.us / 1e3}))
    .sort((a, b) => b.k.total - a.k.total);
}

function rooflineFigure(w, h) {
  const points = rooflinePoints(),
        roofs = LEVELS.filter((l, i) => i < LEVELS.length - 1 && !(l.explicit && l.sharing > 1));
  const peaks =
    Object.entries(D.machine.peaks).filter(([name, p]) => p.all_flops_ns > 0 && (name !== "int8"));
  const most = Math.max(...peaks.map(([, p]) => peakUnit(p)), 1), m = {l: 62, r: 24, t: 18, b: 44};
  const xs =
    [...points.map((p) => p.x), most / bandwidth(LEVELS[0] || {all_bytes_ns: 1, unit_bytes_ns: 1})];
  const ys = [...points.map((p) => p.y), most];
  const x0 = Math.floor(Math.log10(Math.max(1e-3, Math.min(...xs)))),
        x1 = Math.ceil(Math.log10(Math.max(...xs) * 1.5));
  const y0 = Math.floor(Math.log10(Math.max(1e-2, Math.min(...ys)))), y1 = Math.log10(most * 2.2);
  const X = (v) => m.l + ((Math.log10(v) - x0) / (x1 - x0)) * (w - m.l - m.r);
  const Y = (v) => h - m.b - ((Math.log10(v) - y0) / (y1 - y0)) * (h - m.t - m.b);
  const svg = el("svg", {
    class: "figure",
    viewBox: `0 0 ${w} ${h}`,
    role: "group",
    "aria-label": "Roofline: speed by arithmetic intensity"
  });
  for (let e = x0; e <= x1; e++)
    svg.append(el("line", {class: "grid", x1: X(10 ** e), x2: X(10 ** e), y1: m.t, y2: h - m.b}),
      el("text", {class: "soft", x: X(10 ** e), y: h - m.b + 16, "text-anchor": "middle"},
        String(+(10 ** e).toPrecision(1))));
  for (let e = y0; e <= y1; e++)
    svg.append(el("line", {class: "grid", x1: m.l, x2: w - m.r, y1: Y(10 ** e), y2: Y(10 ** e)}),
      el("text", {class: "soft", x: m.l - 6, y: Y(10 ** e) + 4, "text-anchor": "end"},
        String(+(10 ** e).toPrecision(1))));
  svg.append(el("text", {x: (w + m.l) / 2, y: h - 8, "text-anchor": "middle"},
               `FLOP per byte that crosses ${roofline.level}`),
    el("text", {x: 14, y: h / 2, transform: `rotate(-90 14 ${h / 2})`, "text-anchor": "middle"},
      "GFLOP/s"));
  for (const l of roofs) {
    const b = bandwidth(l), from = Math.max(10 ** x0, 10 ** y0 / b),
          to = Math.min(10 ** x1, most / b);
    if (from >= to || b <= 1) continue;
    const isIts = l.name === roofline.level;
    svg.append(el("line", {
      x1: X(from),
      y1: Y(from * b),
      x2: X(to),
      y2: Y(to * b),
      stroke: colourOf(l.name),
      "stroke-width": isIts ? 3 : 1.5,
      "stroke-dasharray": isIts ? null : "5 4"
    }),
      el("text", {
        x: X(from) + 4,
        y: Y(from * b) - 6,
        fill: colourOf(l.name),
        style: `fill:${colourOf(l.name)}`,
        transform:
          `rotate(${(-Math.atan2(Y(from * b) - Y(to * b), X(to) - X(from)) * 180) / Math.PI} ${
            X(from)} ${Y(from * b)})`
      },
        `${l.name} ${b.toFixed(0)} GB/s`));
  }
  for (const [name, p] of peaks)
    svg.append(el("line", {
      x1: X(Math.max(10 ** x0, peakUnit(p) / Math.max(...roofs.map(bandwidth)))),
      x2: w - m.r,
      y1: Y(peakUnit(p)),
      y2: Y(peakUnit(p)),
      stroke: "var(--text)",
      "stroke-width": 1.5
    }),
      el("text", {x: w - m.r, y: Y(peakUnit(p)) - 5, "text-anchor": "end", class: "halo"},
        `${name} ${speedText(peakUnit(p))}`));
  const largest = Math.max(...points.map((p) => p.k.total), 1e-9);
  points.forEach((p, i) => {
    const r = 4 + 15 * Math.sqrt(p.k.total / largest),
          hash = `#kernels/${encodeURIComponent(p.k.name)}`;
    svg.append(el("circle", {
      class: "dot",
      cx: X(p.x),
      cy: Y(p.y),
      r,
      tabindex: 0,
      role: "link",
      "fill-opacity": 0.65,
      "aria-label": `${p.k.name}: ${speedText(p.y)} at ${p.x.toFixed(1)} FLOP per byte`,
      style: `fill:${boundColour(p.k.bound)}`,
      onclick: () => go(hash),
      onkeydown: (e) => {
        if (e.key === "Enter") go(hash);
      },
      onmousemove: (e) => showTip(e, el("b", {}, p.k.name),
        el("div", {}, `${speedText(p.y)}, ${p.x.toFixed(2)} FLOP per byte`),
        el("div", {},
          `${timeText(p.k.total)}, ${percent(p.k.total / total)} of a run, bound by ${
            boundText(p.k) || "?"}`)),
      onmouseleave: hideTip
    }));
    if (i < 5)
      svg.append(el("text",
        {class: "halo", x: X(p.x), y: Y(p.y) + (i % 2 ? r + 13 : -r - 4), "text-anchor": "middle"},
        head(p.k.name, 26)));
  });
  return svg;
}

function drawRoofline() {
  const box = $("roofline").getBoundingClientRect();
  const names = LEVELS.filter((l, i) => i === 0 || kernels.some((k) => movedAt(k, l.name) > 0))
                  .map((l) => l.name);
  const pick = el("select", {
    "aria-label": "Level",
    onchange: (e) => {
      roofline.level = e.target.value;
      drawRoofline();
    }
  },
    names.map((n) => el("option", {value: n, selected: n === roofline.level}, n)));
  const left = kernels.filter((k) => !(k.flops > 0)).length;
  fill("roofline",
    el("div", {class: "toggles"}, el("h2", {style: "margin:0 10px 0 0"}, "Roofline"), "bytes of ",
      pick,
      el("span", {class: "soft"},
        `Each dot is a kernel, as large as its share of the ${
          isMeasured ? "measured" : "predicted"} time, coloured by what bounds it.` +
          (left ? ` ${left} without arithmetic are left out.` : ""))),
    rooflineFigure(Math.max(500, box.width - 36), Math.max(320, box.height - 70)));
}
