#!/usr/bin/env python3
"""Reports of models in a browser: each view has what it must, nobody complains, and large graphs stay fluid.

usage: browser.py KILN FOLDER MODEL.onnx...    reports and pictures go to FOLDER

Two of Halide's examples, and the last but one model for a GPU, are opened as well.
"""
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from devtools import Browser  # noqa: E402

FLUID_MS = 100  # a frame, at the median: one in software, on a machine that others use, takes some 20
VIEWS = ["overview", "graph", "kernels", "roofline", "timeline", "traffic", "statements"]
failed = 0


def check(what, right):
    global failed
    if not right:
        failed += 1
        print(f"FAILED {what}")


# What must be seen of a view when it is shown: a script that gives true.
SEEN = {
    "overview": "$('slowest-kernel') && $('overview').querySelectorAll('tbody tr').length > 0 && $('overview').querySelector('.fact')",
    "graph": "graph.svg.querySelectorAll('.node').length === graph.nodes.length && graph.svg.querySelectorAll('path.edge').length >= graph.edges.length",
    "kernels": "$('kernels').querySelectorAll('.pane').length >= 3 && $('kernels').querySelector('.why') && $('kernels').querySelectorAll('.l.linked').length > 0",
    "roofline": "$('roofline').querySelectorAll('circle').length === rooflinePoints().length",
    "timeline": "line.tracks[0].spans.length === launches.length && line.canvas.width > 0",
    "traffic": "$('traffic').querySelectorAll('table').length === 2",
    "statements": "$('statements').querySelectorAll('.l').length > 3",
}


def shown(address):
    """That the page has drawn what its address names."""
    return f"document.documentElement.dataset.shown === {address if '(' in address else repr(address)}"


def check_views(b, name, folder, theme):
    for view in VIEWS:
        b.run(f"location.hash = '#{view}'")
        try:
            b.wait(f"{shown('#' + view)} && !$('{view}').hidden && !!({SEEN[view]})")
        except TimeoutError:
            check(f"{name} {theme}: {view} has what it must", False)
        time.sleep(0.15)
        b.picture(folder / f"{name}-{view}-{theme}.png")


def check_links(b, name):
    """A line of the loops that is chosen marks lines of the code beside it."""
    b.run("location.hash = '#kernels/' + encodeURIComponent(byTime[0].name)")
    b.wait("document.querySelectorAll('#kernels .pane').length >= 3")
    b.run("document.querySelector('#kernels .body').scrollTop = 1e6")
    b.wait("document.querySelectorAll('#kernels .pane .l.linked').length > 0")
    b.run("[...document.querySelectorAll('#kernels .pane')].find((p) => p.querySelector('h4').textContent.startsWith('loops'))"
          ".querySelector('.l.linked').click()")
    b.wait("[...document.querySelectorAll('#kernels .pane')].filter((p) => p.querySelector('.l.on')).length >= 2", 10)


def check_keys(b, name):
    for i, view in enumerate(VIEWS):
        b.press(str(i + 1))
        b.wait(shown(f"#{view}"))
    theme = b.run("document.documentElement.dataset.theme")
    b.press("t")
    check(f"{name}: t switches the theme", b.run("document.documentElement.dataset.theme") != theme)
    b.press("t")
    b.press("?")
    b.wait("$('help').open")
    b.press("Escape")
    b.wait("!$('help').open")
    b.press("/")
    b.wait("$('search').open")
    kernel = b.run("kernels[kernels.length - 1].name")
    b.call("Input.insertText", text=kernel)
    b.wait(f"finder.found.length > 0 && finder.found[0].text === '{kernel}'")
    b.press("Enter")
    b.wait(f"{shown(KERNEL)} && kernelView.k.name === '{kernel}'")
    check_slowest(b, name)


KERNEL = "`#kernels/${encodeURIComponent(kernels[kernels.length - 1].name)}`"
SLOWEST = "`#graph/${D.flows.indexOf(slowestEdge.flow)}`"
# The key that follows a search before a frame is drawn: the field of the search has the focus still.
AT_ONCE = """(() => {
  openSearch();
  find(views[0].title);
  openFound(0);
  const field = document.activeElement;
  field.dispatchEvent(new KeyboardEvent("keydown", {key: "s", bubbles: true, cancelable: true}));
  return field.id;
})()"""


