#!/usr/bin/env python3
"""What the `kiln` command does with names and files that mean no good: outputs with any names get files of their own, no
control character of a model reaches the terminal, output that is lost is an error, and nothing that is read is
written over.

usage: trust.py KILN [-k SUBSTRING]      the tests whose name holds it
"""
import importlib.util
import io
import itertools
import os
import pathlib
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("bad_input", HERE.parent / "error" / "bad_input.py")
onnx = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(onnx)

KILN = str(pathlib.Path(sys.argv[1]).resolve())
IS_SANITIZED = b"__asan_init" in pathlib.Path(KILN).read_bytes()


def kiln(*arguments, **how):
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300, **how}
    return subprocess.run([KILN, *map(str, arguments)], **how)


def right(*arguments, **how):
    done = kiln(*arguments, **how)
    assert done.returncode == 0, (arguments, done.returncode, done.stderr)
    return done


def wrong(pattern, *arguments, **how):
    done = kiln(*arguments, **how)
    assert done.returncode == 1, (arguments, done.returncode, done.stderr)
    assert re.search(pattern, done.stderr.decode()), (arguments, done.stderr)
    return done


def numbers(path):
    """The elements of a .npy file of f32."""
    data = path.read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    return struct.unpack(f"<{(len(data) - 10 - length) // 4}f", data[10 + length:])


def constant(name, value):
    return onnx.tensor(name, (), struct.pack("<f", value))


# --- names of outputs

def model_of_outputs(names):
    """Output i is x + i."""
    nodes = [onnx.node("Add", ["x", f"c{i}"], [n], f"n{i}") for i, n in enumerate(names)]
    return onnx.model(nodes, [("x", (2,))], [(n, (2,)) for n in names],
                      [constant(f"c{i}", i) for i in range(len(names))])


def sets_of_names():
    yield ["a/b", "a_b", "a:b", "a%2Fb", "a%2fb", "a\\b", "a~1", "a b", "a%", "a%252Fb"]
    yield ["a" * 300 + "1", "a" * 300 + "2", "a" * 229 + "~1", "a" * 251, "a" * 252, "a" * 250, "ä" * 200, "ä" * 201]
    yield [".", "..", "...", ".hidden", "hidden", "~0", "~1", "%7E0", "*", "?", "con", "/", "//", "/etc/x", "../x", "-o"]
    r = random.Random(1)
    for _ in range(6):
        names = {"".join(r.choices("ab/:%~_.ä\\", k=r.choice([1, 2, 3, 240, 260, 600]))) for _ in range(40)}
        yield sorted(names)


def outputs_of_any_names_have_files_of_their_own(folder):
    for k, names in enumerate(sets_of_names()):
        (folder / "m.onnx").write_bytes(model_of_outputs(names))
        out = folder / f"out{k}"
        text = right("run", folder / "m.onnx", "--no-cache", "--fill", "ones", "--output-dir", out).stdout.decode()
        told = dict(re.findall(r"(?m)^(.*): written to (.*)$", text))
        assert sorted(told) == sorted(names), (names, told)
        assert len(set(told.values())) == len(names) == len(list(out.iterdir()))
        for i, name in enumerate(names):
            path = pathlib.Path(told[name])
            assert path.parent == out and len(os.fsencode(path.name)) <= 255
            assert numbers(path) == (i + 1, i + 1), (name, path)
        right("run", folder / "m.onnx", "--no-cache", "--fill", "ones", "--outputs", folder / "out.npz")
        with zipfile.ZipFile(folder / "out.npz") as z:
            assert sorted(z.namelist()) == sorted(n + ".npy" for n in names)


# --- output that is lost

