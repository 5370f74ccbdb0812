# Thin front of CMake: every target installs what it needs first (tools/deps.sh).
#   make         release build; the command is build/kiln
#   make demo    compiles ResNet-50 for this machine, checks and times it
#   make test    the test suite (minutes)      make asan   the same under ASan and UBSan
#   make test-long  what takes longer, alone   make test-all  every case of every test
#   make test-symbolic  ONNX's newest node tests with dimensions left symbolic, which takes hours
#   make test-torch  the Python package with PyTorch      make bench-torch  SAMPLE (60) random models of it, from SEED (1)
#   make wheels  build/wheels/kiln_runtime-*.whl and kiln_compiler-*.whl
#   make quick   what tests what changed since main (BASE), for a minute at most
#   make coverage  docs/bench/coverage.md: the share of lines and branches that tests run (clang-19, llvm-19)
#   make test-report  reports of models opened in headless Chromium (which it installs), pictures in build/report
#   make tidy    clang-tidy-19 with the checks of .clang-tidy
#   make tsan    what threads share, under ThreadSanitizer
#   make fuzz    RUNS (100000) damaged models, scripts and definitions under ASan and UBSan, from SEED (1)
#   make fuzz-graphs  RUNS (1000) random valid models against ONNX Runtime and the interpreter, from SEED (1)
#   make fuzz-notation  RUNS (1000) random definitions under random schedules against the interpreter, from SEED (1)
#   make bench   Kiln against its peers        make format clang-format on all sources
#   make docs    docs/ref/operators.md, from a run of ONNX's node tests, docs/guide/cli.md and docs/ref/c-api.md
#   make site    these pages as a site in build/site, by MkDocs (docs/requirements.txt)
#   make deb     Debian packages in build-deb    make deb-try  tries them in a fresh Debian 12, as root
#   make install what a build made, to PREFIX (/usr/local)
.PHONY: all deps install deb deb-try demo quick test-report coverage tidy test test-symbolic test-torch bench-torch wheels test-long test-all asan tsan fuzz fuzz-graphs fuzz-notation bench docs site format clean
VENV := .venv/.done
NODE_TESTS := /usr/share/libonnx-testdata/data/node
WEIGHTS := build/models

all: deps
	@cmake --preset release >build.log 2>&1 || { cat build.log; exit 1; }
	@cmake --build --preset release

deps:
	@tools/deps.sh

# Python of its own for the peers: ONNX Runtime, and onnx for its test data.
$(VENV): bench/requirements.txt | deps
	@python3 -m venv .venv
	@.venv/bin/pip install -q --disable-pip-version-check -r bench/requirements.txt
	@touch $@

$(WEIGHTS)/%.onnx: models/%.onnx models/%.json models/weights.py | deps
	@/usr/bin/python3 models/weights.py $(WEIGHTS) $*

demo: all $(WEIGHTS)/resnet50_b1.onnx
	@tools/demo.sh $(WEIGHTS)/resnet50_b1.onnx

test: $(VENV) all $(WEIGHTS)/resnet18_b1.onnx $(WEIGHTS)/mobilenet_v2_b1.onnx
	@tools/test.sh build

quick: BASE ?= main
quick: deps
	@python3 tools/quick.py build $(BASE)

coverage: $(VENV)
	@cmake --preset coverage >build-coverage.log 2>&1 || { cat build-coverage.log; exit 1; }
	@cmake --build --preset coverage
	@python3 tools/coverage.py build-coverage

tidy: deps
	@tools/tidy.sh

test-long test-all: $(VENV) all $(WEIGHTS)/resnet18_b1.onnx $(WEIGHTS)/mobilenet_v2_b1.onnx
	@tools/test.sh build $(@:test-%=%)

REPORTED := resnet50_b1 bert_b1 segformer_b0_b1 yolov4_b1
test-report: all $(REPORTED:%=$(WEIGHTS)/%.onnx)
	@tools/deps.sh chromium
	@python3 test/report/browser.py build/kiln build/report $(REPORTED:%=$(WEIGHTS)/%.onnx)

asan: $(VENV)
	@cmake --preset debug >build-debug.log 2>&1 || { cat build-debug.log; exit 1; }
	@cmake --build --preset debug
	@KILN_TEST_SHARE=$${KILN_TEST_SHARE:-12} tools/test.sh build-debug

