#!/usr/bin/env python3
"""kiln's headers beside dlpack.h of every release from 0.8 to 1.3, in front and behind, in C and in C++.

usage: dlpack.py CC CXX

Each release stands here as what it declares to a compiler: its guard, macros, names and layouts. Where a dlpack.h is installed
(in /usr/include, or by a package in .venv), that is tried, too.
"""
import itertools
import pathlib
import subprocess
import sys
import tempfile

RELEASES = ["0.8", "1.0", "1.1", "1.2", "1.3"]
DEVICES = {"kDLCPU": 1, "kDLCUDA": 2, "kDLCUDAHost": 3, "kDLOpenCL": 4, "kDLVulkan": 7, "kDLMetal": 8, "kDLVPI": 9,
           "kDLROCM": 10, "kDLROCMHost": 11, "kDLExtDev": 12, "kDLCUDAManaged": 13, "kDLOneAPI": 14, "kDLWebGPU": 15,
           "kDLHexagon": 16}
CODES = {"kDLInt": 0, "kDLUInt": 1, "kDLFloat": 2, "kDLOpaqueHandle": 3, "kDLBfloat": 4, "kDLComplex": 5, "kDLBool": 6}
NARROW = ["kDLFloat8_e3m4", "kDLFloat8_e4m3", "kDLFloat8_e4m3b11fnuz", "kDLFloat8_e4m3fn", "kDLFloat8_e4m3fnuz",
          "kDLFloat8_e5m2", "kDLFloat8_e5m2fnuz", "kDLFloat8_e8m0fnu", "kDLFloat6_e2m3fn", "kDLFloat6_e3m2fn",
          "kDLFloat4_e2m1fn"]
ORDERS = [("kiln/tensor.h", "dlpack.h"), ("dlpack.h", "kiln/tensor.h"), ("kiln/compile.h", "dlpack.h", "kiln/module.h"),
          ("dlpack.h", "kiln/compile.h", "dlpack.h")]
DIALECTS = [("C", "c11"), ("C", "c17"), ("C++", "c++11"), ("C++", "c++17")]
USE = """
int use(DLManagedTensorVersioned *t);
int use(DLManagedTensorVersioned *t) {
  DLManagedTensor old = {t->dl_tensor, t->manager_ctx, NULL};
  const DLPackVersion v = t->version;
  const DLDevice device = {kDLROCM, 0};
  const DLDataType type = {kDLComplex, 64, 1};
  kiln_tensor_destroy(t);
  return (int)v.major + old.dl_tensor.ndim + (int)device.device_type + type.code + (int)kiln_tensor_count(&old.dl_tensor);
}
typedef char is_as_dlpack_says[sizeof(DLTensor) == 48 && sizeof(DLManagedTensorVersioned) == 80 && sizeof(DLDevice) == 8 &&
                               sizeof(DLDataType) == 4 && sizeof(DLManagedTensor) == 64 ? 1 : -1];
"""


def enum(name, values, typed):
    body = "".join(f"  {k} = {v},\n" for k, v in values.items())
    plain = f"typedef enum {{\n{body}}} {name};\n"
    return f"#ifdef __cplusplus\ntypedef enum : int32_t {{\n{body}}} {name};\n#else\n{plain}#endif\n" if typed else plain


def header(release):
    """What the release's dlpack.h declares."""
    major, minor = map(int, release.split("."))
    devices = {**DEVICES, **({"kDLMAIA": 17} if major else {}), **({"kDLTrn": 18} if (major, minor) >= (1, 2) else {})}
    codes = {**CODES, **({n: 7 + i for i, n in enumerate(NARROW)} if (major, minor) >= (1, 1) else {})}
    versioned = ("struct DLManagedTensorVersioned { DLPackVersion version; void *manager_ctx; "
                 "void (*deleter)(struct DLManagedTensorVersioned *self); uint64_t flags; DLTensor dl_tensor; }")
    parts = ["#ifndef DLPACK_DLPACK_H_", "#define DLPACK_DLPACK_H_", "#ifdef __cplusplus",
             '#define DLPACK_EXTERN_C extern "C"', "#else", "#define DLPACK_EXTERN_C", "#endif"]
    parts += [f"#define DLPACK_MAJOR_VERSION {major}", f"#define DLPACK_MINOR_VERSION {minor}"] if major else [
        "#define DLPACK_VERSION 80", "#define DLPACK_ABI_VERSION 1"]
    parts += ["#define DLPACK_DLL", "#include <stdint.h>", "#include <stddef.h>", "#ifdef __cplusplus", 'extern "C" {', "#endif"]
    if major:
        parts.append("typedef struct { uint32_t major; uint32_t minor; } DLPackVersion;")
    parts += [enum("DLDeviceType", devices, True), "typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;",
              enum("DLDataTypeCode", codes, False), "typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;",
              "typedef struct { void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape; int64_t *strides; "
              "uint64_t byte_offset; } DLTensor;",
              "typedef struct DLManagedTensor { DLTensor dl_tensor; void *manager_ctx; "
              "void (*deleter)(struct DLManagedTensor *self); } DLManagedTensor;"]
    if major:
        parts += ["#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)", "#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)"]
        parts.append(f"typedef {versioned} DLManagedTensorVersioned;" if minor >= 2 else versioned + ";")
    parts += ["#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(parts)


def installed():
    """Folders with a dlpack.h of this machine."""
    found = list(pathlib.Path("/usr/include").glob("**/dlpack.h"))
    found += pathlib.Path(".venv").glob("lib/python3*/site-packages/**/dlpack.h")
    texts = {f: f.read_text(errors="replace") for f in found}
    return {str(f): f.parent for f, t in texts.items()
            if "define DLPACK_MAJOR_VERSION" in t or "define DLPACK_VERSION 80" in t}


def compile_one(compiler, dialect, folder, order, room):
    source = room / ("t.cpp" if "++" in dialect else "t.c")
    source.write_text("".join(f'#include "{name}"\n' for name in order) + USE)
    return subprocess.run([compiler, f"-std={dialect}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                           "-Iinclude", "-isystem", str(folder), str(source)], capture_output=True, text=True)


def main():
    compilers = {"C": sys.argv[1], "C++": sys.argv[2]}
    failures = n = 0
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name)
        folders = {}
        for release in RELEASES:
            folders[release] = room / release
            folders[release].mkdir()
            (folders[release] / "dlpack.h").write_text(header(release))
        folders.update(installed())
        for (what, folder), order, (language, dialect) in itertools.product(folders.items(), ORDERS, DIALECTS):
            r = compile_one(compilers[language], dialect, folder, order, room)
            n += 1
            if r.returncode:
                failures += 1
                print(f"FAILED {what}, {dialect}, {' then '.join(order)}: {r.stderr[:400]}")
    print(f"{n} translation units, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