def lost_output_is_an_error(folder):
    (folder / "m.onnx").write_bytes(onnx.RELU)
    (folder / "mm.tc").write_bytes(onnx.MATMUL_TC)
    m, tc, sizes = folder / "m.onnx", folder / "mm.tc", ["--size", "M=4", "--size", "K=4", "--size", "N=4"]
    right("compile", m, "-o", folder / "m.so", "--no-cache")
    commands = [["--help"], ["run", "--help"], ["version"], ["operators"], ["run", m], ["run", folder / "m.so"],
                ["bench", m, "--iterations", "1"], ["verify", m], ["check", m], ["inspect", m], ["explain", m],
                ["compile", m, "-o", folder / "n.so"], ["compile", m, "--dump=prim"], ["compile", m, "--dump=asm"],
                ["device", "--show"], ["cache", "--list"], ["tc", tc, *sizes], ["tc", tc, *sizes, "--emit=c"],
                ["orchestrate", m], ["run", m, "--target=sim"]]
    environment = {**os.environ, "KILN_CACHE_DIR": str(folder / "cache")}
    for command in commands:
        with open("/dev/full", "w") as full:
            wrong("stdout: error: .*must be writable, got: No space left", *command, stdout=full, env=environment)
        closed = kiln(*command, stdout=None, preexec_fn=lambda: os.close(1), env=environment)
        assert closed.returncode == 1, (command, closed.returncode)
    for command in (["run", m, "--outputs", "/dev/full"], ["inspect", m, "--json", "/dev/full"],
                    ["bench", m, "--iterations", "1", "--trace", "/dev/full"], ["explain", m, "--json", "/dev/full"],
                    ["report", m, "-o", "/dev/full"],
                    ["tc", tc, *sizes, "--emit=c", "-o", "/dev/full"]):
        wrong("/dev/full: error: .*must be writable", *command, env=environment)


# --- control characters

EVIL = ["\x1b[2J\x1b]0;owned\x07", "a\nm.onnx: error: forged", "a\r\nb\tc", "\x9b2J", "\u202egnp.exe", "\x7f\x08\x08", "\u2028x"]


def evil_model(word, op="Relu", domain="", weight=True):
    w = onnx.tensor(f"w{word}", (4, 4), struct.pack("<16f", *range(16)) if weight else bytes(3))
    return onnx.field(2, f"producer{word}") + onnx.field(3, word) + onnx.field(6, word) + onnx.model(
        [onnx.node("MatMul", [f"x{word}", f"w{word}"], [f"t{word}"], f"product{word}"),
         onnx.node(op, [f"t{word}"], [f"y{word}"], f"last{word}", domain)],
        [(f"x{word}", (f"batch{word}", 4))], [(f"y{word}", (f"batch{word}", 4))], [w],
        [("", 17)] + ([(domain, 1)] if domain else []))


