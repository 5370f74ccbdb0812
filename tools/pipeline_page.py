#!/usr/bin/env python3
"""docs/design/pipeline.md, from the table of passes in src/driver/pipeline.c.

usage: pipeline_page.py [--check]    --check: exit code 1 if the page is stale
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design" / "pipeline.md"
ROW = re.compile(r'\{"([\w-]+)", KILN_PHASE_(\w+),(.*?)\.text = "((?:[^"\\]|\\.)*)"\}', re.S)
PHASE = re.compile(r"KILN_PHASE_(\w+),? +// (.*)")
WHEN = {"by_grids": "GPUs", "by_vectors": "CPUs", "of_onnx": "ONNX models", "of_ranges": "ranges of extents", "has_loop_bounds": "ranges of extents on CPUs", "has_grid_bounds": "ranges of extents on GPUs",
        "dumps_device_loops": "GPUs, `--dump-after=device-loops`",
        "may_orchestrate": "`--orchestrate`", "may_try": "`--orchestrate --tune`", "is_orchestrated": "`--orchestrate`"}
HEAD = """\
# The pipeline: every pass, in order

```text
   file --load--> statements --choose, rewrite, tile--> statements --connect--> kernels --kernels, launches--> code --plan--> module
                                  |
                                  +-- each pass: verified, timed, printed, left out, bisected by one runner
```

A compilation is this table, `kiln_passes` in `src/driver/pipeline.c`, from which `tools/pipeline_page.py` makes the page.
The runner (`src/driver/pipeline_run.c`) alone decides whether a row runs. It verifies what each leaves: a program of
statements, or loops; and that statements keep their numbers where the row does not say that it renumbers them.

- `--time-passes` prints the time of each, `--dump-after=NAME` the program as it leaves it.
- `--without=NAME` leaves out what is optional: a module without it is right, and slower. The names of
  [rules](rules.md) are taken, too.
- `--stop-after=N` runs the first N steps of rules and optional passes, `--stop-after=NAME` none behind that pass.
  `kiln verify` bisects so itself, and names the step behind which the program computes something else.

Some passes, and calls of the interface, compile models anew: trials of orchestrations, shape buckets, verification that
bisects, explanation. They ask a table of functions for it (`src/module/compiler.h`), which a model carries from whoever
loaded it; so `src/dynamic/`, `src/verify/`, `src/tune/` and `src/explain/` stand below the driver, and call nothing of it.

Where a user's script schedules a whole definition, or the polyhedral scheduler does, kernels are there at once, and
what stands between is not run.
"""


def page():
    source = (ROOT / "src" / "driver" / "pipeline.c").read_text()
    phases = dict(PHASE.findall((ROOT / "src" / "driver" / "pipeline.h").read_text()))
    yield HEAD
    last = None
    for name, phase, fields, text in ROW.findall(source):
        if phase != last:
            yield f"\n## {phase.capitalize()}\n\n{phases[phase][0].upper() + phases[phase][1:]}.\n\n| pass | does | for | optional |\n|---|---|---|---|"
        last = phase
        when = re.search(r"\.when = (\w+)", fields)
        yield f"| `{name}` | {text} | {WHEN[when.group(1)] if when else 'all'} | {'yes' if 'is_optional = true' in fields else ''} |"
    yield """
## Why so

The order of the passes stood in three places, under six conditions that asked for a CPU; a pass could be neither left
out nor looked at alone, and what a wrong one did showed first in a kernel. A table is read in a minute, and a new pass is
a row and a function."""


def main():
    text = "\n".join(page()) + "\n"
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.exit("docs/design/pipeline.md is stale: tools/pipeline_page.py")
        return print(f"pipeline.md: {text.count('| `')} passes")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
