#!/usr/bin/env python3
"""The pages of docs/, and README, SECURITY, CONTRIBUTING and CHANGELOG: links lead somewhere, files that they name exist, and commands run.

usage: pages.py KILN [PAGE...]      all pages, or some
       pages.py --links             links and names alone
       pages.py --venv FOLDER/.venv KILN PAGE...    with that Python environment, and the package that is installed there

A block fenced as `sh` is run, and one as `console` too, whose commands stand behind `$ ` and are followed by what they print. Blocks
of a page are run in order by one shell, in a folder of its own with a link to each file and folder of the repository, and the command
on the path. Of what is shown numbers may differ, `...` stands for anything, and alone on a line for any lines. A command that shows
nothing must succeed. `<!-- not run: REASON -->` in front of a block leaves it out, `<!-- run if: COMMAND -->` where that fails.
`<!-- run first: COMMANDS -->` makes what a page's commands take for granted.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [p for p in (ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")) if p.exists()]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
SECONDS = 600  # a page may take, on a busy machine
failures = []
venv = None  # of --venv; its folder stands in the repository's place for conditions


def fail(place, message):
    failures.append(f"{place}: {message}")


def name_of(page):
    return str(page.relative_to(ROOT))


# --- blocks


class Block:
    """What stands between two fences: its language, its lines, and the reason not to run it."""

    def __init__(self, language, line, reason):
        self.language, self.line, self.reason, self.lines = language, line, reason, []


def reason_of(line):
    """Why the block behind a comment is not run; None: it is."""
    said = re.match(r"<!-- (not run|run if): (.+) -->$", line)
    if said and said.group(1) == "run if":
        at = venv.parent if venv else None
        holds = subprocess.run(["bash", "-c", said.group(2)], cwd=at, stdout=subprocess.DEVNULL).returncode == 0
        return None if holds else said.group(2)
    return said.group(2) if said else None


def split_page(text):
    """The fenced blocks of a page, and its prose: the same lines, those of blocks empty."""
    blocks, prose, open_block, reason = [], [], None, None
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"\s*```(\S*)", line)
        prose.append("" if open_block or fence else line)
        if open_block and fence:
            open_block = None
        elif open_block:
            open_block.lines.append(line)
        elif fence:
            open_block = Block(fence.group(1), number, reason)
            blocks.append(open_block)
        if not open_block and line.strip():
            reason = reason_of(line.strip())
    return blocks, "\n".join(prose)


COMMAND = re.compile(r"(\$ |[A-Z_]+=\S* )*(kiln|build/kiln|make|cmake|ctest|git|sudo|cat|printf|python3|cc|tools/\S+|\.venv\S*) ")


def check_fences(page, blocks, prose):
    """Commands stand in blocks that are run, or that say why they are not."""
    for number, line in enumerate(prose.split("\n"), 1):
        if re.match(r"    \S", line) and COMMAND.match(line.strip() + " "):
            fail(f"{name_of(page)}:{number}", f"a command must stand in a block fenced as sh or console: {line.strip()[:60]}")
    for block in blocks:
        if block.language not in ("sh", "console") and not block.reason:
            for number, line in enumerate(block.lines, block.line + 1):
                if COMMAND.match(line + " ") and line.startswith(("kiln ", "$ ", "make ")):
                    fail(f"{name_of(page)}:{number}", f"a command must stand in a block fenced as sh or console: {line[:60]}")


# --- links


def slugs(text):
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    _, prose = split_page(text)
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', prose))
    for heading in re.findall(r"^#+ (.*)$", prose, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`((?:src|include|ops|test|tools|bench|models|examples|cmake|docs)/[\w./*-]*)`")
PAGE_NAMED = re.compile(r"(?<![\w/])docs/[\w/-]+\.md")


def check_links(page, prose):
    for number, line in enumerate(prose.split("\n"), 1):
        place = f"{name_of(page)}:{number}"
        code_free = re.sub(r"`[^`]*`", lambda m: " " * len(m.group(0)), line)
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target) or f"({target})" not in code_free:
                continue
            path, _, anchor = target.partition("#")
            at = (page.parent / path).resolve() if path else page
            if not at.exists():
                fail(place, f"dead link: {target}")
            elif anchor and at.suffix == ".md" and anchor not in slugs(at.read_text()):
                fail(place, f"dead link: {target}: no heading of that name")


def check_names(page, prose):
    """Files that a page names. Histories name the files of their day."""
    if name_of(page) == "docs/bench/history.md" or page.name == "CHANGELOG.md":
        return
    for number, line in enumerate(prose.split("\n"), 1):
        for name in NAMED.findall(line):
            if re.search(r"NAME|FORM|FOLDER", name):
                continue
            if not (list(ROOT.glob(name)) if "*" in name else (ROOT / name).exists()):
                fail(f"{name_of(page)}:{number}", f"no such file: {name}")


def check_sources():
    """Pages that files beside docs/ name, in comments and messages."""
    listed = subprocess.run(["git", "grep", "-InoE", r"docs/[a-zA-Z0-9_/-]+\.md"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for hit in listed.stdout.split("\n") if listed.returncode == 0 else []:
        if not hit or hit.startswith("test/tool/graph.py"):
            continue
        path, number, name = hit.split(":", 2)
        if not (ROOT / name).exists():
            fail(f"{path}:{number}", f"no such page: {name}")


def check_primitives():
    """The page of schedule primitives has those that scripts may have."""
    table = "".join(p.read_text() for p in (ROOT / "src/schedule").glob("*.c"))
    known = set(re.findall(r'\{"(\w+)", "\1(?: [^"]*)?"', table))
    listed = set(re.findall(r"^\| `(\w+)[ `]", (ROOT / "docs/ref/primitives.md").read_text(), re.M))
    if known != listed or len(known) < 30:
        fail("docs/ref/primitives.md", f"must have {sorted(known - listed)}, must not have {sorted(listed - known)}")


def check_commits(page):
    """Commits that a page names, where there is a history."""
    for name in re.findall(r"`([0-9a-f]{7})`", page.read_text()):
        has = subprocess.run(["git", "cat-file", "-e", f"{name}^{{commit}}"], cwd=ROOT, stderr=subprocess.DEVNULL).returncode == 0
        if not has and (ROOT / ".git").exists() and not (ROOT / ".git/shallow").exists():
            fail(name_of(page), f"no such commit: {name}")


def check_site():
    """Each page has its place in the site's navigation."""
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        if not re.search(rf"[ \"]{re.escape(str(page.relative_to(ROOT / 'docs')))}\"?$", nav, re.M):
            fail("mkdocs.yml", f"nav must have {page.relative_to(ROOT / 'docs')}")


