#!/usr/bin/env python3
"""What tools/build_graph.py reads of a build: what is made of files, which tests link them, and what tools/quick.py chooses.

usage: graph.py BUILD_DIR
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import build_graph  # noqa: E402
import quick  # noqa: E402


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if not (build / ".ninja_deps").exists():
        print(f"{build}: not built by ninja")
        return 77
    assert build_graph.split_paths("a$ b c$:d $$e") == ["a b", "c:d", "$e"]
    assert quick.names_one('x = ROOT / "docs"', ["docs/design/device-loop.md"]) and not quick.names_one("docs/design/device-loop.md", ["docs/cpu.md"])
    graph = build_graph.Graph(build)
    nearest = lambda name: [t.name for _, t in graph.unit_tests_near(graph.objects_of([str(ROOT / name)]))]
    assert nearest("tools/kiln/options.c")[0] in ("options_test", "tool_test")
    assert "tool_test" in nearest("tools/kiln/npy.c") and "tool_test" in nearest("tools/kiln/kiln.h")  # an include
    made = graph.all_made_of([str(ROOT / "src/ir/expr.c")])
    assert {str(build / name) for name in ("libkiln_ir.a", "libkiln.so.1")} <= made
    assert str(build / "kiln") not in made and str(build / "libkiln.so") in graph.needed_to_run[str(build / "kiln")]
    chosen = [t.name for _, t in quick.choose(graph, ["src/ir/expr.c"])]
    assert "thin_command" in chosen and "source_format" in chosen
    chosen = [t.name for _, t in quick.choose(graph, ["test/cli/reduce.py"])]
    assert "reduce" in chosen and "bad_input" not in chosen, chosen
    assert "options" in [t.name for _, t in quick.choose(graph, ["docs/design/device-loop.md"])]
    print(f"graph: {len(graph.made_of)} files, {len(graph.tests)} tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
