#!/usr/bin/env python3
"""What Kiln says that instructions of x86-64 need of a processor, against GNU binutils.

usage: needs.py NEEDS      NEEDS answers of single instructions (test/oracle/needs.c)

Every opcode of every map, with each prefix, width, vector length and kind of operand, is given to objdump; what it knows is
given to NEEDS and, as objdump's text, to the assembler, which is told of exactly the extensions that NEEDS named: it must
take the instruction, and must refuse it where one of them is left out.
"""
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Kiln's (LLVM's) names as the assembler's, where they differ.
NAMES = {"avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg",
         "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
         "avx512vp2intersect": "avx512_vp2intersect", "avxvnni": "avx_vnni", "avxvnniint8": "avx_vnni_int8",
         "avxifma": "avx_ifma", "avxneconvert": "avx_ne_convert"}
UNKNOWN_TO_AS = {"avxvnniint16"}  # newer than binutils 2.40
BASE = "generic64+387+sse2+mmx+cmov+fxsr+clflush"
GROUPS = (0x71, 0x72, 0x73, 0xAE, 0xBA, 0xC7, 0xF3)  # whose ModRM extends the opcode
# What code generation has no use for, and what the assembler does not judge by extension.
IGNORED = re.compile(r"(ud[012]|prefetch|sys|wr|rd|int|lss|lfs|lgs|rsm|femms|pf|pi2|getsec|vm|skinit|cl|mov +%[cdt]r|.*%[cdt]r|"
                     r"data16|rex|rep|lock|[cdefgs]s|x(save|rstor|getbv|setbv|end|test|abort|begin|susldtrk|resldtrk)|mon|mwait|"
                     r"enc|inc?ss|save|setss|tpause|umon|umw|ptw|psmash|inv|lar|lsl|str|sldt|s[gi]dt|l[gil]dt|ltr|smsw|lmsw|ver[rw]|"
                     r"swapgs|fx|ldmx|stmx|.fence|push|pop|j|call|ret|(ld|st)tilecfg|tile|tdp|seam|uiret|testui|stui|senduipi|"
                     r"wb|pconfig|vp4|v4f|v(gather|scatter)[0-9]*pf|vexp2|vrcp28|vrsqrt28|cmp.*xadd|a(and|or|xor|add) |enqcmd|"
                     r"maskmov|vzero|emms|addr32|vpermil2|nop|loadiw|aes.*kl|bnd)")


def vex(map_, pp, w, l, opcode, tail):
    return bytes([0xC4, 0xE0 | map_, w << 7 | 0x78 | l << 2 | pp, opcode]) + tail


def evex(map_, pp, w, l, opcode, tail):
    # vector registers 16 to 31 in all fields, so that the text means EVEX; no mask
    return bytes([0x62, 0x20 | map_, w << 7 | 0x7C | pp, l << 5, opcode]) + tail


def legacy(prefix, w, escape, opcode, tail):
    return prefix + (b"\x48" if w else b"") + escape + bytes([opcode]) + tail


def candidates():
    register, memory = bytes([0xC9]), bytes([0x0B])
    fields = [bytes([top | reg << 3 | low]) for reg in range(8) for top, low in ((0xC0, 1), (0, 3))]
    for opcode, w, pp in itertools.product(range(256), (0, 1), range(4)):
        for tail in fields if opcode in GROUPS else (register, memory):
            for escape in (b"\x0f", b"\x0f\x38", b"\x0f\x3a"):
                yield legacy((b"", b"\x66", b"\xf3", b"\xf2")[pp], w, escape, opcode, tail)
            for l, map_ in itertools.product((0, 1), (1, 2, 3)):
                yield vex(map_, pp, w, l, opcode, tail)
            for l, map_ in itertools.product((0, 1, 2), (1, 2, 3, 5, 6)):
                yield evex(map_, pp, w, l, opcode, tail)