def check_slowest(b, name):
    """The key s shows the slowest edge, also where it is pressed as soon as the search closes."""
    if not b.run("!!slowestEdge && slowestEdge.kind === 'between'"):
        return
    for press in (lambda: b.press("s"), lambda: b.run(AT_ONCE)):
        press()
        b.wait(f"{shown(SLOWEST)} && graph.edge === D.flows.indexOf(slowestEdge.flow)")
        check(f"{name}: the slowest edge says its bytes", "B" in b.run("graph.panel.textContent"))
        b.run("location.hash = '#overview'")
        b.wait(shown("#overview"))


def check_marks(b, name):
    """What readers of screens go by: every button and link has a name, and one view is shown."""
    bare = b.run("[...document.querySelectorAll('button, a, [role=button], [role=link], input, select')]"
                 ".filter((e) => !(e.textContent || e.getAttribute('aria-label') || e.labels?.length)).length")
    check(f"{name}: {bare} controls without a name", bare == 0)
    check(f"{name}: one tab is selected", b.run("document.querySelectorAll('[role=tab][aria-selected=true]').length") == 1)


FRAMES = """(async () => {
  location.hash = '#graph'; await new Promise((r) => setTimeout(r, 300));
  clearChoice(); fitGraph();
  const times = [];
  for (let i = 0; i < 40; i++) {
    const start = performance.now();
    if (i % 2) zoomGraph(i % 4 === 1 ? 1.15 : 1 / 1.15, 700, 450); else { graph.view.x += 11; askPaint(); }
    await new Promise((r) => requestAnimationFrame(() => setTimeout(r, 0)));
    times.push(performance.now() - start);
  }
  return times.sort((x, y) => x - y)[20];
})()"""


def check_fluid(b, name):
    ms = b.run(FRAMES)
    check(f"{name}: a frame of the graph takes {ms:.0f} ms, must be under {FLUID_MS}", ms < FLUID_MS)
    return ms


def check_page(b, path, folder):
    name = path.stem
    start = time.monotonic()
    b.open(path)
    opened = time.monotonic() - start
    for theme in ("light", "dark"):
        if theme == "dark":
            b.open(path, theme)
        check(f"{name}: {theme} as the system says", b.run("document.documentElement.dataset.theme") == theme)
        check_views(b, name, folder, theme)
        check_complaints(b, f"{name} {theme}")
    check_links(b, name)
    check_keys(b, name)
    check_marks(b, name)
    ms = check_fluid(b, name)
    pdf = b.call("Page.printToPDF")["data"]
    check(f"{name}: prints", len(pdf) > 10000)
    check_complaints(b, name)
    kernels, launches = b.run("kernels.length"), b.run("launches.length")
    print(f"{name}: {path.stat().st_size / 1e6:.2f} MB, {kernels} kernels, {launches} launches, open in {opened:.2f} s, {ms:.0f} ms a frame", flush=True)


def check_complaints(b, name):
    for complaint in b.complaints():
        check(f"{name}: {complaint}", False)
    check(f"{name}: asks for nothing, not {b.requests()}", not b.requests())
    b.events.clear()


def make(kiln, path, model, *options):
    start = time.monotonic()
    r = subprocess.run([kiln, "report", model, "-o", str(path), *options], capture_output=True, text=True)
    check(f"{path.stem}: is made: {r.stderr}", r.returncode == 0)
    print(f"{path.stem}: made in {time.monotonic() - start:.1f} s", flush=True)
    return path if r.returncode == 0 else None


def main():
    kiln, folder, models = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    folder.mkdir(parents=True, exist_ok=True)
    if not any(shutil.which(p) for p in ("chromium", "chromium-browser", "google-chrome")):
        print("report: skipped: there is no Chromium")
        return 77
    pages = [make(kiln, folder / f"{pathlib.Path(m).stem}.html", m, "--threads", "2", "--measure") for m in models]
    if len(models) > 1:
        m = models[-2]
        pages.append(make(kiln, folder / f"{pathlib.Path(m).stem}_sm_90a.html", m, "--target", "cuda:sm_90a", "--dtype", "f16"))
    for e, sizes in (("blur", ["H=1202", "W=1602"]), ("harris", ["H=1202", "W=1602"])):
        options = [x for s in sizes for x in ("--size", s)]
        pages.append(make(kiln, folder / f"{e}.html", f"examples/halide/{e}.tc", "--threads", "2", "--measure", *options,
                          *(["--schedule", f"examples/halide/{e}.schedule"] if e == "blur" else [])))
    b = Browser()
    try:
        for path in filter(None, pages):
            try:
                check_page(b, path, folder)
            except (TimeoutError, RuntimeError) as e:
                check(f"{path.stem}: {e}", False)
    finally:
        b.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
