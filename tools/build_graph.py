"""What a build knows of its files: what is made of a source file (ninja's edges and the includes that compilers reported), which
objects the programs of tests link (the symbols that they define and need), and which tests there are (ctest).

Used by tools/quick.py and tools/mutate.py.
"""
import collections
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def output_of(*argv, cwd=ROOT):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, cwd=cwd, check=True).stdout


class Test:
    """A test of ctest: what is run, and the files that its command line names."""

    def __init__(self, entry, build):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name = entry["name"]
        self.command = entry.get("command") or [str(build / self.name)]  # a program that is not there yet has its name
        self.folder = properties.get("WORKING_DIRECTORY", str(build))
        self.environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        self.skip_code = properties.get("SKIP_RETURN_CODE")
        self.labels = properties.get("LABELS", [])
        self.files = {canonical(word, self.folder) for argument in self.command for word in argument.split()
                      if os.path.isfile(os.path.join(self.folder, word))} | {canonical(self.command[0], self.folder)}

    def run(self, seconds, quiet=False):
        """"passed", "skipped", "failed" or "out of time", and what it printed."""
        try:
            done = subprocess.run(self.command, cwd=self.folder, env=os.environ | self.environment, timeout=seconds,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as late:
            return "out of time", (late.stdout or b"").decode(errors="replace")
        text = done.stdout.decode(errors="replace")
        if done.returncode == self.skip_code:
            return "skipped", text
        return ("failed" if done.returncode else "passed"), text


def canonical(path, folder):
    """As the graph names files: absolute, without '..'."""
    return os.path.normpath(os.path.join(folder, path))


def split_paths(text):
    """The paths of a build statement of ninja, whose blanks and colons may be escaped."""
    return [re.sub(r"\$([ :$])", r"\1", p) for p in re.findall(r"(?:\$.|[^\s$])+", text)]


class Graph:
    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.made_of = collections.defaultdict(set)  # file -> what is made of it
        self.inputs = collections.defaultdict(set)  # and the reverse
        self.needed_to_run = collections.defaultdict(set)  # programs -> what they load (order-only inputs of links)
        self.read_statements()
        self.read_includes()
        self.tests = [Test(t, self.build) for t in json.loads(
            output_of("ctest", "--show-only=json-v1", cwd=self.build))["tests"]]
        self.costs = self.read_costs()

    def path(self, name):
        return canonical(name, self.build)

    def add(self, output, used):
        self.made_of[used].add(output)
        self.inputs[output].add(used)

    def read_statements(self):
        text = (self.build / "build.ninja").read_text().replace("$\n", " ")
        for statement in re.findall(r"^build (.*)$", text, re.M):
            outputs, _, rest = re.match(r"((?:\$.|[^:$])+)(:)(.*)", statement).groups()
            rule, _, rest = rest.strip().partition(" ")
            if rule == "phony":
                continue
            explicit, _, late = rest.partition("||")
            for output in split_paths(outputs.replace("|", " ")):
                for used in split_paths(explicit.replace("|", " ")):
                    self.add(self.path(output), self.path(used))
                if "LINKER" in rule:
                    self.needed_to_run[self.path(output)].update(map(self.path, split_paths(late)))

    def read_includes(self):
        output = None
        for line in output_of("ninja", "-t", "deps", cwd=self.build).splitlines():
            if line.startswith("    "):
                self.add(output, self.path(line.strip()))
            elif line:
                output = self.path(line.split(":")[0])

    def read_costs(self):
        """Seconds that tests took: as ctest keeps them, and as tools/quick.py does, which runs fewer of their cases."""
        path = self.build / "Testing/Temporary/CTestCostData.txt"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return {row[0]: float(row[2]) for row in rows if len(row) == 3 and int(row[1]) > 0} | self.quick_costs()

    def quick_costs(self):
        path = self.build / "quick.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def keep_quick_costs(self, costs):
        (self.build / "quick.json").write_text(json.dumps(self.quick_costs() | costs, indent=1))

    def all_made_of(self, files):
        """Everything that is made of |files|, and they themselves."""
        found, waiting = set(files), list(files)
        while waiting:
            for output in self.made_of.get(waiting.pop(), set()) - found:
                found.add(output)
                waiting.append(output)
        return found

    def objects_of(self, files):
        return {f for f in self.all_made_of(files) if f.endswith(".o")}

    def program_of(self, test):
        """The program of a unit test; None of a test that runs a script or the command."""
        name = canonical(test.command[0], test.folder)
        return name if any(i.endswith(".o") and "/test/" in i for i in self.inputs[name]) else None

    def own_objects(self, program):
        """Objects that the program is linked of by name, not out of libraries."""
        return {i for i in self.inputs[program] if i.endswith(".o")}

    def members(self, program):
        """Objects in the libraries that the program is linked with."""
        libraries = {i for i in self.inputs[program] if i.endswith(".a")}
        return {o for library in libraries for o in self.inputs[library] if o.endswith(".o")}

    def read_symbols(self, objects):
        """Object -> (symbols that it defines, symbols that it needs)."""
        table, here = {}, [o for o in sorted(objects) if os.path.exists(o)]
        for line in output_of("nm", "-A", "-g", *here).splitlines() if here else []:
            name, _, rest = line.partition(":")
            defined, needed = table.setdefault(name, (set(), set()))
            kind, symbol = rest.split()[-2:]
            (needed if kind in "Uwv" else defined).add(symbol)
        return table

    def distances(self, program, symbols):
        """Object -> how many steps from symbol to definition it is away from those that the program is linked of."""
        where = {s: o for o in self.members(program) if o in symbols for s in symbols[o][0]}
        found = dict.fromkeys(self.own_objects(program), 0)
        waiting = collections.deque(found)
        while waiting:
            o = waiting.popleft()
            for symbol in symbols.get(o, ((), ()))[1]:
                definition = where.get(symbol)
                if definition and definition not in found:
                    found[definition] = found[o] + 1
                    waiting.append(definition)
        return found

    def unit_tests_near(self, objects):
        """[(steps to the nearest of |objects|, test)] of the unit tests that link one of them, the nearest first; of those equally
        near that of the folder of one of them, and the quicker one."""
        programs = {t: p for t in self.tests if (p := self.program_of(t))}
        everything = set().union(*(self.own_objects(p) | self.members(p) for p in programs.values())) if programs else set()
        symbols = self.read_symbols(everything)
        near = []
        for test, program in programs.items():
            steps = [d for o, d in self.distances(program, symbols).items() if o in objects]
            if steps:
                near.append((min(steps), test))
        folders = {re.sub(r".*/src/(.*)/[^/]*", r"\1", o).replace("/", "_") for o in objects}
        is_apart = lambda test: not any(test.name.startswith(f + "_") for f in folders)
        return sorted(near, key=lambda n: (n[0], is_apart(n[1]), self.costs.get(n[1].name, 1), n[1].name))


def read_graph(folder):
    """The graph of a build, in which the unit tests have been compiled once, so that their symbols are known."""
    graph = Graph(folder)
    own = {o for t in graph.tests if (p := graph.program_of(t)) for o in graph.own_objects(p) if not os.path.exists(o)}
    if not own:
        return graph
    subprocess.run(["ninja", "-C", folder, "-k", "0", *(os.path.relpath(o, graph.build) for o in sorted(own))])
    return Graph(folder)
