# SPDX-License-Identifier: Apache-2.0
"""A program of a user who checks types strictly: test_types.py has mypy read it; it is not run."""
import pathlib
import signal
from typing import Any

import kiln
import numpy as np

stop = kiln.Stop()
signal.signal(signal.SIGINT, lambda *_: stop.set())


def tell(phase: str, done: int, total: int) -> None:
    print(f"{phase:<12} {done}/{total}")


def compiled(path: pathlib.Path) -> kiln.Module:
    return kiln.compile(
        path,
        target="x86-64-v3",
        dims={"N": (1, 64), "t": np.int64(4), "step": range(8, 65, 8), "kv": "past + t"},
        shapes={"x": ["N", 3]},
        overridable="*",
        marks=["hidden"],
        tune=8,
        tune_seconds=2.5,
        tuned=path.with_suffix(".sqlite"),
        orchestrate=True,
        backends=["openblas", "onednn"],
        dump=["prim", "loop"],
        dump_after="fission",
        stop_after=17,
        progress=tell,
        stop=stop,
    )


def told(module: kiln.Module, x: np.ndarray[Any, Any]) -> str:
    rows = [f"{port.name.upper()} {port.dtype} {len(port.shape)}" for port in (*module.inputs, *module.outputs)]
    rows += [f"{launch.kernel} {launch.ns / 1e3:.1f} us" for launch in module.profile(x)]
    rows += [v.kernel for v in module.verify(seed=3) if not v.passed]
    rows += [f"{d.name} {d.least}..{d.most}" for d in module.dims]
    rows.append(f"{module.memory.arena_bytes + module.weight_bytes} bytes for {module.about.target}")
    return "\n".join([*rows, *module.dumps, kiln.host(), kiln.ort_library(), kiln.__version__])


def main() -> None:
    scale = kiln.tc("def f(float(N) X) -> (Y) { Y(n) = 2 * X(n) }", entry="f", tune=4, dtype="f16", threads=2)
    print(scale(np.ones(3)), scale.gradient.outputs, scale.compile(N=8).run(np.ones(8))[0])
    kiln.compile("m.onnx", tun=3)  # type: ignore[call-arg]
    kiln.compile("m.onnx", tune="3")  # type: ignore[arg-type]
    kiln.tc("", no_winograd="yes")  # type: ignore[arg-type]
    try:
        module = compiled(pathlib.Path("m.onnx"))
        module.save("m.so")
        print(told(kiln.load("m.so", threads=2), np.zeros((1, 3))), kiln.from_bytes(module.to_bytes()))
    except kiln.BadInput as e:
        place = e.messages[0].line_column
        print(e.node, e.place, place[0] if place else 0, [m.text for m in e.messages])


main()
