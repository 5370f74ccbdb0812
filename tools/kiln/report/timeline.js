// The time line of a run: tracks of launches and threads, and counters.

const line = {
  from: 0,
  to: 0,
  tracks: null
};
function makeTracks() {
  const m = D.measured, spans = [];
  let at = 0;
  if (m && m.launches.length) {
    for (const [id, start, us] of m.run)
      spans.push({name: m.launches[id].kernel, nodes: m.launches[id].nodes, at: start, us, id});
  } else
    for (const l of launches) {
      spans.push({name: l.kernel, nodes: l.nodes, at, us: l.k.us, id: l.id});
      at += l.k.us;
    }
  const first = isGpu ? "stream" : "launches";
  const tracks = [{name: first, more: m ? "" : "predicted", spans}];
  for (const [id, thread, start, us] of m ? m.spans : []) {
    while (tracks.length < thread + 2)
      tracks.push({name: `thread ${tracks.length - 1}`, spans: []});
    tracks[thread + 1].spans.push(
      {name: m.launches[id].kernel, nodes: m.launches[id].nodes, at: start, us, id});
  }
  line.busy = new Map();  // by launch, time of all threads together
  for (const t of tracks.slice(1))
    for (const s of t.spans) line.busy.set(s.id, (line.busy.get(s.id) || 0) + s.us);
  line.tracks = tracks;
  line.end = Math.max(...tracks.map((t) => Math.max(0, ...t.spans.map((s) => s.at + s.us))), 1e-3);
  line.from = 0;
  line.to = line.end;
}

const hueOf = (name) => [...name].reduce((h, c) => (h * 31 + c.charCodeAt(0)) % 360, 7);
const LINE_TOP = 64, TRACK_H = 46;
function paintLine() {
  const c = line.canvas, box = c.getBoundingClientRect(), r = devicePixelRatio || 1,
        g = c.getContext("2d");
  if (c.width !== Math.round(box.width * r) || c.height !== Math.round(box.height * r)) {
    c.width = Math.round(box.width * r);
    c.height = Math.round(box.height * r);
  }
  const css = getComputedStyle(document.documentElement), v = (n) => css.getPropertyValue(n).trim();
  const dark = document.documentElement.dataset.theme === "dark", w = box.width - 110;
  const X = (us) => 100 + ((us - line.from) / (line.to - line.from)) * w;
  g.setTransform(r, 0, 0, r, 0, 0);
  g.fillStyle = v("--bg");
  g.fillRect(0, 0, box.width, box.height);
  g.font = "12px system-ui, sans-serif";
  const step = 10 ** Math.floor(Math.log10((line.to - line.from) / 5)),
        unit = (line.to - line.from) / step > 20 ? 5 * step
    : (line.to - line.from) / step > 10          ? 2 * step
                                                 : step;
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
    g.fillText(t.more || "", 10, y + 34);
    g.save();
    g.beginPath();
    g.rect(100, y, w, TRACK_H);
    g.clip();
    for (const s of t.spans) {
      if (s.at + s.us < line.from || s.at > line.to) continue;
      const x = X(s.at), width = Math.max(1, X(s.at + s.us) - x - (X(s.at + s.us) - x > 4 ? 1 : 0));
      g.fillStyle = `hsl(${hueOf(s.name)} ${dark ? "45% 42%" : "55% 72%"})`;
      g.fillRect(x, y + 2, width, 34);
      if (line.over === s) {
        g.strokeStyle = v("--hot");
        g.lineWidth = 2;
        g.strokeRect(x, y + 2, width, 34);
      }
      if (width < 34) continue;
      g.fillStyle = v("--text");
      g.fillText(head(s.name, Math.floor((width - 8) / 6.6)), Math.max(x, 100) + 4, y + 18);
      if (width > 60) g.fillText(timeText(s.us), Math.max(x, 100) + 4, y + 32);
    }
    g.restore();
  });
  const y = LINE_TOP + 14 + line.tracks.length * TRACK_H,
        per = (s, x) => (x && s.us > 0 ? x / s.us / 1e3 : 0);
  const of = (s) => byName.get(s.name) || {};
  const fastest = Math.max(...line.tracks[0].spans.map((s) => per(s, of(s).flops)));
  const isFast = fastest > 1e4;
  const counters = [
    [isFast ? "TFLOP/s" : "GFLOP/s", (s) => per(s, of(s).flops) / (isFast ? 1e3 : 1)],
    ["GB/s at least", (s) => per(s, of(s).bytes)]
  ];
  if (line.tracks.length > 1)
    counters.push(["threads busy", (s) => (s.us > 0 ? (line.busy.get(s.id) || 0) / s.us : 0)]);
  const height = clamp((box.height - y - 20) / counters.length - 26, 60, 200);
  counters.forEach(
    ([name, value], i) => paintCounter(g, v, X, w, y + i * (height + 26), height, name, value));
}

