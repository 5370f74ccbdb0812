#!/usr/bin/env python3
"""What is made of the command's table of options: each of them is in help, in the manual page, in docs/guide/cli.md and in the
completions for bash, zsh and fish, which are tried; and the documentation names no others.

usage: options.py KILN
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLI_PAGE = ROOT / "docs/guide/cli.md"
kiln = sys.argv[1]
failures = []


def fail(message):
    failures.append(message)


def run(*argv, **how):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, cwd=ROOT, **how)


def printed(form):
    result = run(kiln, "help", f"--format={form}")
    if result.returncode or not result.stdout:
        sys.exit(f"kiln help --format={form}: code {result.returncode}: {result.stderr}")
    return result.stdout


table = json.loads(printed("json"))
options = table["options"]
commands = [c["name"] for c in table["commands"]]
CLOSED = ("word", "words")  # forms whose words are all that there are
OFFERED = CLOSED + ("hint", "hints")


def options_of(command):
    return [o for o in options if command in o["commands"]]


def term(option):
    return f"{option['name']} {option['argument'] or ''}".strip()


# --- pages


def check_help():
    if printed("text") != run(kiln, "--help").stdout or printed("text") != run(kiln, "help").stdout:
        fail("help: kiln help and kiln --help must print the same")
    for c in table["commands"]:
        if not re.search(rf"^  kiln {c['name']} .*{re.escape(c['help'])}$", printed("text"), re.M):
            fail(f"help: must list {c['name']}")
        text = run(kiln, c["name"], "--help").stdout
        if text != run(kiln, "help", c["name"]).stdout:
            fail(f"help: kiln {c['name']} --help and kiln help {c['name']} must print the same")
        n_listed = len(re.findall(r"^  -", text, re.M))
        for o in options_of(c["name"]):
            if not re.search(rf"^  {re.escape(term(o))} +{re.escape(o['help'])}", text, re.M):
                fail(f"help: kiln {c['name']} --help must have {term(o)}")
        if n_listed != len(options_of(c["name"])):
            fail(f"help: kiln {c['name']} --help must list {len(options_of(c['name']))} options, got {n_listed}")


def section(text, begin):
    """What stands between the line that |begin| matches and the next heading of its kind."""
    found = re.search(begin + r"$(.*?)(?=^\.SH|^## |\Z)", text, re.M | re.S)
    return found.group(1) if found else ""


def check_manual():
    text = printed("man")
    entries = section(text.replace("\\-", "-"), r"^\.SH OPTIONS").split(".TP\n")[1:]
    if len(entries) != len(options):
        fail(f"man: must have {len(options)} options, got {len(entries)}")
    for o, entry in zip(options, entries):
        argument = f" \\fI{o['argument']}\\fR" if o["argument"] else ""
        if not entry.startswith(f"\\fB{o['name']}\\fR{argument}\n"):
            fail(f"man: must have {term(o)}, got {entry[:40]!r}")
    if not shutil.which("groff"):
        return print("man: groff is not installed, the page is not set")
    said = run("groff", "-man", "-Tutf8", "-ww", input=text)
    if said.returncode or said.stderr:
        fail(f"man: groff must take the page as it is, got {said.stderr[:300]}")


def check_page():
    text = printed("markdown")
    listed = re.findall(r"^- `(-[^`]*)` \(([^)]*)\): ", section(text, "^## Options"), re.M)
    for o, (name, takers) in zip(options, listed):
        names = [c for c in o["commands"] if c != "module"]
        if name != term(o) or re.split(", | and ", takers) != names:
            fail(f"cli.md: must have {term(o)} of {names}, got {name} of {takers}")
    if len(listed) != len(options):
        fail(f"cli.md: must have {len(options)} options, got {len(listed)}")
    if not CLI_PAGE.exists() or CLI_PAGE.read_text() != text:
        fail(f"docs/guide/cli.md is stale: {kiln} help --format=markdown >docs/guide/cli.md")


# --- completions

ASK_BASH = r"""
set -u
source "$1"
while IFS= read -r line; do # words as readline splits them
  IFS=$'\t' read -ra COMP_WORDS <<<"$line"
  [[ $line == *$'\t' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  IFS=$' \t\n'
  COMPREPLY=()
  _kiln
  printf '%s\t' "${COMPREPLY[@]}"
  echo
done
"""


def readline_words(line):
    """|line|, whose words have blanks between them, as bash splits it: at = and : too."""
    return [part for word in line.split(" ") for part in (re.findall(r"[=:]+|[^=:]+", word) or [""])]


def ask_bash(script, lines):
    """What is offered for each command line, whose last word is completed."""
    asked = "".join("\t".join(readline_words(line)) + "\n" for line in lines)
    result = run("bash", "--norc", "-c", ASK_BASH, "bash", script, input=asked)
    if result.returncode or result.stderr:
        fail(f"bash: must complete, got code {result.returncode}: {result.stderr[:300]}")
    return [[word for word in line.split("\t") if word] for line in result.stdout.split("\n")[: len(lines)]]


def ask_fish(script, lines):
    asked = "".join(f"echo ---; complete -C '{line}'\n" for line in lines)
    result = run("fish", "--no-config", "-c", f"source {script}\n{asked}")
    if result.returncode or result.stderr:
        fail(f"fish: must complete, got code {result.returncode}: {result.stderr[:300]}")
    return [[line.split("\t")[0] for line in part.split("\n") if line] for part in result.stdout.split("---\n")[1:]]


def expect_words(shell, line, got, want):
    if sorted(set(got)) != sorted(set(want)):
        fail(f"{shell}: [{line}] must offer {' '.join(sorted(want))}, got {' '.join(sorted(got))}")


def cases():
    """Command lines, and what is offered for them: as bash puts it, which replaces what stands behind the last = or :."""
    yield "kiln ", commands + ["--help", "--version"]
    for command in commands:
        names = [o["name"] for o in options_of(command)]
        yield f"kiln {command} --", [n for n in names if n[1] == "-"] + ["--help"]
        for o in options_of(command):
            words = o["words"] if o["form"] in OFFERED else []
            if o["form"] in ("any", "number") and o["argument"] and o["kind"] != "pair":
                yield f"kiln {command} {o['name']} ", []
            if words:
                yield f"kiln {command} {o['name']} ", words
                if o["name"][1] == "-":
                    yield f"kiln {command} {o['name']}=", words
            if o["form"] in ("words", "hints"):
                yield f"kiln {command} {o['name']} {words[0]},", [f"{words[0]},{w}" for w in words]


def check_files(ask, shell, script):
    """Files of options and arguments, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        at = folder + "/"
        for name in ("x.npy", "x.npz", "x.txt", "x.onnx", "x.tc", "x.so"):
            (pathlib.Path(folder) / name).touch()
        (pathlib.Path(folder) / "xs").mkdir()
        lines = {
            f"kiln run --inputs {at}x": ["x.npz"], f"kiln run --inputs={at}x": ["x.npz"],
            f"kiln run --input a={at}x": ["x.npy"], f"kiln run --ops {at}x": ["x.tc"],
            f"kiln run --schedule {at}x": ["x.npy", "x.npz", "x.txt", "x.onnx", "x.tc", "x.so"],
            f"kiln run {at}x": ["x.onnx", "x.tc", "x.so"], f"kiln check {at}x": ["x.onnx", "x.tc"],
            f"kiln test {at}x": [], f"kiln run --output-dir {at}x": [], f"kiln run --profile {at}": ["x.onnx", "x.tc", "x.so"],
        }
        for line, got in zip(lines, ask(script, list(lines))):
            names = {word.rstrip("/").split("/")[-1] for word in got}
            missing = (set(lines[line]) | {"xs"}) - names
            # fish offers files of other kinds, too, but no files where folders are asked for
            others = names - set(lines[line]) - {"xs"} if shell == "bash" or not lines[line] else set()
            if missing or others:
                fail(f"{shell}: [{line}] must offer {lines[line]} and xs, got {sorted(names)}")


def check_bash(script):
    if not shutil.which("bash"):
        return print("bash: not installed, its completion is not tried")
    lines = list(cases())
    for (line, want), got in zip(lines, ask_bash(script, [line for line, _ in lines])):
        expect_words("bash", line, got, want)
    for line, want in (("kiln compile --target cuda:s", ["sm_90a"]), ("kiln compile --target=cuda:s", ["sm_90a"]),
                       ("kiln run --fill=r", ["random"]), ("kiln run m.so --see", ["--seed"]), ("kiln help orch", ["orchestrate"])):
        expect_words("bash", line, ask_bash(script, [line])[0], want)
    check_files(ask_bash, "bash", script)


def check_fish(script):
    if not shutil.which("fish"):
        return print("fish: not installed, its completion is not tried")
    lines = [(line, want) for line, want in cases() if line != "kiln "]
    for (line, want), got in zip(lines, ask_fish(script, [line for line, _ in lines])):
        head = line.split(" ")[-1] if line.endswith("=") else ""
        own = [word for word in got if not word.startswith("-") or line.endswith(("--", "="))]
        expect_words("fish", line, own, [head + word for word in want])
    check_files(ask_fish, "fish", script)


def check_zsh(script):
    text = script.read_text()
    for command in commands:
        body = re.search(rf"^  {command}\)\n(.*?) ;;$", text, re.M | re.S)
        listed = re.findall(r"^\s+'(?:\*)?(-[\w-]+)=?\[", body.group(1) if body else "", re.M)
        if listed != [o["name"] for o in options_of(command)]:
            fail(f"zsh: must have the options of {command}, got {listed}")
    if not shutil.which("zsh"):
        return print("zsh: not installed, its completion is not parsed")
    said = run("zsh", "-n", str(script))
    if said.returncode or said.stderr:
        fail(f"zsh: must parse, got {said.stderr[:300]}")


def check_completions():
    with tempfile.TemporaryDirectory() as folder:
        for shell, check in (("bash", check_bash), ("zsh", check_zsh), ("fish", check_fish)):
            script = pathlib.Path(folder) / shell
            script.write_text(printed(shell))
            check(script)


# --- the documentation

FLAG = re.compile(r"(?<![\w,-])(--[a-z][a-z0-9-]*)")
PROGRAM = re.compile(r"(?<![\w/])(?:test|tools|bench|models|examples)/[\w/]+\.(?:py|sh|c)\b|build/[\w]+_bench|(?<=-m )kiln\.\w+")
CODE = re.compile(r"`([^`]+)`")
FOREIGN = {"--fmad"}  # of NVRTC, in prose
KNOWN = {o["name"] for o in options} | {"--help", "--version"}


def has_flag(program, flag):
    """Whether the source of a program of the repository has it."""
    path = ROOT / program
    if program.startswith("kiln."):  # a package of python/, which may make flags of names: f"--most-{dim}"
        text = "".join(p.read_text() for p in (ROOT / "python" / program.replace(".", "/")).glob("*.py"))
        made = [flag.removeprefix(begin) for begin in re.findall(r'f"(--[\w-]*)\{', text) if flag.startswith(begin)]
        return flag in text or any(re.search(rf'\b{name.replace("-", "_")}\b["=]', text) for name in made)
    if program.startswith("build/"):
        path = ROOT / "bench" / (program.split("/")[-1].removesuffix("_bench") + ".c")
    return path.exists() and flag in path.read_text()


def check_command_line(place, words):
    """|words| behind "kiln": the command's options."""
    command, rest = words[0], words[1:]
    if command not in commands:
        return fail(f"{place}: kiln has no command {command}") if re.fullmatch("[a-z]+", command) else None
    known = {o["name"] for o in options_of(command)} | {"--help"}
    if "--" in rest:  # another command line
        behind = rest[rest.index("--") + 1:]
        rest = rest[: rest.index("--")]
        if behind and behind[0] == "kiln":
            check_command_line(place, behind[1:])
    for word in rest:
        flag = FLAG.match(word)
        if flag and flag.group(1) not in known:
            fail(f"{place}: kiln {command} has no option {flag.group(1)}")
        value = re.match(r"(--[a-z-]+)=(\S+)$", word)
        for o in options_of(command) if value else []:
            if o["name"] == value.group(1) and o["form"] in CLOSED:
                for given in value.group(2).split(","):
                    if given not in o["words"]:
                        fail(f"{place}: kiln {command} {o['name']}: no value {given}")


def check_code(place, code, programs):
    """A command line, or some, or an option alone; |programs| are those that its page names."""
    code = re.sub(r"(?<=\s)#.*", "", code)
    for part in re.split(r"\s*(?:&&|\|\||;|\||>|<)\s*", code):
        words = part.split()
        while words and re.fullmatch(r"\w+=\S*", words[0]):
            words = words[1:]
        if len(words) > 1 and words[0] in ("kiln", "build/kiln"):
            check_command_line(place, words[1:])
        elif words and words[0].split("=")[0].startswith("--"):
            check_prose(place, part, programs)
        else:
            own = PROGRAM.findall(part)
            for flag in FLAG.findall(part) if own else []:
                if not any(has_flag(program, flag) for program in own):
                    fail(f"{place}: {' '.join(own)} has no option {flag}")
            if words and words[0] in commands:
                check_command_line(place, words)


def check_prose(place, text, programs):
    for flag in FLAG.findall(text):
        if flag not in KNOWN | FOREIGN and not any(has_flag(program, flag) for program in programs):
            fail(f"{place}: no command has the option {flag}")


def check_paragraph(place, text, programs):
    if all(line.startswith("    ") for line in text.split("\n") if line):
        for line in text.replace("\\\n", " ").split("\n"):
            check_code(place, line.strip(), programs)
        return
    for code in CODE.findall(text):
        check_code(place, code.replace("\n", " "), programs)
    check_prose(place, CODE.sub(" ", text), programs)


def indent_fenced(text):
    """|text| with the commands of its fenced blocks as indented lines, and nothing else of these blocks."""
    lines, language = [], None
    for line in text.split("\n"):
        fence = re.match(r"\s*```(\S*)", line)
        if fence:
            language = None if language is not None else fence.group(1)
            lines.append("")
        elif language == "sh" or language == "text" and line.startswith("kiln "):
            lines.append("    " + line if line else "")
        elif language is not None:
            lines.append("    " + line[2:] if line.startswith("$ ") else "")
        else:
            lines.append(line)
    return "\n".join(lines)


def check_documents():
    pages = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
    pages += [p for p in sorted((ROOT / "examples").rglob("*")) if p.is_file()]
    for page in pages:
        text, line = page.read_text(), 1
        text = indent_fenced(text) if page.suffix == ".md" else text
        programs = set(PROGRAM.findall(text))
        for paragraph in re.split(r"(\n\s*\n)", text):
            place = f"{page.relative_to(ROOT)}:{line}"
            check_paragraph(place, paragraph.strip("\n"), programs)
            line += paragraph.count("\n")


def self_test():
    """The check of documents finds what it must, and nothing else."""
    wrong = ["    kiln run m.onnx --frobnicate", "`kiln check m --reference`", "see `--frobnicate`", "see --frobnicate",
             "    kiln compile m -o x \\\n      --reference", "`kiln reduce m -- kiln run {} --fro`", "    kiln frobnicate m",
             "`bench/orchestrate.py --frobnicate`", "`kiln run m --fill=some`", "`kiln compile m --dump=graph,soup`",
             "    A=1 build/kiln run m --frobnicate && true", "`kiln run m | kiln check --fill x`"]
    right = ["    kiln run m.onnx --fill zeros   # not --frobnicate", "`-Wl,--wrap`", "a --- b", "`bench/orchestrate.py --ways x`",
             "`cmake --preset release`", "`bench/orchestrate.py` takes `--ways`", "`kiln reduce m -- other --frobnicate`",
             "`kiln compile m -o x --dump=graph,asm`", "    ctest --test-dir build", "`kiln COMMAND --help`", "Kiln is"]
    assert indent_fenced("a\n```sh\nkiln x\n```\n```console\n$ kiln y\nout --z\n```\nb") == "a\n\n    kiln x\n\n\n    kiln y\n\n\nb"
    for text in wrong:
        check_paragraph("self", text, PROGRAM.findall(text))
        assert failures, text
        failures.clear()
    for text in right:
        check_paragraph("self", text, PROGRAM.findall(text))
        assert not failures, (text, failures)


def main():
    self_test()
    check_help()
    check_manual()
    check_page()
    check_completions()
    check_documents()
    print("\n".join(failures) if failures else f"options: {len(options)} rows in help, man, cli.md, bash, zsh and fish")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
