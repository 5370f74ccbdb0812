#!/usr/bin/env python3
"""Runs ONNX's node tests with dimensions left symbolic: each test that passes with numbers is compiled again with a name for
every axis that may vary (named_axes.py) and the range 1 .. max(2n, 8), and runs at the test's own extents, where the test's
outputs are expected, and at a point by chance, where those of ONNX Runtime or onnx.reference are.

usage: symbolic_nodes.py LIBRARY_DIR NODE_TEST_DIR [--floor N] [--percent P] [--share K] [--read] [--json LINES] [-k PATTERN]
                         [--jobs N]      --read: reads models without making code and running it, which tells what is refused

Inputs that a test binds to constants where it is compiled with numbers are bound here, too, and their axes with them. Of more
than 8 names the first 8 keep a range. Prints how many pass, the reasons of what is refused, and what is wrong: nothing may be.
"""
import argparse, collections, fnmatch, hashlib, json, multiprocessing, os, pathlib, re, signal, sys, time, traceback, warnings

try:
    import numpy as np
    import onnx
    import onnxruntime  # noqa: F401
    from onnx import numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parents[1])]
import share  # noqa: E402
from named_axes import Names, Reference, parts_of, without_shapes  # noqa: E402

MOST_NAMES, TIME_LIMIT_S = 8, 120
RTOL, ATOL = 1e-3, 1e-7  # ONNX's own
KINDS = ("passed", "refused", "wrong", "nothing varies", "not with numbers")


# --- tests ---

def read_pb(path, kind):
    data = path.read_bytes()
    if kind == "sequence_type":
        return [np.asarray(x) for x in numpy_helper.to_list(onnx.SequenceProto.FromString(data))]
    if kind == "optional_type":
        value = numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        return value if value is None or isinstance(value, list) else np.asarray(value)
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def of_type(array, port):
    """ONNX's older tests store bf16 as u16."""
    if port.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 and array.dtype == np.uint16:
        return array.view(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))
    return array


def read_set(folder, ports, name):
    values = []
    for i, port in enumerate(ports):
        path = folder / f"{name}_{i}.pb"
        if not path.exists():
            break
        value = read_pb(path, port.type.WhichOneof("value"))
        values.append(of_type(value, port) if isinstance(value, np.ndarray) else value)
    return values


def read_test(folder):
    model = onnx.load(folder / "model.onnx")
    data = folder / "test_data_set_0"
    defaults = {t.name for t in model.graph.initializer}
    ports = list(model.graph.input)
    if not (data / f"input_{len(ports) - 1}.pb").exists():
        ports = [p for p in ports if p.name not in defaults]
    inputs = dict(zip([p.name for p in ports], read_set(data, ports, "input")))
    return model, inputs, read_set(data, model.graph.output, "output")


# --- runs ---

def flat_inputs(values):
    """Inputs by Kiln's names: a sequence "x" is "x[0]", "x[1]", ..."""
    return {name if part < 0 else f"{name}[{part}]": array for name, value in values.items() for part, array in parts_of(value)}


def list_lengths(values):
    return {n: -1 if v is None else len(v) for n, v in values.items() if v is None or isinstance(v, list)}


def flat_outputs(values):
    return [np.asarray(x) for v in values for x in (v if isinstance(v, list) else [] if v is None else [v])]


def differ(got, want, rtol=RTOL, atol=ATOL):
    """What is wrong; None: nothing."""
    if len(got) != len(want):
        return f"must have {len(want)} outputs, got {len(got)}"
    for k, (a, b) in enumerate(zip(got, want)):
        if a.shape != b.shape:
            return f"output {k} must have the shape {b.shape}, got {a.shape}"
        if a.dtype != b.dtype:
            return f"output {k} must be {b.dtype}, got {a.dtype}"
        if a.dtype.kind in "iub":
            right = np.array_equal(a, b)
        else:
            a, b = a.astype(np.float64), b.astype(np.float64)
            right = np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if not right:
            return f"output {k} differs"
    return None


