# SPDX-License-Identifier: Apache-2.0
"""The compiler's library and command, which the package `kiln` finds here."""
import os
import sys


def main() -> None:
    """The command `kiln`."""
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "kiln")
    os.execv(command, [command, *sys.argv[1:]])
