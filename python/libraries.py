# SPDX-License-Identifier: Apache-2.0
"""A hook of hatchling's: puts libraries of a build into a wheel, and names it for their platform.

$KILN_BUILD: the directory of the build; else build/ of this source tree.
"""
import os
import pathlib
import platform

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = pathlib.Path(__file__).resolve().parent


class Libraries(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        build = pathlib.Path(os.environ.get("KILN_BUILD", HERE.parent / "build"))
        for name in self.config["files"]:
            source = (build / name).resolve()
            if not source.is_file():
                raise FileNotFoundError(f"{source}: build it first (make), or set KILN_BUILD")
            build_data["force_include"][str(source)] = f"{self.config['to']}/{name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{platform.machine()}"
