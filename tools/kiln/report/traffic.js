// Traffic by level: predicted, counted and measured.

function trafficRows() {
  return LEVELS
    .map((level) => {
      const some = kernels.filter((k) => k.traffic.some((t) => t.level === level.name));
      const of = (f) =>
        sum(some, (k) => sum(k.traffic.filter((t) => t.level === level.name), f) * k.launches);
      return {
        name: level.name,
        level,
        bytes: sum(kernels, (k) => movedAt(k, level.name) * k.launches),
        n: kernels.filter((k) => movedAt(k, level.name) > 0).length,
        parts: some.length ? `${bytesText(of((t) => t.read_bytes))} read, ${
                               bytesText(of((t) => t.written_bytes))} written; `
                           : ""
      };
    })
    .filter((r) => r.bytes > 0 && !(r.level.explicit && r.level.sharing > 1));
}

// Traffic counted by the simulator for the kernels that it can run, and predicted traffic of these.
const hasCounted = kernels.some((k) => k.counted);
function counted(level) {
  const of = (list) =>
    sum(list.filter((t) => t.level === level), (t) => t.read_bytes + t.written_bytes);
  const some = kernels.filter((k) => k.counted);
  return {
    bytes: sum(some, (k) => of(k.counted) * k.launches),
    predicted: sum(some, (k) => of(k.traffic) * k.launches),
    n: some.length
  };
}

const perTotal = (level) => `${bandwidth(level).toFixed(0)} GB/s`;
function trafficNotes(r) {
  const known =
    r.n < kernels.length ? `; in the ${r.n} of ${kernels.length} kernels of which it is known` : "";
  const c = hasCounted ? counted(r.name) : null;
  return {
    predicted:
      `${r.parts}${timeText(r.bytes / bandwidth(r.level) / 1e3)} at ${perTotal(r.level)}${known}`,
    counted: c &&
      `by the simulator, in ${c.n} of ${kernels.length} kernels; ${
        (c.bytes / Math.max(1, c.predicted)).toFixed(2)} times what was predicted of these`,
  };
}

function trafficSummary(rows) {
  const least = sum(kernels, (k) => k.bytes * k.launches), m = D.measured;
  const missed = (m && m.missed_bytes) || 0;
  const most = Math.max(...rows.map((r) => r.bytes), least, missed, 1);
  const line = (name, bytes, colour, note) =>
    el("tr", {}, el("td", {style: "white-space:nowrap"}, name),
      el("td", {class: "n"}, bytes ? bytesText(bytes) : "–"),
      el("td", {style: "width:46%"}, bar(bytes / most, colour)), el("td", {class: "soft"}, note));
  const of = (r, what) => el("span", {}, chip(r.name), ` ${what}`);
  const lines = [line("tensors", least, "var(--soft)",
    "what kernels read and write, once each, wherever it lies; tables read by index count whole")];
  rows.forEach((r, i) => {
    const notes = trafficNotes(r), colour = colourOf(r.name);
    lines.push(line(of(r, "predicted"), r.bytes, colour, notes.predicted));
    if (hasCounted)
      lines.push(line(of(r, "counted"), counted(r.name).bytes, colour, notes.counted));
    if (i === 0 && missed)
      lines.push(line(of(r, "measured"), missed, colour,
        `misses of the last cache, a line each; ${
          (missed / r.bytes).toFixed(2)} times what was predicted`));
  });
  return table(["traffic of a run", "#bytes", "", ""], lines);
}

function trafficTable(names) {
  const moved = (k, n) => movedAt(k, n) * k.launches, all = (k) => sum(names, (n) => moved(k, n));
  const sorted = kernels.filter((k) => all(k) > 0).sort((a, b) => all(b) - all(a)).slice(0, 200);
  const largest = new Map(names.map((n) => [n, Math.max(...kernels.map((k) => moved(k, n)), 1)]));
  const memory = names[0];
  const ratio = (k) =>
    sum(k.counted.filter((c) => c.level === memory), (c) => c.read_bytes + c.written_bytes) /
    movedAt(k, memory);
  const number = (text, isHot) => el("td", {class: `n${isHot ? " hot" : ""}`}, text);
  const rows = sorted.map(
    (k) => el("tr", leads(`#kernels/${encodeURIComponent(k.name)}`),
      el("td", {}, k.launches > 1 ? el("span", {class: "soft"}, `${k.launches}× `) : null, k.name),
      number(bytesText(k.bytes * k.launches)),
      names.flatMap(
        (n) => [number(movedAt(k, n) ? bytesText(moved(k, n)) : "–"),
          el("td", {style: "width:11%"}, bar(moved(k, n) / largest.get(n), colourOf(n)))]),
      hasCounted ? number(k.counted && movedAt(k, memory) ? ratio(k).toFixed(2) : "–") : null,
      number(k.bytes ? (movedAt(k, memory) / k.bytes).toFixed(2) : "–",
        k.bytes && movedAt(k, memory) / k.bytes > 2)));
  return table(
    [
      "kernel", "#tensors", ...names.flatMap((n) => [`#${n}`, ""]),
      ...(hasCounted ? ["#counted / predicted"] : []), "#memory / tensors"
    ],
    rows);
}

function drawTraffic() {
  const rows = trafficRows(), m = D.measured, notes = [];
  if (!hasCounted && !isGpu)
    notes.push("Counted: not asked for; --count runs every kernel in the simulator.");
  if (!m)
    notes.push("Measured: not asked for; --measure runs the model.");
  else if (m.no_counters)
    notes.push(`Measured: there is no count of misses: ${m.no_counters}.`);
  fill("traffic", el("h2", {}, "Traffic by level"), trafficSummary(rows),
    notes.map((n) => el("p", {class: "soft", style: "margin:4px 0"}, n)),
    el("h2", {style: "margin-top:16px"}, "By kernel"), trafficTable(rows.map((r) => r.name)));
}
