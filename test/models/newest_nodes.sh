#!/usr/bin/env bash
# The node tests of the newest ONNX package, as nodes.py: newest_nodes.sh KILN BUILD_DIR FLOOR [OPTION]...
set -euo pipefail
kiln=$1 build=$2 floor=$3
shift 3
python=.venv/bin/python
[ -x $python ] || { echo "skipped: there is no $python (make test makes it)"; exit 77; }
tests=$build/nodes_newest
$python test/models/node_tests.py "$tests"
python3 test/models/nodes.py "$kiln" "$tests" "$build/nodes_newest.json" "$floor" "$@"