# LLVM as a shared library, whose accesses test/tsan.txt leaves out.
tsan: deps
	@cmake --preset tsan >build-tsan.log 2>&1 || { cat build-tsan.log; exit 1; }
	@cmake --build --preset tsan
	@ctest --test-dir build-tsan -L tsan --output-on-failure -j "$$(nproc)"

fuzz: RUNS ?= 100000
fuzz: SEED ?= 1
fuzz: deps
	@cmake --preset debug >build-debug.log 2>&1 || { cat build-debug.log; exit 1; }
	@cmake --build --preset debug --target fuzz_onnx fuzz_script fuzz_tc
	@for f in onnx script tc; do build-debug/fuzz_$$f $(RUNS) $(SEED) || exit 1; done

# RUNS (1000) random valid models, from SEED (1), compiled by default and in one other way in turn: docs/design/correctness.md.
fuzz-graphs: RUNS ?= 1000
fuzz-graphs: SEED ?= 1
fuzz-graphs: all $(VENV)
	@.venv/bin/python test/fuzz/graphs.py --runs $(RUNS) --seed $(SEED) $(if $(OPTIONS),--options $(OPTIONS))

# RUNS (1000) random definitions under random schedules, from SEED (1), on several targets.
fuzz-notation: RUNS ?= 1000
fuzz-notation: SEED ?= 1
fuzz-notation: all $(VENV)
	@.venv/bin/python test/fuzz/notation.py --runs $(RUNS) --seed $(SEED)

# PyTorch's own environment: the package's tests with it, and random models (docs/guide/python.md).
.venv-torch/.done: python/tests/requirements-torch.txt | deps
	@python3 -m venv .venv-torch
	@.venv-torch/bin/pip install -q --disable-pip-version-check -r python/tests/requirements-torch.txt
	@touch $@

test-symbolic: all $(VENV)
	@test/models/newest_symbolic_nodes.sh build

test-torch: all .venv-torch/.done
	@KILN_LIBRARY=build KILN_CACHE_DIR= .venv-torch/bin/python -m pytest -q python/tests

# Both distributions, for systems from glibc 2.28 on; tools/try_wheels.sh installs them and runs what the README shows.
build/.venv-wheels/.done: python/requirements-wheels.txt | all
	@python3 -m venv build/.venv-wheels
	@build/.venv-wheels/bin/pip install -q --disable-pip-version-check -r python/requirements-wheels.txt
	@touch $@

wheels: all build/.venv-wheels/.done
	@build/.venv-wheels/bin/python tools/wheels.py build

bench-torch: SAMPLE ?= 60
bench-torch: SEED ?= 1
bench-torch: all .venv-torch/.done
	@KILN_LIBRARY=build .venv-torch/bin/python bench/torch_random.py --sample $(SAMPLE) --seed $(SEED)

bench: all $(VENV)
	@tools/bench.sh

docs: all $(VENV)
	@.venv/bin/python test/models/node_tests.py build/nodes_newest
	@build/kiln test build/nodes_newest --json build/nodes_newest.json | tail -1
	@build/kiln test $(NODE_TESTS) --json build/nodes.json | tail -1
	@.venv/bin/python tools/operators_doc.py build/kiln build/nodes_newest.json build/nodes.json
	@build/kiln help --format=markdown >docs/guide/cli.md
	@python3 tools/c_api.py
	@python3 tools/pipeline_page.py

.venv-site/.done: docs/requirements.txt
	@python3 -m venv .venv-site
	@.venv-site/bin/pip install -q --disable-pip-version-check -r docs/requirements.txt
	@touch $@

# A dead link is an error. REPO_URL: where links to sources lead.
site: .venv-site/.done
	@.venv-site/bin/mkdocs build --strict --quiet

install: PREFIX ?= /usr/local
install: all
	@cmake --install build --prefix $(PREFIX)

deb: deps
	@tools/debian.sh build

deb-try: deb $(WEIGHTS)/resnet18_b1.onnx
	@tools/debian.sh try

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf build build-deb build-debug build-tsan build-coverage build.log build-debug.log build-tsan.log build-coverage.log
