#!/usr/bin/env python3
"""kiln report: the page is well formed, needs nothing outside of it, and has every kernel with its code; and the tracks of a trace.

usage: report.py KILN
"""
import base64
import errno
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

KILN = str(pathlib.Path(sys.argv[1]).resolve())
TC = "examples/tc/matmul.tc"
ONNX = "/usr/share/libonnx-testdata/data/node/test_softmax_axis_1/model.onnx"
VOID = {"meta", "input", "br", "hr", "img", "link"}
NAMESPACE = "http://www.w3.org/2000/svg"  # a name, which nobody fetches
failed = 0


def check(what, right):
    global failed
    if not right:
        failed += 1
        print(f"FAILED {what}")


def run(*args, **environment):
    r = subprocess.run([KILN, *args], capture_output=True, text=True, env={**os.environ, **environment})
    if r.returncode:
        print(r.stdout, r.stderr)
    return r


class Page(html.parser.HTMLParser):
    """The page's scripts, and what is wrong with its elements."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.scripts, self.ids = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        self.wrong += [f"<{tag} {name}={value}>" for name, value in attrs.items() if name in ("src", "srcset", "data") or (name == "href" and value[0] != "#")]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append([attrs, ""])

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data


def read(path):
    """The page's data, and the code of each kernel in order."""
    text = path.read_text()
    page = Page(text)
    check(f"{path.name}: elements that close, and none that is elsewhere, not {page.wrong}", not page.wrong and not page.open)
    check(f"{path.name}: an id is one element's", len(page.ids) == len(set(page.ids)))
    rest = text.replace(NAMESPACE, "")
    outside = re.findall(r"https?://|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|import\(", re.sub(r'<script type="application/.*?</script>', "", rest, flags=re.S))
    check(f"{path.name}: nothing is fetched, not {outside}", not outside)
    data, codes = None, []
    for attrs, script in page.scripts:
        if attrs.get("id") == "data":
            data = json.loads(script)
        if attrs.get("class") == "code":
            raw = base64.b64decode(script)
            codes.append(json.loads(zlib.decompress(raw) if attrs["data-form"] == "deflate" else raw))
    return data, codes


def lines_of(text):
    return [line for n, line in zip(text["lines"][::2], text["lines"][1::2]) for _ in range(n)]


def check_code(name, code, wanted):
    texts = {t["name"]: t for t in code["texts"]}
    check(f"{name} {code['kernel']}: has {wanted}, got {list(texts)}", list(texts) == wanted)
    loops = texts["loops"]["text"].splitlines()
    stores = {i + 1 for i, line in enumerate(loops) if re.search(r"\] \S?=|\] \w+= |^\s*instr ", line)}
    for t in code["texts"][1:]:
        lines = lines_of(t)
        check(f"{name} {code['kernel']} {t['name']}: a line of the loops for each line", len(lines) == len(t["text"].splitlines()) > 0)
        check(f"{name} {code['kernel']} {t['name']}: lines that there are", all(0 <= line <= len(loops) for line in lines))
        check(f"{name} {code['kernel']} {t['name']}: stores are in it", stores & set(lines) and (t["name"] != "loops" or stores <= set(lines)))


def check_report(name, wanted, model, *options):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "r.html"
        explained = pathlib.Path(folder) / "e.json"
        check(f"{name}: ends well", run("report", model, "-o", str(out), *options).returncode == 0)
        run("explain", model, "--json", str(explained), *[o for o in options if o != "--measure"])
        data, codes = read(out)
        kernels = [k["name"] for k in json.loads(explained.read_text())["kernels"]]
        check(f"{name}: kernels as kiln explain has them", [k["name"] for k in data["kernels"]] == kernels and kernels)
        check(f"{name}: code of each", [c["kernel"] for c in codes] == kernels)
        for code in codes:
            check_code(name, code, wanted)
        n = len(data["launch_list"])
        check(f"{name}: launches", n == data["launches"] and {x["kernel"] for x in data["launch_list"]} == set(kernels))
        check(f"{name}: flows are between launches in order", data["flows"] and all(-2 <= f["from"] < n and -1 <= f["to"] < n and (f["to"] < 0 or f["from"] < f["to"])
                                                                                    for f in data["flows"]))
        check(f"{name}: an output is made", any(f["to"] == -1 for f in data["flows"]))
        check(f"{name}: levels with bandwidths", data["machine"]["levels"] and all(x["all_bytes_ns"] > 0 for x in data["machine"]["levels"]))
        for k in data["kernels"]:
            check(f"{name}: every candidate of {k['name']}", len(k["rivals"]) + (k["taken"]["family"] is not None) == k["candidates"] or not k["candidates"])
        return data