# Which inputs are bound, from try to try: as kiln test does.
BINDINGS = (
    lambda i, x: False,
    lambda i, x: x.dtype.kind in "iub" and x.ndim <= 1 and i > 0,
    lambda i, x: x.size <= 16 and x.ndim <= 1 and i > 0,
    lambda i, x: x.dtype.kind in "iub" or x.size <= 16,
    lambda i, x: i > 0,
)


class Case:
    def __init__(self, folder):
        self.name = folder.name
        self.model, self.inputs, self.want = read_test(folder)
        self.given = flat_inputs(self.inputs)
        if any(x.dtype.kind in "OUS" for x in self.given.values()):
            raise NotImplementedError("inputs that are strings")
        self.expected = flat_outputs(self.want)
        self.bare = without_shapes(self.model)
        self.level, self.has_shape = 0, []

    def bound_at(self, level):
        return [n for i, (n, x) in enumerate(self.given.items()) if BINDINGS[level](i, x)]

    def read(self, model, level, shapes, dims):
        """Reads the model, up to its programs."""
        from kiln import _compile
        options = _compile.Options()
        options.dims(dims)
        options.shapes(shapes)
        options.constants({n: self.given[n] for n in self.bound_at(level)})
        options.texts("overridable", list(self.given))
        path, own = _compile._source(model, None)
        options.files(own)
        return _compile.load_model(path, options)

    def compile(self, model, level, shapes, dims):
        import kiln
        bound = self.bound_at(level)
        return kiln.compile(model, dims=dims, shapes=shapes, constants={n: self.given[n] for n in bound},
                            overridable=list(self.given), threads=1, cache=False)

    def takes(self, values, made):
        """Whether Kiln takes the model with these inputs' extents as numbers, and gives outputs the extents of |made|."""
        from kiln import errors
        try:
            model = self.read(self.bare, self.level, {n: x.shape for n, x in flat_inputs(values).items()}, list_lengths(values))
        except errors.Error:
            return False
        ports = [model.api.kiln_model_output(model.pointer, i) for i in range(model.api.kiln_model_output_count(model.pointer))]
        shapes = [tuple(p.shape[:p.rank]) for p in ports]
        same = [a == b.shape for a, b in zip(shapes, flat_outputs(made))]
        if values is self.inputs:
            self.has_shape = same  # others are those of data
        return len(shapes) == len(same) and all(a or not b for a, b in zip(same, self.has_shape))

    def run(self, module, given):
        places = {p.name for p in module.inputs}
        return [np.asarray(x) for x in module.run(**{n: x for n, x in given.items() if n in places})]

    def static_level(self, only_read):
        """The first choice of bound inputs with which the test passes with numbers; None: with none."""
        import kiln
        for level in range(len(BINDINGS)):
            if level and self.bound_at(level) == self.bound_at(level - 1):
                continue
            try:
                shapes = {n: x.shape for n, x in self.given.items() if n.endswith("]")}
                if only_read:
                    self.read(self.model, level, shapes, list_lengths(self.inputs))
                    return level
                module = self.compile(self.model, level, shapes, list_lengths(self.inputs))
                found = differ(self.run(module, self.given), self.expected, atol=max(ATOL, 1e-5))
                return level if found is None else None
            except kiln.Error:
                pass
        return None


def shapes_and_dims(names, case):
    """The names of axes for Kiln, and what they are: ranges, multiples, numbers."""
    kept = list(names.ranges)[:MOST_NAMES]
    names.keep_named(kept)
    shapes, dims = {}, list_lengths(case.inputs)
    for n, x in case.given.items():
        shapes[n] = list(x.shape)
    for (name, part, axis), root, times in zip(names.axes, names.root, names.times):
        if root < 0:
            continue
        of, k, a = names.axes[root]
        text = re.sub(r"\W", "_", f"{of}_{k}_{a}" if k >= 0 else f"{of}_{a}") + "_n"
        if times > 1:
            dims[f"{text}_{times}"] = f"{times}*{text}"
        dims[text] = names.ranges[root]
        shapes[name if part < 0 else f"{name}[{part}]"][axis] = text if times == 1 else f"{text}_{times}"
    return {n: s for n, s in shapes.items()}, dims


