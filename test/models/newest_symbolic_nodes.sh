#!/usr/bin/env bash
# The node tests of the newest ONNX package with dimensions left symbolic: newest_symbolic_nodes.sh BUILD_DIR FLOOR [OPTION]...
set -euo pipefail
build=$1 floor=$2
shift 2
python=.venv/bin/python
[ -x $python ] || { echo "skipped: there is no $python (make test makes it)"; exit 77; }
tests=$build/nodes_newest
$python test/models/node_tests.py "$tests"
exec $python test/models/symbolic_nodes.py "$build" "$tests" --floor "$floor" --json "$build/symbolic_nodes.jsonl" "$@"
