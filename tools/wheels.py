#!/usr/bin/env python3
"""Makes the wheels kiln-runtime and kiln-compiler of a build, for systems from glibc 2.28 on: build/wheels/*.whl.

usage: tools/wheels.py BUILD_DIR

The libraries and the command of the build are linked anew: against the symbols of glibc 2.28, which the package ziglang has
for every version, and with static archives in place of isl, GMP, hwloc, SQLite, jansson and zstd, so that a wheel needs the C
library alone. auditwheel checks that, and names the wheels. Needs what python/requirements-wheels.txt lists.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLATFORM, GLIBC = "manylinux_2_28_x86_64", "2.28"
# In the order in which they need each other: the provider finds libkiln by its soname, beside itself.
TARGETS = ["libkiln_rt.so", "libkiln.so.1", "libkiln_ort.so", "kiln", "kiln-worker"]
STATIC = ["isl", "gmp", "hwloc", "sqlite3", "jansson", "zstd", "z"]
MOST_BYTES = {"kiln_runtime": 1 << 20, "kiln_compiler": 60 << 20}


def run(command, **options):
    return subprocess.run(command, check=True, text=True, **options)


def stubs(work):
    """Libraries that have the symbols of glibc 2.28, and nothing behind them; and what it has in an archive alone."""
    folder = work / "glibc"
    if not (folder / "libc.so.6").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (work / "none.c").write_text("int none;\n")
        cache = str(work / "zig")
        env = {**os.environ, "ZIG_LOCAL_CACHE_DIR": cache, "ZIG_GLOBAL_CACHE_DIR": cache}
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{GLIBC}", "-fno-sanitize=all"]
        run([*zig, "-shared", "-fPIC", str(work / "none.c"), "-o", str(work / "none.so")], env=env)
        for name in ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libc_nonshared.a"):
            shutil.copy(next((work / "zig").rglob(name)), folder / name)
    return folder


def link_command(build, target):
    """The command of the build that links |target|, as words; and the folder it runs in."""
    said = run(["ninja", "-C", str(build), "-t", "commands", target], capture_output=True).stdout
    for line in said.splitlines():
        for part in line.split("&&"):
            words = shlex.split(part)
            if "-o" in words and re.fullmatch(re.escape(target) + r"(\.[\d.]+)?", words[words.index("-o") + 1]):
                return words
    sys.exit(f"wheels: no command links {target}")


def archive_of(name, work):
    """A copy of a static library that can be part of a shared one; None: there is none."""
    said = run(["cc", f"-print-file-name=lib{name}.a"], capture_output=True).stdout.strip()
    if not os.path.isabs(said):
        return None
    out = str(work / f"lib{name}.a")
    renamed = [f"--redefine-sym={s}=own_{s}" for s in ("stdin", "stdout", "stderr", "program_invocation_name")]
    run(["objcopy", *renamed, said, out])
    return out


def relink(build, target, out, folder, compat):
    words, command, archives = link_command(build, target), [], []
    words[words.index("-o") + 1] = str(out / target)
    for word in words:
        library = re.search(r"(?:^-l|/lib)([\w+]+?)(?:\.so[\d.]*|)$", word)
        name = library.group(1) if library and not word.endswith(".a") and not word.startswith("-Wl") else None
        if word == "-Wl,-z,pack-relative-relocs" or word.startswith("-Wl,-rpath"):  # of glibc 2.36; of the build
            continue
        if word in TARGETS and (out / word).exists() and word != target:
            word = str(out / word)
        if name in ("c", "m", "dl", "pthread", "rt"):
            continue
        archive = archive_of(name, folder) if name in STATIC else None
        if archive:
            archives.append(archive)
        else:
            command.append(word)
    system = [str(folder / n) for n in ("libm.so.6", "libpthread.so.0", "libdl.so.2", "libc.so.6", "libc_nonshared.a")]
    tail = [
        "-Wl,--start-group",
        *archives,
        str(compat),
        *system,
        "-lgcc",
        "-lgcc_s",
        "-Wl,--end-group",
        "-Wl,--as-needed",
        "-Wl,-rpath,$ORIGIN",
        "-s",
    ]
    run([*command, "-nodefaultlibs", *tail], cwd=build)


def missing(path):
    """Symbols that nothing gives: not of the C library, not of libkiln beside it, and not weak."""
    said = run(["objdump", "-T", str(path)], capture_output=True).stdout
    rows = [line.split() for line in said.splitlines() if "*UND*" in line]
    given = {"__tls_get_addr"}  # of the loader
    versioned = re.compile(r"\((GLIBC|GCC|CXXABI|KILN)_")
    return [r[-1] for r in rows if not versioned.search(" ".join(r)) and "w" not in r[1] and r[-1] not in given]


def needs(path):
    """The newest glibc that a file asks for."""
    said = run(["objdump", "-T", str(path)], capture_output=True).stdout
    return max((tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+\.\d+)", said)), default=(0,))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    work = build / "wheels"
    out = work / "lib"
    out.mkdir(parents=True, exist_ok=True)
    folder, compat = stubs(work), work / "glibc.o"
    run(["cc", "-O2", "-fPIC", "-D_GNU_SOURCE", "-c", str(ROOT / "tools/glibc_2_28.c"), "-o", str(compat)])
    for target in TARGETS:
        relink(build, target, out, folder, compat)
        newest = needs(out / target)
        print(f"{target}: {(out / target).stat().st_size} bytes, glibc {'.'.join(map(str, newest))}")
        if missing(out / target):
            sys.exit(f"wheels: {target}: nothing gives {', '.join(missing(out / target))}")
        if newest > (2, 28):
            sys.exit(f"wheels: {target} must need no newer glibc than {GLIBC}")
    for project in (ROOT / "python", ROOT / "python/compiler"):
        raw = work / "raw"
        shutil.rmtree(raw, ignore_errors=True)
        env = {**os.environ, "KILN_BUILD": str(out)}
        run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(raw)], cwd=project, env=env)
        (wheel,) = raw.glob("*.whl")
        path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
        audit = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "-w", str(work), str(wheel)]
        run(audit, env={**os.environ, "PATH": path})
    for wheel in sorted(work.glob("*.whl")):
        size = wheel.stat().st_size
        print(f"{wheel.name}: {size} bytes")
        if size > MOST_BYTES[wheel.name.split("-")[0]]:
            sys.exit(f"wheels: {wheel.name} must be smaller")


if __name__ == "__main__":
    main()