# --- commands


def steps_of(block):
    """[(line, command, lines that are shown or None)] of a block that is run."""
    if block.language == "sh":
        return [(block.line, "\n".join(block.lines), None)]
    steps = []
    for number, line in enumerate(block.lines, block.line + 1):
        if line.startswith("$ "):
            steps.append([number, line[2:], []])
        elif steps and line.startswith("> ") and not steps[-1][2]:
            steps[-1][1] += "\n" + line[2:]
        elif steps and steps[-1][1].endswith("\\") and not steps[-1][2]:
            steps[-1][1] += "\n" + line
        elif steps:
            steps[-1][2].append(line)
    return [(number, command, shown or None) for number, command, shown in steps]


NUMBER = r"(?<![A-Za-z_\d])[-+]?\d[\d.,]*(?:e[-+]?\d+)?"  # and not the 32 of f32


def pattern_of(shown):
    """A regular expression of what a command may print where |shown| is shown."""
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        words = []
        for piece in re.split(rf"(\.\.\.|{NUMBER})", " ".join(line.split())):
            if piece == "...":
                words.append(".*")
            elif re.fullmatch(NUMBER, piece):
                words.append(NUMBER)
            else:
                words.append(re.escape(piece).replace(r"\ ", r"\s+"))
        parts.append(r"\s*" + "".join(words) + r"\s*\n")
    return "".join(parts)


