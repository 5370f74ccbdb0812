"""Where the tests of examples/ run: in .venv's Python, which has NumPy."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def enter(test):
    """Runs the script again there; skips |test| where there is none."""
    python = ROOT / ".venv/bin/python"
    if not python.exists():
        print(f"{test}: skipped: make test makes what is needed")
        sys.exit(77)
    if pathlib.Path(sys.prefix) != ROOT / ".venv":
        os.execv(python, [str(python), *sys.argv])
