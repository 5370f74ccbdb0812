#!/usr/bin/env python3
"""The command as its users meet it: how long and how often it times, what it says and where, and what ends it with which code.

usage: command.py KILN
"""
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

SOURCE = """
def product(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }
"""
SIZES = ["--size", "M=40", "--size", "N=40", "--size", "K=40"]
kiln = sys.argv[1]


def run(*arguments, code=0, folder=None, cache=""):
    """What a command prints on stdout and on stderr."""
    command = [kiln, *map(str, arguments)]
    r = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "KILN_CACHE_DIR": str(cache)}, cwd=folder)
    assert r.returncode == code, f"{' '.join(command[1:])}: exit code must be {code}, got {r.returncode}: {r.stderr[-500:]}"
    return r.stdout, r.stderr


def run_on_terminal(*arguments):
    """What a command writes to a terminal that is its stderr."""
    here, there = pty.openpty()
    p = subprocess.Popen([kiln, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=there, env={**os.environ, "KILN_CACHE_DIR": ""})
    os.close(there)
    text = b""
    while select.select([here], [], [], 60)[0]:
        try:
            text += os.read(here, 4096)
        except OSError:  # the other end is closed
            break
    assert p.wait(60) == 0, text
    return text.decode()


def want(text, pattern):
    assert re.search(pattern, text, re.M), f"must have {pattern}, got: {text}"


def make(folder):
    source, module = folder / "m.tc", folder / "m.so"
    source.write_text(SOURCE)
    if not module.exists():
        run("compile", source, *SIZES, "--threads", 1, "-o", module)
    return source, module


# --- timing


def a_duration_stands_in_place_of_the_number_of_runs(folder):
    _, module = make(folder)
    run("bench", module, "--duration", "0.3", "--json", folder / "f.json")
    f = json.loads((folder / "f.json").read_text())
    assert 300 <= f["wall_ms"] < 3000 and f["runs"] > 1, f
    run("bench", module, "--duration", "0.001", "--iterations", "50", "--json", folder / "f.json")
    assert json.loads((folder / "f.json").read_text())["runs"] >= 50
    want(run("bench", module, "--duration", "-1", code=2)[1], "--duration: must be a number, 0 or more, got '-1'")


def sessions_run_at_the_same_time(folder):
    _, module = make(folder)
    out, _ = run("bench", module, "--concurrency", 3, "--iterations", 20, "--json", folder / "f.json", "--export-times", folder / "t.json")
    want(out, r"^sessions    3 at the same time$")
    want(out, r"^throughput  [\d.]+ runs/s \(60 runs in [\d.]+ s\)$")
    figures, times = json.loads((folder / "f.json").read_text()), json.loads((folder / "t.json").read_text())
    assert figures["sessions"] == times["sessions"] == 3 and figures["runs"] == len(times["runs"]) == 60
    assert abs(figures["runs_per_s"] - 60e3 / figures["wall_ms"]) < 1e-3 * figures["runs_per_s"]
    for session in range(3):
        runs = [r for r in times["runs"] if r["session"] == session]
        assert len(runs) == 20
        for a, b in zip(runs, runs[1:]):  # one behind the other
            assert a["ms"] > 0 and a["start_ms"] + a["ms"] <= b["start_ms"] + 1e-6, (a, b)
    out, _ = run("bench", module, "--iterations", 7, "--percentiles", "0,50,99.9", "--json", folder / "f.json")
    least = re.search(r"^percentiles 0: ([\d.]+) 50: ([\d.]+) 99\.9: ([\d.]+) ms$", out, re.M)
    assert least and abs(float(least[1]) - json.loads((folder / "f.json").read_text())["min_ms"]) <= 6e-4, out
    for value in ("101", "", "5,", "x", "nan"):
        want(run("bench", module, "--percentiles", value, code=2)[1], "--percentiles: must be numbers from 0 to 100")
    last = max(r["start_ms"] + r["ms"] for r in times["runs"])
    assert abs(last - times["wall_ms"]) < 1e-3 * last
    for value in ("0", "1025", "x"):
        run("bench", module, "--concurrency", value, code=2)


def sessions_share_the_threads_of_the_module(folder):
    source, module = make(folder)
    run("compile", source, *SIZES, "--threads", 2, "-o", folder / "two.so")
    for m in (module, folder / "two.so", source):
        more = SIZES if m == source else []
        run("bench", m, *more, "--concurrency", 2, "--iterations", 3)


def a_session_on_opencl_has_a_stream_of_its_own(folder):
    source, _ = make(folder)
    r = subprocess.run([kiln, "run", source, *SIZES, "--target=opencl"], capture_output=True, text=True)
    if r.returncode:
        return print("      no OpenCL device: streams are not tried")
    out, _ = run("bench", source, *SIZES, "--target=opencl", "--streams", 2, "--iterations", 4)
    want(out, r"^sessions    2 at the same time$")


# --- what is said


def a_compilation_says_what_it_made(folder):
    source, _ = make(folder)
    out, err = run("compile", source, *SIZES, "--threads", 2, "-o", folder / "o.so")
    want(out, rf"^{folder}/o\.so: x86_64, \S+, 2 threads, [\d.]+ MB, made in [\d.]+ s\nweights ")
    assert err == "", err
    assert run("compile", source, *SIZES, "-o", folder / "o.so", "--quiet") == ("", "")
    want(run("compile", source, *SIZES, "--target=opencl", "-o", folder / "o.kmod")[0], r"o\.kmod: opencl, \S+, [\d.]+ MB, made")


def more_is_said_when_asked(folder):
    source, module = make(folder)
    for flag in ("-v", "--verbose"):
        err = run("run", source, *SIZES, flag)[1]
        want(err, r"^pass read +[\d.]+ ms$")
        assert "launch" not in err
    want(run("compile", source, *SIZES, "-o", folder / "o.so", "-vv")[1], r"^launch 0 \S+: [\d.e+]+ flops, [\d.e+]+ bytes: ")
    want(run("bench", module, "--iterations", 2, "-vv")[1], "^launch 0 ")
    assert run("run", module, "-v")[1] == ""
    want(run("run", module, "-v", "--quiet", code=2)[1], "--quiet: must be left out with --verbose")


def progress_is_shown_on_terminals_alone(folder):
    source, _ = make(folder)
    for command in (["compile", source, *SIZES, "-o", folder / "o.so"], ["verify", source, *SIZES]):
        if command[0] == "compile":
            want(run_on_terminal(*command), r"schedule 0/4.*code 1/4.*plan 2/4.*module 3/4")
        assert run_on_terminal(*command, "--quiet") == ""
        assert run(*command)[1] == ""


def commands_stand_in_groups(folder):
    out = run("--help")[0]
    titles = re.findall(r"^(\S.*)\n  kiln ", out, re.M)
    assert titles == ["Compile, run and time", "Check", "Look inside", "This machine", "About Kiln"], titles


def the_cache_is_shown(folder):
    source, _ = make(folder)
    cache = folder / "cache"
    run("compile", source, *SIZES, "-o", folder / "o.so", cache=cache)
    out = run("cache", cache=cache)[0]
    want(out, rf"^{cache}$")
    want(out, r"^object +\d+ +[\d.]+ MB$")
    want(out, r"^\d+ entries, [\d.]+ MB$")
    want(run("cache", "--list", cache=cache)[0], r"^object +\d+ bytes  ")
    want(run("cache")[0], "^none: KILN_CACHE_DIR is empty$")
    want(run("cache", "--list", "--clear", code=2)[1], "--list: must be left out with --clear")
    run("cache", "--clear", cache=cache)
    want(run("cache", cache=cache)[0], "^0 entries")


# --- tuning that is interrupted


def rows_of(database):
    """How many measurements it has; 0 while there is none."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return max((db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables), default=0)
    except sqlite3.Error:
        return 0


def tune_until(folder, number, known=1):
    """Tunes until more than |known| was measured, then sends the signal: exit code, stderr, and how many rows there were before it."""
    source, database, module = folder / "t.tc", folder / "tuned.sqlite", folder / "t.so"
    source.write_text(SOURCE)
    sizes = ["--size", "M=512", "--size", "N=768", "--size", "K=512"]
    command = [kiln, "compile", source, *sizes, "--threads", "1", "--tune", "256", "--tuned", database, "-o", module]
    p = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "KILN_CACHE_DIR": ""})
    end = time.monotonic() + 200
    while p.poll() is None and rows_of(database) <= known and time.monotonic() < end:
        time.sleep(0.02)
    assert p.poll() is None, f"tuning must take longer, got code {p.returncode}: {p.stderr.read()}"
    n = rows_of(database)
    p.send_signal(number)
    return p.wait(200), p.stderr.read(), n, database, module


def an_interrupt_ends_tuning_with_the_best_until_then(folder):
    code, said, n, database, module = tune_until(folder, signal.SIGINT)
    assert code == 0 and n >= 2, (code, said)
    want(said, r"^interrupted tuning: 1 kernels, 0 known, \d+ candidates measured")
    assert rows_of(database) >= n
    run("run", module)


def what_was_measured_is_kept_when_tuning_is_killed(folder):
    code, _, n, database, module = tune_until(folder, signal.SIGKILL)
    assert code == -signal.SIGKILL and not module.exists()
    assert rows_of(database) >= n >= 2
    code, said, n_more, _, _ = tune_until(folder, signal.SIGINT, rows_of(database))  # it goes on where it was
    assert code == 0 and n_more > n, (code, said)


# --- what is wrong


def a_wrong_option_is_an_error_of_usage(folder):
    source, _ = make(folder)
    cases = [("--target=pdp11", r"^options: error: target: name must be .*, got pdp11$"),
             ("--target=cuda:sm_1", r"^options: error: target: a GPU must be .*, got cuda:sm_1$"),
             ("--target=\x1b[31m", r"^options: error: target: name must be .*, got \\x1b\[31m$"),
             ("--dtype=f12", r"^options: error: dtype: must be f16, bf16 or tf32, got f12$"),
             ("--without=soup", r"^options: error: without: "), ("--stop-after=soup", r"^options: error: stop after: ")]
    for option, message in cases:
        for command in (["compile", source, "-o", folder / "o.so"], ["run", source], ["bench", source], ["explain", source]):
            want(run(*command, *SIZES, option, code=2)[1], message)


TESTS = [a_duration_stands_in_place_of_the_number_of_runs, sessions_run_at_the_same_time, sessions_share_the_threads_of_the_module,
         a_session_on_opencl_has_a_stream_of_its_own, a_compilation_says_what_it_made, more_is_said_when_asked,
         progress_is_shown_on_terminals_alone, commands_stand_in_groups, the_cache_is_shown, an_interrupt_ends_tuning_with_the_best_until_then,
         what_was_measured_is_kept_when_tuning_is_killed, a_wrong_option_is_an_error_of_usage]


def main():
    n_failed = 0
    for test in TESTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(pathlib.Path(folder))
                print(f"ok    {test.__name__}")
            except AssertionError as e:
                n_failed += 1
                print(f"WRONG {test.__name__}: {e}")
    print(f"{len(TESTS) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