def matches(shown, printed):
    lines = [" ".join(line.split()) for line in printed.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while shown and not shown[-1].strip():
        shown = shown[:-1]
    return re.fullmatch(pattern_of(shown), "".join(line + "\n" for line in lines)) is not None


MARK = "\x01"


def script_of(steps):
    lines = ["exec 2>&1 </dev/null", "PS4= ; set -o pipefail"]
    for index, (_, command, shown) in enumerate(steps):
        lines += [f"printf '\\n{MARK}%d\\n' {index}", "set +e" if shown else "set -e", command]
    return "\n".join(lines + ["set +e", f"printf '\\n{MARK}%d\\n' {len(steps)}", ""])


def make_folder(folder, build):
    """Links to the files and folders of the repository, and to the build."""
    (folder / "build").symlink_to(build)
    left_out = {".git", "build", "kiln-reproducer"}
    if venv:
        (folder / ".venv").symlink_to(venv)
        left_out |= {".venv", "python"}
    for entry in ROOT.iterdir():
        if entry.name not in left_out and not entry.name.endswith(".log"):
            (folder / entry.name).symlink_to(entry)


def run_page(kiln, page, cache):
    """The failures of a page's commands, how many there are, and the seconds that they took."""
    blocks, _ = split_page(page.read_text())
    first = re.findall(r"^<!-- run first: (.+) -->$", page.read_text(), re.M)
    steps = [s for b in blocks if b.language in ("sh", "console") and not b.reason for s in steps_of(b)]
    if not steps:
        return [], 0, 0.0
    steps = [(1, command, None) for command in first] + steps
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        build = pathlib.Path(kiln).resolve().parent
        make_folder(folder, build)
        env = dict(os.environ, PATH=f"{build}:{os.environ['PATH']}", HOME=name, KILN_CACHE_DIR=cache, TMPDIR=name)
        try:
            done = subprocess.run(["bash", "--norc", "-c", script_of(steps)], cwd=folder, env=env, timeout=SECONDS,
                                  stdout=subprocess.PIPE, text=True, errors="replace")
        except subprocess.TimeoutExpired:
            return [f"{name_of(page)}: its commands took more than {SECONDS} s"], len(steps), SECONDS
    seconds = time.monotonic() - begin
    printed = re.split(rf"\n{MARK}(\d+)\n", done.stdout)
    said = {int(printed[i]): printed[i + 1] for i in range(1, len(printed) - 1, 2)}
    wrong = []
    for index, (line, command, shown) in enumerate(steps):
        place, first = f"{name_of(page)}:{line}", command.split("\n")[0]
        if index not in said:
            continue  # behind one that failed
        if index + 1 not in said and not shown:
            wrong.append(f"{place}: failed: {first}\n{said[index][-1500:]}")
        elif shown and not matches(shown, said[index]):
            wrong.append(f"{place}: `{first}` printed something else than is shown:\n{said[index][-3000:]}")
    return wrong, len(steps), seconds


def make_models(kiln, pages):
    """Makes the models that pages make, once: pages run at the same time."""
    names = sorted({name for p in pages for name in re.findall(r"make (build/models/\w+\.onnx)", p.read_text())})
    with tempfile.TemporaryDirectory() as folder:
        make_folder(pathlib.Path(folder), pathlib.Path(kiln).resolve().parent)
        names and subprocess.run(["make", "-s", *names], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def run_commands(kiln, pages):
    make_models(kiln, pages)
    n_steps, slowest = 0, []
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for page, (wrong, n, seconds) in zip(pages, pool.map(lambda p: run_page(kiln, p, cache), pages)):
            failures.extend(wrong)
            n_steps += n
            slowest.append((seconds, name_of(page)))
    for seconds, name in sorted(slowest, reverse=True)[:5]:
        print(f"  {seconds:6.1f} s  {name}")
    return n_steps


# --- this test's own


def self_test():
    page = "a\n<!-- not run: slow -->\n```sh\nx\n```\nb\n```console\n$ y \\\n  z\nout 1.5 us ...\n...\n$ w\n```\n"
    blocks, prose = split_page(page)
    assert [b.reason for b in blocks] == ["slow", None] and "x" not in prose and "b" in prose
    assert steps_of(blocks[1]) == [(8, "y \\\n  z", ["out 1.5 us ...", "..."]), (12, "w", None)]
    assert matches(["out 1.5 us ...", "..."], "out 27 us and\nmore\n") and matches(["a", "..."], "a\n")
    assert not matches(["out 1.5 us"], "out one us\n") and not matches(["a"], "a\nb\n") and not matches(["f32[1x8] -2e-05"], "f16[1x8] 3\n")
    assert matches(["f32[2x8]  -2e-05"], "f32[1x8] 3\n")
    assert "what-is-it-kiln-x" in slugs("## What is it: `kiln x`?\n")
    assert COMMAND.match("kiln run x") and COMMAND.match("$ make ") and not COMMAND.match("kilns ")


def main():
    global venv
    self_test()
    if sys.argv[1:2] == ["--venv"]:
        venv = pathlib.Path(sys.argv[2]).absolute()
        del sys.argv[1:3]
    arguments = [a for a in sys.argv[1:] if a != "--links"]
    if not arguments and "--links" not in sys.argv:
        sys.exit(__doc__)
    chosen = [pathlib.Path(a).resolve() for a in arguments[1:]] or PAGES
    n_blocks = 0
    for page in chosen:
        blocks, prose = split_page(page.read_text())
        n_blocks += sum(b.language in ("sh", "console") for b in blocks)
        if "--links" not in sys.argv:
            check_fences(page, blocks, prose)
        check_links(page, prose)
        check_names(page, prose)
    if chosen is PAGES:
        check_sources()
        check_site()
        check_primitives()
        check_commits(ROOT / "CONTRIBUTING.md")
        check_commits(ROOT / "docs/bench/history.md")
    n_steps = 0 if "--links" in sys.argv or failures else run_commands(arguments[0], chosen)
    print("\n".join(failures) if failures else f"pages: {len(chosen)} with {n_blocks} blocks, {n_steps} commands run")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
