#!/usr/bin/env python3
"""Whether a change of the compiler changes what it makes: digests of the modules of all models, before and after.

usage: same_modules.py save FILE [--kiln KILN] [--weights DIR] [PATTERN...]
       same_modules.py check FILE [--kiln KILN] [--weights DIR] [PATTERN...]

Each model of models/ whose name matches a PATTERN (all) is compiled as a module for x86-64-v3, which is the same code on
every machine, and its kernels, scripts and plan for cuda:sm_90a in f16 are emitted as text; `save` writes a SHA-256 of each,
`check` compares. Weights are made in DIR (build/models) where they are missing. Named dimensions are compiled for ranges, on
the GPU for the largest extent. Exit code 1: something differs, or is not in FILE.
"""
import argparse
import fnmatch
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "models"))
import onnx  # noqa: E402
import weights  # noqa: E402

RANGES = {"seq": "16..64/16", "height": "32..64/16", "width": "32..64/16", "t": "1..8", "past": "1..64", "kv": "past+t"}  # others: 1..4
WAYS = {"x86-64-v3": ["--target=x86-64-v3", "--threads=2"], "cuda:sm_90a f16": ["--target=cuda:sm_90a", "--dtype=f16", "--dump=cuda,schedule,plan"]}


def dimensions(model, is_gpu):
    """What each named dimension of the inputs is compiled for: a range, or on a GPU its end."""
    ports = onnx.load(model, load_external_data=False).graph.input
    names = {d.dim_param for p in ports for d in p.type.tensor_type.shape.dim if d.dim_param}
    ranges = {n: RANGES.get(n, "1..4") for n in sorted(names)}
    return [f"--dim={n}={r.split('/')[0].split('..')[-1] if is_gpu else r}" for n, r in ranges.items()]


def digest(kiln, model, options, folder):
    """The digest of what is made, or what was said in its place."""
    module = folder / "m.so"
    to = [] if any(o.startswith("--dump") for o in options) else ["-o", module]
    done = subprocess.run([kiln, "compile", model, "--no-cache", *options, *to], capture_output=True)
    if done.returncode:
        return "refused: " + done.stderr.decode(errors="replace").strip().splitlines()[-1][:200]
    return hashlib.sha256(module.read_bytes() if to else done.stdout).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["save", "check"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--kiln", default=ROOT / "build" / "kiln")
    parser.add_argument("--weights", type=pathlib.Path, default=ROOT / "build" / "models")
    a = parser.parse_intermixed_args()
    known = json.loads(a.file.read_text()) if a.file.exists() else {}
    n_wrong = 0
    for source in sorted((ROOT / "models").glob("*.onnx")):
        name = source.stem
        if a.patterns and not any(fnmatch.fnmatch(name, p) for p in a.patterns):
            continue
        if not (a.weights / f"{name}.weights").exists():
            weights.fill(source.parent, a.weights, name)
        model = a.weights / f"{name}.onnx"
        for way, options in WAYS.items():
            dims = dimensions(model, "cuda" in way)
            key = f"{name} {way}"
            with tempfile.TemporaryDirectory() as folder:
                got = digest(a.kiln, model, [*options, *dims], pathlib.Path(folder))
            if a.what == "save":
                known[key] = got
                a.file.write_text(json.dumps(known, indent=1))
            elif known.get(key) != got:
                n_wrong += 1
                print(f"DIFFERS {key}: {got}, was {known.get(key, 'not saved')}", flush=True)
            print(f"{key}: {got[:72]}", flush=True)
    print(f"{n_wrong} differ" if a.what == "check" else f"saved in {a.file}")
    return n_wrong > 0


if __name__ == "__main__":
    sys.exit(main())
