#!/usr/bin/env python3
"""Checks that numbers are read and printed by src/support/numbers.h alone, and threads started by src/support/thread.h:
what depends on the locale, the rounding mode or the signals of the calling thread is found in no other source.

usage: check_numbers.py [SOURCE_DIR]      prints each breach as file:line, exit 1 if there is one
"""
import pathlib
import re
import sys

# (the call, where it may be made, what is to be called in its place)
CALLS = [
    (r"strto(?:d|f|ld)|ato(?:f)|strto(?:d|f|ld)_l", {"src/support/numbers.c"}, "kiln_number_parse"),
    (r"setlocale|localeconv|nl_langinfo", set(), "nothing: the locale is the caller's"),
    (r"newlocale|uselocale|duplocale", {"src/support/surroundings.h"}, "kiln_surroundings_begin"),
    (r"fe(?:set|update|hold)(?:round|env|except)|feenableexcept|fesetmode", set(), "kiln_floating_begin"),
    (r"pthread_create|thrd_create", {"src/support/thread.c"}, "kiln_thread_start"),
    (r"signal|umask", {"src/worker/worker.c"}, "nothing: it is the caller's"),
]
PRINTS = re.compile(r"(?<![\w.>])(?:v?s?n?printf|v?fprintf|v?dprintf|v?asprintf|f?printf_unlocked)\s*\(")
SCANS = re.compile(r"(?<![\w.>])v?[fs]?scanf\s*\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
REAL = re.compile(r"%(?!%)[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d+)?)?(?:hh|h|ll|l|L|q|j|z|t)?[aAeEfFgG]")
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.S)


def blank(text):
    """Comments become blanks, so that offsets and lines stay."""
    return TOKEN.sub(lambda m: m.group() if m.group()[0] in "\"'" else re.sub(r"[^\n]", " ", m.group()), text)


def arguments(text, begin):
    """The text between the parentheses of a call; |begin| is behind the first one."""
    depth, at = 1, begin
    while at < len(text) and depth:
        token = TOKEN.match(text, at)
        if token:
            at = token.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[begin:at]


def has_real(text):
    return any(REAL.search(s.replace("%%", "")) for s in STRING.findall(text))


def breaches(name, text):
    text = blank(text)
    code = TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    line = lambda at: text.count("\n", 0, at) + 1
    for pattern, allowed, instead in CALLS:
        for found in re.finditer(rf"(?<![\w.>])(?:std::)?({pattern})\s*\(", code):
            if name not in allowed:
                yield f"{name}:{line(found.start())}: {found.group(1)}: must be {instead}"
    for pattern, instead in ((PRINTS, "kiln_number_format"), (SCANS, "kiln_number_parse")):
        for found in pattern.finditer(code):
            if has_real(arguments(text, found.end())):
                yield f"{name}:{line(found.start())}: a real number's conversion: must be {instead}"


def check(root):
    files = [p for top in ("src", "ops", "include") for p in sorted((root / top).rglob("*")) if p.suffix in (".c", ".h", ".cpp")]
    return [b for p in files for b in breaches(str(p.relative_to(root)), p.read_text())]


def self_test():
    """The check finds what it must, and nothing else."""
    wrong = ['x = strtod(text, NULL);', 'atof (a)', 'snprintf(b, n, "%d %.*g", 1, 2, x);', 'sscanf(t, "%lf", &x)',
             'fprintf(f,\n  "a"\n  "%5.1f)" , f(x));', 'setlocale(LC_ALL, "");', 'pthread_create(&t, NULL, f, NULL);',
             'printf("%% %e", x)', 'std::strtof(a)', 'uselocale(c)', 'fesetround(FE_UPWARD)']
    right = ['// strtod(text)', 'kiln_text_printf(out, "%g", x);', 'snprintf(b, n, "%d", i);', 'x->atof(1)', 'my_strtod(x)',
             'snprintf(b, n, "100%% free %s", t);', '/* printf("%g") */', 'sscanf(t, "%d%n", &a, &b)', 'puts("strtod(")']
    for text in wrong:
        assert len(list(breaches("src/a.c", text))) == 1, text
    for text in right:
        assert not list(breaches("src/a.c", text)), text


def main():
    self_test()
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    print("\n".join(found) if found else "numbers: no source depends on the caller's locale")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