def disassembled(codes, room):
    """The text of each, and how many bytes it takes; behind each come zeros and, 32 bytes on, the next one."""
    (room / "code.bin").write_bytes(b"".join(c + b"\x00" * (15 - len(c)) + b"\x90" * 17 for c in codes))
    out = subprocess.run(["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "--no-show-raw-insn", "-w",
                          str(room / "code.bin")], capture_output=True, text=True, check=True).stdout
    at = {}
    for line in out.splitlines():
        m = re.match(r"\s*([0-9a-f]+):\s+(.*?)\s*(#.*)?$", line)
        if m:
            at[int(m.group(1), 16)] = m.group(2)
    addresses = sorted(at)
    following = dict(zip(addresses, addresses[1:] + [len(codes) * 32]))
    return [(at.get(32 * i), following.get(32 * i, 0) - 32 * i) for i in range(len(codes))]


def refused(names, texts, room, why=""):
    """Which of the texts the assembler refuses where there are |names| alone; |why|: with such a message."""
    arch = "".join("+" + NAMES.get(n, n) for n in sorted(names))
    (room / "t.s").write_text("".join(t + "\n" for t in texts))
    r = subprocess.run(["as", "--64", "-march=" + BASE + arch, "-o", "/dev/null", str(room / "t.s")], capture_output=True,
                       text=True)
    return {texts[int(m.group(1)) - 1] for m in re.finditer(r"t\.s:(\d+): Error: .*" + why, r.stderr)}


def is_implied(name, others):
    """Whether the assembler takes |name| to be there with the others."""
    return (name == "avx512f" and any(n.startswith("avx512") for n in others)) or (
        name == "avx" and others & {"vaes", "vpclmulqdq"})


def is_its_encoding(text, code, room):
    """Whether the assembler makes |code| of the text: objdump has texts for prefixes that are none of the instruction's."""
    (room / "t.s").write_text(text + "\n")
    out = room / "t.o"
    if subprocess.run(["as", "--64", "-o", str(out), str(room / "t.s")], capture_output=True).returncode:
        return False
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", str(out), str(room / "t.bin")], check=True)
    return (room / "t.bin").read_bytes() == code


def count_wrong(needs, texts, known, room):
    """Instructions that are said to need |needs| and need something else."""
    if "unknown" in needs:
        texts = [t for t in texts if is_its_encoding(t, known[t], room)]
        print("".join(f"unknown: {known[t].hex():24s} {t}\n" for t in texts), end="")
        return len(texts)
    more = refused(needs, texts, room, "(not supported on|unsupported instruction)")
    print("".join(f"needs more than {sorted(needs)}: {known[t].hex():24s} {t}\n" for t in more), end="")
    n = len(more)
    for leave in needs:
        if is_implied(leave, needs - {leave}):
            continue
        less = set(texts) - refused(needs - {leave}, texts, room)
        print("".join(f"needs no {leave}: {known[t].hex():24s} {t}\n" for t in less), end="")
        n += len(less)
    return n


def main():
    if not shutil.which("as") or not shutil.which("objdump") or subprocess.run(
            ["as", "--64", "-march=generic64+avx_ifma", "-o", "/dev/null", "/dev/null"], capture_output=True).returncode:
        print("skipped: needs binutils for x86-64, 2.40 or later")
        return 77
    codes = sorted(set(candidates()))
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name)
        known = {t: (c + b"\x00" * 15)[:n] for c, (t, n) in zip(codes, disassembled(codes, room))
                 if t and n < 16 and not IGNORED.match(t) and "bad" not in t}
        answers = subprocess.run([sys.argv[1]], input="".join(c.hex() + "\n" for c in known.values()), capture_output=True,
                                 text=True, check=True).stdout.split("\n")
        by_needs = {}
        for text, answer in zip(known, answers):
            by_needs.setdefault(frozenset(answer.split()), []).append(text)
        wrong = sum(count_wrong(needs, texts, known, room) for needs, texts in sorted(by_needs.items(), key=str)
                    if not needs & UNKNOWN_TO_AS)
    print(f"{len(known)} instructions, {wrong} wrong")
    return 1 if wrong or len(known) < 3000 else 0


if __name__ == "__main__":
    sys.exit(main())