def must_be_harmless(done, what):
    text = (done.stdout + done.stderr).decode()
    found = [c for c in text if (ord(c) < 0x20 and c not in "\n\t") or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2028"]
    assert not found, (what, found, text[:400])
    assert not re.search(r"(?m)^m\.onnx: error: forged", text), (what, text[:400])


def names_reach_the_terminal_without_control_characters(folder):
    path, module = folder / "evil.onnx", folder / "evil.so"
    dumps = "graph,prim,loop,schedule,plan,c,llvm,asm"
    for word in EVIL:
        path.write_bytes(evil_model(word))
        dim = ["--dim", f"batch{word}=2"]
        for command in (["check", path, *dim], ["inspect", path], ["run", path], ["run", path, *dim, "--reference"],
                        ["explain", path, *dim], ["verify", path, *dim, "--verbose"], ["orchestrate", path, *dim],
                        ["bench", path, *dim, "--iterations", "1", "--profile"], ["compile", path, *dim, "-o", module],
                        ["run", module], ["compile", path, *dim, f"--dump={dumps}"], ["run", path, *dim, "--target=sim"],
                        ["run", path, *dim, "--output-dir", folder / "out"], ["run", module, "--expect", "z=z.npy"],
                        ["run", module, "--input", "z=z.npy"], ["bench", module, "--iterations", "1", "--profile"],
                        ["explain", path, *dim, "--why", f"product{word}", f"last{word}"]):
            must_be_harmless(kiln(*command, "--no-cache") if command[0] in ("run", "bench") else kiln(*command), command)
        right("check", path, *dim)
        right("inspect", path, "--json", folder / "report.json")
        must_be_harmless(subprocess.CompletedProcess([], 0, (folder / "report.json").read_bytes(), b""), "json")
        for bad in (evil_model(word, op=f"No{word}"), evil_model(word, domain=f"d{word}"), evil_model(word, weight=False),
                    evil_model(word).replace(f"y{word}".encode(), f"z{word}".encode(), 1)):
            path.write_bytes(bad)
            for command in ("check", "inspect", "run"):
                must_be_harmless(kiln(command, path, *dim), (command, bad))
    archive = folder / "in.npz"
    (folder / "m.onnx").write_bytes(onnx.RELU)
    for word in EVIL:
        with zipfile.ZipFile(archive, "w") as z:
            z.writestr(f"x{word}.npy", onnx.npy((2, 4)))
        must_be_harmless(wrong("must hold inputs only", "run", folder / "m.onnx", "--inputs", archive), word)


# --- files that are read

def external_model(folder):
    (folder / "w.bin").write_bytes(struct.pack("<16f", *range(16)))
    (folder / "m.onnx").write_bytes(onnx.weighted(onnx.tensor("w", (4, 4), external={"location": "w.bin"})))
    (folder / "f.tc").write_bytes(onnx.MATMUL_TC)
    (folder / "op.tc").write_bytes(b'onnx Relu 1..\ndef f(float(N...) X) -> (Y) { Y(i...) = max(X(i...), 0) }\n')
    (folder / "s.sched").write_bytes(b"# nothing\n")
    (folder / "in.npy").write_bytes(onnx.npy((2, 4)))
    with zipfile.ZipFile(folder / "in.npz", "w") as z:
        z.writestr("x.npy", onnx.npy((2, 4)))
    os.symlink("w.bin", folder / "to_w")
    os.symlink("m.onnx", folder / "to_m")
    os.link(folder / "f.tc", folder / "also_f")


def nothing_that_is_read_is_written_over(folder):
    external_model(folder)
    m, tc, sizes = folder / "m.onnx", folder / "f.tc", ["--size", "M=2", "--size", "K=2", "--size", "N=2"]
    right("compile", m, "-o", folder / "good.so")
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    environment = {**os.environ, "KILN_CACHE_DIR": str(folder / "cache")}
    environments = [os.environ | {"KILN_CACHE_DIR": ""}, environment, environment]  # without a cache, filling it, from it
    must = "must not be a file that is read"
    for target, env in itertools.product(("m.onnx", "w.bin", "to_w", "to_m"), environments):
        wrong(must, "compile", m, "-o", folder / target, env=env)
        wrong(must, "orchestrate", m, "-o", folder / target, env=env)
        wrong(must, "inspect", m, "--json", folder / target, env=env)
        wrong(must, "explain", m, "--json", folder / target, env=env)
        wrong(must, "bench", m, "--iterations", "1", "--json", folder / target, env=env)
        wrong(must, "run", m, "--outputs", folder / target, env=env)
    wrong(must, "compile", m, "--ops", folder / "op.tc", "-o", folder / "op.tc")
    wrong(must, "tc", tc, *sizes, "--emit=c", "-o", tc)
    wrong(must, "tc", tc, *sizes, "--emit=c", "-o", folder / "also_f")
    wrong(must, "tc", tc, *sizes, "--schedule", folder / "s.sched", "--emit=c", "-o", folder / "s.sched")
    wrong(must, "run", m, "--inputs", folder / "in.npz", "--outputs", folder / "in.npz")
    wrong(must, "run", m, "--input", f"x={folder / 'in.npy'}", "--outputs", folder / "in.npy")
    wrong(must, "run", folder / "good.so", "--outputs", folder / "good.so")
    (folder / "y.npy").write_bytes(onnx.npy((2, 4)))
    wrong(must, "run", m, "--input", f"x={folder / 'y.npy'}", "--output-dir", folder)
    (folder / "y.npy").unlink()
    for name, data in before.items():
        assert (folder / name).read_bytes() == data, name
    assert (folder / "to_w").is_symlink() and (folder / "to_m").is_symlink()


# --- archives

def archive_of(entry):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as z, z.open("x.npy", "w", force_zip64=True) as f:
        entry(f)
    return data.getvalue()


def archives_are_checked_and_bounded(folder):
    m, path = folder / "m.onnx", folder / "in.npz"
    m.write_bytes(onnx.MATMUL)

    def bomb(f):  # a tensor of 512 MB in some 500 KB
        f.write(onnx.npy((2**25, 4), data=b""))
        for _ in range(512):
            f.write(bytes(1 << 20))

    path.write_bytes(archive_of(bomb))
    most = (400 << 20, 400 << 20)
    limit = lambda: IS_SANITIZED or resource.setrlimit(resource.RLIMIT_AS, most)  # whose shadow takes terabytes of addresses
    right("compile", m, "-o", folder / "m.so")
    wrong(r"npz: x\.npy must be of at most \d+ bytes, got 5368\d+", "run", folder / "m.so", "--inputs", path, preexec_fn=limit)
    good = archive_of(lambda f: f.write(onnx.npy((2, 4), data=random.Random(2).randbytes(32))))
    path.write_bytes(good)
    right("run", folder / "m.so", "--inputs", path)
    at = good.index(b"x.npy") + 5 + struct.unpack("<H", good[28:30])[0]  # of the compressed bytes
    size, crc = struct.unpack("<I", good[18:22])[0], good.index(b"PK\x01\x02") + 16
    for i in range(4):  # another checksum of the same bytes
        path.write_bytes(good[:crc + i] + bytes([good[crc + i] ^ 1]) + good[crc + i + 1:])
        wrong("npz: ", "run", folder / "m.so", "--inputs", path)


# --- who is killed

def a_killed_compilation_leaves_nothing(folder):
    (folder / "m.onnx").write_bytes(onnx.MATMUL)
    out = folder / "out"
    out.mkdir()
    r = random.Random(3)
    kinds = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for how in kinds:
        if signal.getsignal(how) == signal.SIG_IGN:  # as a job in the background is started
            signal.signal(how, signal.SIG_DFL)
    for i in range(40):
        how = r.choice(kinds)
        env = os.environ | {"KILN_CACHE_DIR": str(folder / "cache")}
        child = subprocess.Popen([KILN, "compile", str(folder / "m.onnx"), "-o", str(out / "m.so")], env=env,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(r.random() * 0.15)
        child.send_signal(how)
        child.wait()
    right("compile", folder / "m.onnx", "-o", out / "m.so", env=env)  # the next start
    assert [p.name for p in out.iterdir()] == ["m.so"], list(out.iterdir())
    assert not [p for p in (folder / "cache").iterdir() if p.name.endswith(".tmp")]
    right("run", out / "m.so")


def a_cache_of_others_is_refused(folder):
    (folder / "m.onnx").write_bytes(onnx.MATMUL)
    cache = folder / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    env = os.environ | {"KILN_CACHE_DIR": str(cache)}
    done = right("compile", folder / "m.onnx", "-o", folder / "m.so", env=env)
    assert b"warning: cache: must be a folder of this user's" in done.stderr, done.stderr
    wrong("cache: must be a folder of this user's.*others may write", "cache", "--list", env=env)
    wrong("cache: must be a folder of this user's.*others may write", "cache", "--clear", env=env)
    assert not list(cache.iterdir())


TESTS = [a_killed_compilation_leaves_nothing, a_cache_of_others_is_refused, outputs_of_any_names_have_files_of_their_own, lost_output_is_an_error,
         names_reach_the_terminal_without_control_characters, nothing_that_is_read_is_written_over,
         archives_are_checked_and_bounded]


def main():
    os.environ["KILN_CACHE_DIR"] = ""  # what is tested is compiled
    which = sys.argv[3] if sys.argv[2:3] == ["-k"] else ""
    failed = 0
    for test in TESTS:
        if which not in test.__name__:
            continue
        with tempfile.TemporaryDirectory() as name:
            try:
                test(pathlib.Path(name))
                print(f"ok     {test.__name__}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED {test.__name__}: {str(error)[:2000]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