# What perf_event_open gives, and what the page then has of the misses of a run (21 runs, a line of 64 bytes each).
COUNTERS = [
    ({"KILN_PERF_ERRNO": str(errno.EACCES)}, "no_counters", "the system does not permit it (/proc/sys/kernel/perf_event_paranoid)"),
    ({"KILN_PERF_ERRNO": str(errno.EPERM)}, "no_counters", "the system does not permit it (/proc/sys/kernel/perf_event_paranoid)"),
    ({"KILN_PERF_ERRNO": str(errno.ENOENT)}, "no_counters", "this machine has no counters of its processor, as virtual machines have not"),
    ({"KILN_PERF_ERRNO": str(errno.ENOSYS)}, "no_counters", "the system has no perf_event_open"),
    ({"KILN_PERF_COUNT": "0"}, "no_counters", "the processor's counter counted none"),
    ({"KILN_PERF_COUNT": "21000"}, "missed_bytes", 64000.0),
]


def check_counters():
    """Misses that are counted are shown, and why they are not otherwise."""
    cc = shutil.which(os.environ.get("CC", "cc"))
    if not cc:
        return
    with tempfile.TemporaryDirectory() as folder:
        library, out = pathlib.Path(folder) / "perf_event.so", pathlib.Path(folder) / "r.html"
        subprocess.run([cc, "-shared", "-fPIC", "-D_GNU_SOURCE", "test/cli/perf_event.c", "-o", library, "-ldl"], check=True)
        for environment, member, value in COUNTERS:
            how = {"LD_PRELOAD": str(library), "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0", **environment}
            run("report", TC, "--entry", "matmul", "--size", "M=8", "--size", "N=8", "--size", "K=8", "--measure", "-o", str(out), **how)
            got = read(out)[0]["measured"]
            both = {"no_counters", "missed_bytes"} & set(got)
            check(f"counters {environment}: {member}: {value}, got {both} {got.get(member)}", both == {member} and got[member] == value)


def check_trace():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "t.json"
        run("bench", ONNX, "--threads", "2", "--iterations", "1", "--trace", str(path))
        events = json.loads(path.read_text())["traceEvents"]
        tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        check(f"trace: tracks, got {tracks}", tracks[0] == "launches" and tracks[1].startswith("thread 0"))
        check("trace: spans are on tracks that have names", all(e["tid"] in tracks for e in events if e["ph"] == "X"))
        counters = {e["name"] for e in events if e["ph"] == "C"}
        check(f"trace: counters, got {counters}", counters == {"GFLOP/s", "GB/s at least", "threads at work"})
        busy = [e["args"]["value"] for e in events if e["name"] == "threads at work"]
        check("trace: threads at work begin and end at none", busy and busy[-1] == 0 and all(0 <= b <= 2 for b in busy))
        launches = {e["name"]: e for e in events if e.get("cat") == "kernel"}
        for e in events:
            if e.get("cat") == "nest":
                at = launches[e["name"]]
                check("trace: a thread works in its launch", at["ts"] - 1 <= e["ts"] and e["ts"] + e["dur"] <= at["ts"] + at["dur"] + 1)


def main():
    cpu = ["script", "loops", "llvm", "asm"]
    sizes = ["--size", "M=64", "--size", "N=48", "--size", "K=32", "--threads", "2"]
    data = check_report("definition", cpu, TC, "--entry", "matmul", *sizes)
    check("definition: its text", "def matmul" in data["definition"])
    data = check_report("counted", cpu, TC, "--entry", "matmul", *sizes, "--count")
    for k in data["kernels"]:
        by = {t["level"]: t for t in k["traffic"]}
        check(f"counted: {k['name']} by level", [t["level"] for t in k["counted"]] == list(by))
        for t in k["counted"]:
            both = t["read_bytes"], by[t["level"]]["read_bytes"]
            check(f"counted: {k['name']} {t['level']}: counted and predicted read bytes {both} are of a size", max(both) <= 1.5 * min(both))
    check_report("schedule", cpu, "examples/halide/blur.tc", "--size", "H=130", "--size", "W=258", "--schedule", "examples/halide/blur.schedule")
    check_report("opencl", ["script", "loops", "device loops", "opencl"], TC, "--entry", "matmul", *sizes, "--target", "opencl")
    if pathlib.Path(ONNX).exists():
        data = check_report("model", cpu, ONNX, "--threads", "2", "--measure")
        m = data["measured"]
        check("model: measured launches", [x["kernel"] for x in m["launches"]] == [x["kernel"] for x in data["launch_list"]])
        check("model: a time line of threads", m["spans"] and all(t in (0, 1) for _, t, _, _ in m["spans"]))
        check("model: misses, or why they are not counted", ("missed_bytes" in m) != ("no_counters" in m))
        check_trace()
    check_counters()
    return 1 if failed else 0


sys.exit(main())
