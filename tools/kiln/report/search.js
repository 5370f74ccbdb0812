// Search in kernels, nodes, tensors and statements.

function makeIndex() {
  const out = views.map((v) => ({text: v.title, kind: "view", hash: `#${v.id}`}));
  for (const k of kernels)
    out.push({
      text: k.name,
      kind: "kernel",
      hash: `#kernels/${encodeURIComponent(k.name)}`,
      more: tail(k.nodes || "", 60)
    });
  for (const l of launches)
    for (const node of l.nodes.split("+"))
      out.push({
        text: node,
        kind: "node",
        hash: `#kernels/${encodeURIComponent(l.kernel)}`,
        more: l.kernel
      });
  D.flows.forEach(
    (f, i) =>
      out.push({text: f.tensor, kind: "tensor", hash: `#graph/${i}`, more: bytesText(f.bytes)}));
  for (const k of kernels)
    for (const p of k.prims)
      out.push({
        text: p.text,
        kind: "statement",
        hash: `#statements/${encodeURIComponent(k.name)}`,
        more: k.name
      });
  return out;
}
const finder = {
  index: null,
  found: [],
  at: 0
};
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
  fill("search-results",
    finder.found.map(
      (x, i) => el("li", {
        role: "option",
        id: `found-${i}`,
        "aria-selected": i === finder.at,
        onclick: () => openFound(i)
      },
        el("span", {class: "soft"}, `${x.kind} `), el("span", {class: "mono"}, head(x.text, 80)),
        x.more ? el("span", {class: "soft"}, ` ${x.more}`) : null)));
  $("search-input").setAttribute("aria-activedescendant", `found-${finder.at}`);
  $(`found-${finder.at}`)?.scrollIntoView({block: "nearest"});
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
  const by = {ArrowDown: 1, ArrowUp: -1}[e.key];
  if (by) {
    e.preventDefault();
    finder.at = clamp(finder.at + by, 0, finder.found.length - 1);
    showFound();
  }
  if (e.key === "Enter") {
    e.preventDefault();
    openFound(finder.at);
  }
});
