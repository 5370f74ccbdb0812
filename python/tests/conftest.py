# SPDX-License-Identifier: Apache-2.0
"""Tests of a source tree: the package beside this folder, the libraries of $KILN_LIBRARY or build/."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
if not os.environ.get("KILN_TEST_INSTALLED"):  # otherwise tests the installed package
    sys.path.insert(0, str(ROOT))
