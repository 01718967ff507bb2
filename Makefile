# Everything runs in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
REGIMEKIT_DATA ?= $(abspath ../shared/data)
export REGIMEKIT_DATA

# These run again on the source of the kernels, without compiled code.
UNCOMPILED_TESTS := tests/ihmm/test_hdp.py tests/ihmm/test_resampling.py \
  tests/ihmm/test_linear_gaussian.py tests/ihmm/test_label_matching.py tests/ihmm/test_batch_schedule.py tests/ihmm/test_work.py

.PHONY: venv demo test check lint types imports uncompiled coverage checked bench bench-public bench-venv soak soak-model soak-serve fuzz \
  tune replay evidence reproduce quick docs site dist wheel-test lock clean

# The demo needs less than the tools of development, which go into the same .venv later.
venv: .venv/.made
.venv/.made: EXTRAS := dev
.venv/.demo: EXTRAS := cli,plot
.venv/.made .venv/.demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "regimekit needs Python 3.11 or newer. Choose one with: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@

demo: $(if $(wildcard .venv/.made),venv,.venv/.demo)
	$(BIN)/regimekit demo --out out/demo

test: venv
	$(BIN)/python -m pytest -n 2

check: test lint types imports uncompiled coverage

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

imports: venv
	$(BIN)/lint-imports

uncompiled: venv
	REGIMEKIT_UNCOMPILED=1 $(BIN)/python -m pytest -n 2 -m 'not slow' $(UNCOMPILED_TESTS)

# Branch coverage of the rooms without compiled code; that of the kernels: REGIMEKIT_UNCOMPILED=1 make coverage.
COVERED_TESTS ?= tests/metrics tests/preprocessing tests/datasets tests/io
coverage: venv
	$(BIN)/python -m pytest -q -n 2 -m 'not slow' $(COVERED_TESTS) --cov --cov-report=term

# Tests that run every kernel, with bounds checks compiled in, built into a folder of its own. A violated bound
# is a warning of an ignored exception, which fails the test.
CHECKED_TESTS := tests/goldens tests/distributions tests/robustness/test_influence.py \
  tests/ihmm/test_hdp.py tests/ihmm/test_resampling.py tests/ihmm/test_label_matching.py
checked: venv
	REGIMEKIT_BUILD=checked $(BIN)/python setup.py --quiet build --build-lib build/checked-lib
	PYTHONPATH=build/checked-lib $(BIN)/python -c 'import regimekit; assert "checked-lib" in regimekit.__file__'
	PYTHONPATH=build/checked-lib $(BIN)/python -m pytest -q -n 2 -m 'not slow' $(CHECKED_TESTS)

# Two hundred times kill -9 under load; every observation once, outputs as without.
SOAK_SECONDS ?= 600
soak-serve: venv
	REGIMEKIT_KILLS=200 $(BIN)/python -m pytest tests/server/test_durability.py -k 'kill_under_load' -s
	REGIMEKIT_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest tests/server/test_soak.py -s

# Changed snapshots at random, SECONDS long.
SECONDS ?= 300
fuzz: venv
	$(BIN)/python tests/fuzz/fuzz_snapshots.py $(SECONDS)

# Goals, time per observation beside other packages (in an environment of their own), growth over a
# long stream. WRITE=1 writes benchmarks/RESULTS.md instead.
bench: bench-venv
	.venv-bench/bin/python -m benchmarks $(if $(WRITE),peers --write)

# All that takes long: a model and a service.
soak: soak-model soak-serve

# A million observations with ever-new regimes: time and memory per twentieth, and whether both stay.
SOAK ?= 1000000
soak-model: venv
	$(BIN)/python -m benchmarks.soak --observations $(SOAK)

# regimekit against peers on public series, and docs/benchmarks.md anew: what docs/benchmarks has not yet,
# or has of other data, sources or versions. The peers live in an environment of their own.
bench-venv: .venv-bench/.made

.venv-bench/.made: pyproject.toml benchmarks/public/constraints.txt
	$(PYTHON) -m venv .venv-bench
	PIP_CONSTRAINT=benchmarks/public/constraints.txt .venv-bench/bin/python -m pip install --quiet \
	  --disable-pip-version-check -e '.[bench,river,cli]' scoringrules pandas statsforecast flaircast ruptures sktime \
	  jax particles
	@touch $@

# Then the parts of TCPD, TSSB, SKAB and NAB in REGIMEKIT_DATA, next to their published figures; printed only.
bench-public: bench-venv
	.venv-bench/bin/python -m benchmarks.public --page docs/benchmarks.md
	.venv-bench/bin/python -m benchmarks.segmentation --peers auto,none,every,pelt,bocd
	.venv-bench/bin/python -m benchmarks.alerts

# The paper's tables and figures: all of them in full (hours), or small to see that they run. In full every
# model is tuned first by the same search; what was searched or run from this source is not done again,
# neither after an interruption nor in another checkout that has docs/reproduction/runs.
RUNS ?= 20
tune: venv
	$(BIN)/python -m paper tune --jobs 2

# After a change that should change no number: one seed of everything, and the rest is carried over.
replay: venv
	$(BIN)/python -m paper replay --jobs 2 --out docs/reproduction

# All evidence in order, from one command: settings, tables, figures, measured pages, benchmarks. What is up
# to date is not run again, and a stopped call is continued by the next. PLAN=1 prints the stages and their
# cost, QUICK=1 runs each at its smallest size without changing a page, ONLY="tune tables" some of them.
evidence: $(if $(PLAN)$(QUICK),venv,venv bench-venv)
	$(BIN)/python -m paper evidence $(if $(PLAN),--plan) $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

reproduce: tune
	$(BIN)/regimekit reproduce all --runs $(RUNS) --jobs 2 --out docs/reproduction

quick: venv
	$(BIN)/regimekit reproduce all --quick --jobs 2 --out out/quick

# The site, in out/site; a broken link is an error. The same Markdown is read on GitHub.
docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# The site of several versions with a selector, one folder each: make site VERSIONS="v0.4.0 v0.3.0"
site: venv
	$(BIN)/python -m docs.versions out/site $(VERSIONS)
	@echo "the site is in out/site: open out/site/index.html, or see it with its search: python3 -m http.server -d out/site"

# Wheel and sdist in dist/, and the wheel alone in an empty environment, away from the checkout.
dist: venv
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

wheel-test: dist
	PYTHON=$(PYTHON) .ci/wheel dist/*.whl

# Writes the lock anew from what pyproject.toml allows. Names and exact versions, nothing else.
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet '.[dev]'
	.venv-lock/bin/python -m pip freeze --all --exclude regimekit --exclude pip --exclude setuptools > constraints.txt
	rm -rf .venv-lock

clean:
	rm -rf .venv .venv-bench out .mypy_cache .ruff_cache .pytest_cache