def random_point(names, rng):
    point = names.test_point()
    point.update({r: a + by * int(rng.integers((b - a) // by + 1)) for r, (a, b, by) in names.ranges.items()})
    return point


def differ_at(got, want):
    most = max([float(np.abs(x[np.isfinite(x)].astype(np.float64)).max(initial=0)) for x in want if x.dtype.kind == "f"], default=0)
    return differ(got, want, atol=1e-5 * max(most, 1e-2))


def differs_with_reference(names, values, got):
    """What differs from onnx.reference: ONNX Runtime's sigmoids and tanhs are off by 2.4e-7, which is much of a small state."""
    try:
        want = flat_outputs(names.reference.with_onnx(values))
    except Exception as problem:
        return f"onnx.reference: {problem}"
    return differ_at(got, want)


def check_other(case, names, module, rng):
    """At a point by chance that the reference accepts. Gives what is wrong, and whether there was one."""
    for _ in range(6):
        point = random_point(names, rng)
        if point == names.test_point():
            continue
        extents = names.extents(point)
        if not names.reference.accepts(extents):
            continue
        values = names.reference.at(extents, rng)
        values = {n: case.inputs[n] if n in names.fixed else v for n, v in values.items()}
        try:
            want = flat_outputs(names.reference.run_given(values))
        except Exception:
            continue
        got = case.run(module, flat_inputs(values))
        found = differ_at(got, want)
        if found and differs_with_reference(names, values, got) is None:
            found = None
        where = {f"{names.axes[r][0]}[{names.axes[r][2]}]": n for r, n in point.items()}
        return found and f"{found} at {where}", True
    return None, False


def check(folder, only_read=False):
    """A row of the results: the kind, the reason, and counts."""
    import kiln
    case = Case(folder)
    level = case.static_level(only_read)
    if level is None:
        return "not with numbers", "", {}
    started = time.time()
    names, first, first_told = None, None, None
    for at in range(level, len(BINDINGS)):
        bound = case.bound_at(at)
        if at > level and bound == case.bound_at(at - 1):
            continue
        if names is None or bound:
            fixed = {n.split("[")[0] for n in bound}
            case.level = at
            case.takes(case.inputs, case.want)
            names = Names(Reference(case.model, case.inputs, case.takes), fixed)
            names.fix(fixed)
            names.fixed = fixed
        n_names = len(names.ranges)
        if not names.ranges:
            return ("refused", first, first_told) if first else ("nothing varies", "", {})
        shapes, dims = shapes_and_dims(names, case)
        told = {"names": n_names, "bound": len(bound), "level": at, "dims": {k: str(v) for k, v in dims.items()}}
        try:
            if only_read:
                case.read(case.bare, at, shapes, dims)
                return "passed", "", told
            module = case.compile(case.bare, at, shapes, dims)
        except kiln.Error as problem:
            first, first_told = first or str(problem).strip(), first_told or told
            first_told.setdefault("all", []).append(str(problem).strip())
            continue
        told["variants"] = module.about.n_variants
        told["seconds"] = round(time.time() - started, 2)
        try:
            found = differ(case.run(module, case.given), case.expected, atol=max(ATOL, 1e-5))
            if found:
                return "wrong", f"{found} at the test's extents", told
            seed = int.from_bytes(hashlib.sha256(case.name.encode()).digest()[:4], "little")
            seed += int(os.environ.get("KILN_SEED", "0"))
            found, told["other"] = check_other(case, names, module, np.random.default_rng(seed))
        except kiln.Error as problem:
            return "wrong", f"the run is refused: {problem}", told
        return ("wrong", found, told) if found else ("passed", "", told)
    return "refused", first, first_told


# --- all of them ---

def run_in_child(folder, only_read, pipe):
    signal.alarm(TIME_LIMIT_S)
    warnings.simplefilter("ignore")
    try:
        row = check(pathlib.Path(folder), only_read)
    except NotImplementedError as problem:
        row = ("not with numbers", str(problem), {})
    except Exception:
        row = ("wrong", "harness: " + traceback.format_exc()[-600:], {})
    pipe.send(row)
    pipe.close()
    os._exit(0)


def start(folder, only_read):
    here, there = multiprocessing.Pipe(False)
    child = multiprocessing.get_context("fork").Process(target=run_in_child, args=(folder, only_read, there))
    child.start()
    there.close()
    return child, here, folder.name


def end(child, here):
    try:
        row = here.recv()
    except EOFError:
        row = None
    child.join()
    if row is None:
        row = ("wrong", "hangs" if child.exitcode == -signal.SIGALRM else f"crashes: {child.exitcode}", {})
    return row


def run_all(folders, jobs, only_read, log):
    rows, running, waiting = {}, [], list(folders)
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(start(waiting.pop(0), only_read))
        ready = multiprocessing.connection.wait([here for _, here, _ in running])
        for child, here, name in [r for r in running if r[1] in ready]:
            rows[name] = end(child, here)
            running.remove((child, here, name))
            if log:
                log.write(json.dumps([name, *rows[name]]) + "\n")
                log.flush()
    return rows


def reason_of(text):
    """The kind of a refusal: its message without names and numbers."""
    text = text.split("error: ", 1)[-1].split("\n")[0]
    text = re.sub(r'"[^"]*"|\b\w*_n\b|-?\d+(\.\d+)?', "#", text)
    return re.sub(r"of \S+ that differs at .*?: bind", "that differs: bind", text)[:140]


def report(rows):
    count = collections.Counter(kind for kind, _, _ in rows.values())
    told = [t for kind, _, t in rows.values() if kind == "passed"]
    tried = sum(count[k] for k in ("passed", "refused", "wrong"))
    by_reason = collections.defaultdict(list)
    for name, (kind, why, _) in sorted(rows.items()):
        if kind == "refused":
            by_reason[reason_of(why)].append(name)
        if kind == "wrong":
            print(f"WRONG {name}: {why}")
    for reason, names in sorted(by_reason.items(), key=lambda r: -len(r[1])):
        print(f"{len(names):5} {reason}\n      {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}")
    print(f"{len(rows)} tests: {count['not with numbers']} do not pass with numbers, nothing varies in {count['nothing varies']}")
    print(f"passed {count['passed']} of {tried} ({100 * count['passed'] / max(tried, 1):.1f} %), refused {count['refused']}, "
          f"wrong {count['wrong']}; of those passed, at another point too: {sum(bool(t.get('other')) for t in told)}, with bound "
          f"inputs: {sum(t['bound'] > 0 for t in told)}, with more than {MOST_NAMES} names: {sum(t['names'] > MOST_NAMES for t in told)}")
    return count, tried


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--floor", type=int, default=0)
    parser.add_argument("--percent", type=float, default=0)
    parser.add_argument("--share", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--read", action="store_true")
    parser.add_argument("-k", default="*")
    parser.add_argument("--names", help="a file with names of tests")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    os.environ["KILN_LIBRARY"] = args.folder
    folders = [p.parent for t in args.tests for p in sorted(pathlib.Path(t).glob("*/model.onnx")) if fnmatch.fnmatch(p.parent.name, args.k)]
    if args.names:
        some = set(pathlib.Path(args.names).read_text().split())
        folders = [f for f in folders if f.name in some]
    if args.share > 1:
        folders = share.some(folders[::args.share])
    import kiln._library
    kiln._library.compiler()  # once, for all children
    with open(args.json or os.devnull, "w") as log:
        rows = run_all(folders, args.jobs, args.read, log)
    count, tried = report(rows)
    enough = count["passed"] >= args.floor and 100 * count["passed"] >= args.percent * tried
    if not enough:
        print(f"at least {args.floor} and {args.percent} % must pass")
    return 0 if enough and count["wrong"] == 0 and tried > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
