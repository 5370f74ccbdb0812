#!/usr/bin/env bash
# The node tests of the newest ONNX package with dimensions left symbolic: newest_symbolic_nodes.sh BUILD_DIR [OPTION]...
set -euo pipefail
build=$1
shift
python=.venv/bin/python
[ -x $python ] || { echo "skipped: there is no $python (make test makes it)"; exit 77; }
tests=$build/nodes_newest
$python test/models/node_tests.py "$tests"
exec $python test/models/symbolic_nodes.py "$build" "$tests" --percent 75 --json "$build/symbolic_nodes.jsonl" "$@"