// A plot over time below the tracks; |of| gives the height for a span of the first track.
function paintCounter(g, v, X, w, y, height, name, of) {
  const spans = line.tracks[0].spans, most = Math.max(...spans.map(of), 1e-9);
  g.fillStyle = v("--text");
  g.fillText(name, 10, y + 20);
  g.fillStyle = v("--soft");
  g.fillText(`to ${most.toFixed(most < 10 ? 1 : 0)}`, 10, y + 36);
  g.save();
  g.beginPath();
  g.rect(100, y, w, height);
  g.clip();
  g.fillStyle = v("--bar-strong");
  for (const s of spans) {
    if (s.at + s.us < line.from || s.at > line.to) continue;
    const h = (of(s) / most) * height;
    g.fillRect(X(s.at), y + height - h, Math.max(1, X(s.at + s.us) - X(s.at)), h);
  }
  g.restore();
  g.fillStyle = v("--line");
  g.fillRect(100, y + height, w, 1);
}

function lineAt(e) {
  const box = line.canvas.getBoundingClientRect(), w = box.width - 110;
  const us = line.from + ((e.clientX - box.x - 100) / w) * (line.to - line.from);
  const t = line.tracks[Math.floor((e.clientY - box.y - LINE_TOP - 6) / TRACK_H)];
  return {us, span: t && t.spans.find((s) => us >= s.at && us <= s.at + s.us)};
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
    line.canvas = el("canvas", {
      tabindex: 0,
      role: "img",
      "aria-label": `Time line: ${line.tracks.map((t) => t.name).join(", ")}`,
      onpointerdown: (e) => {
        from = {x: e.clientX, moved: false};
      },
      onpointerup: (e) => {
        const s = lineAt(e).span;
        if (from && !from.moved && s && byName.has(s.name))
          go(`#kernels/${encodeURIComponent(s.name)}`);
        from = null;
      },
      onpointermove: (e) => {
        const at = lineAt(e);
        if (from && e.buttons === 1) {
          const by = e.clientX - from.x;
          if (Math.abs(by) > 3 || from.moved) {
            from.moved = true;
            from.x = e.clientX;
            panLine((-by / (line.canvas.clientWidth - 110)) * (line.to - line.from));
          }
        } else if (at.span !== line.over) {
          line.over = at.span;
          requestAnimationFrame(paintLine);
        }
        if (at.span)
          showTip(e, el("b", {}, at.span.name),
            el("div", {}, `${timeText(at.span.us)} at ${timeText(at.span.at)}`),
            el("div", {class: "soft"}, head(at.span.nodes || "", 200)));
        else
          hideTip();
      },
      onpointerleave: hideTip,
      onkeydown: (e) => {
        const w = line.to - line.from, mid = line.from + w / 2;
        const act = {
          ArrowLeft: () => panLine(-w / 8),
          ArrowRight: () => panLine(w / 8),
          "+": () => zoomLine(0.7, mid),
          "-": () => zoomLine(1.4, mid),
          0: () => zoomLine(1e9, mid)
        }[e.key];
        if (act) {
          e.preventDefault();
          e.stopPropagation();
          act();
        }
      }
    });
    line.canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY))
        panLine(((e.deltaX || e.deltaY) / 800) * (line.to - line.from));
      else
        zoomLine(Math.exp(e.deltaY / 400), lineAt(e).us);
    }, {passive: false});
    fill("timeline", line.canvas,
      el("div", {class: "overlay", style: "left:10px;top:8px"},
        D.measured
          ? `The fastest of ${D.measured.runs} runs that were recorded: ${timeText(line.end)}.`
          : "Predicted: launches one behind the other. --measure runs the model.",
        " Wheel zooms, drag moves, 0 shows all."));
    new ResizeObserver(() => {
      if (!$("timeline").hidden) paintLine();
    }).observe(line.canvas);
  }
  paintLine();
}
