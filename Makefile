PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo reproduce test test-slow test-tl4 test-pythons lint format docs notebooks bench bench-guard stress coverage mutants check-lower-bounds clean

demo: $(STAMP)
	$(BIN)/count01-lens train --out runs/demo
	$(BIN)/count01-lens verify runs/demo/seed-0
	$(BIN)/count01-lens analyze runs/demo/seed-0 --report runs/demo/report.html
	$(BIN)/count01-lens train --recipe paper --out runs/demo/paper
	$(BIN)/count01-lens analyze runs/demo/paper/seed-0 --report runs/demo/paper_report.html
	@echo "The checkpoint is runs/demo/seed-0.safetensors: cl.load_checkpoint(\"runs/demo/seed-0\")"
	@echo "The report is runs/demo/report.html: open it in a browser"
	@echo "The same model trained as in the paper: runs/demo/paper_report.html"

# Every figure, table and claim of the paper; SIZE=full takes the paper's own counts.
SIZE ?= quick
reproduce: $(STAMP)
	$(BIN)/python -m experiments --size $(SIZE)

# What comes first; `make test-slow` runs the rest, and CI both. Two workers with two threads each
# would mostly wait for each other.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not stress"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "slow and not stress"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site in docs/_build/html; warnings are errors, pages and notebooks are executed, and every page
# is opened from disk: no request to another host, and a search that finds something.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -b html docs docs/_build/html
	$(BIN)/python -m experiments.tools.check_site docs/_build/html
	@echo "The site is docs/_build/html/index.html: open it in a browser"

# Runs the notebooks of the docs and stores what they show.
notebooks: $(STAMP)
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace \
		--ExecutePreprocessor.record_timing=False docs/*.ipynb

bench: $(STAMP)
	$(BIN)/python -m experiments.tools.bench

# Fails if one of a few quick ratios has fallen to a third of that of record, docs/bench.json.
bench-guard: $(STAMP)
	$(BIN)/python -m experiments.tools.bench --guard

# Attacks in full; what they find goes to runs/trust (see docs/trust.md).
stress: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m stress

# Branch coverage of the library by the tests of both, into docs/trust.md.
coverage: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not stress" --cov=count01_lens --cov-branch \
		--cov-report=json:runs/coverage.json --cov-report=term:skip-covered
	$(BIN)/python -m experiments.tools.trust_page --coverage runs/coverage.json

mutants: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'mutmut>=3.8'
	$(BIN)/python -m experiments.tools.mutants

# The oldest versions that pyproject.toml allows, torch aside, in an environment of their own. Old
# libraries use what their newer dependencies deprecate.
OLDEST := .venv-oldest
check-lower-bounds:
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(PYTHON) -m experiments.tools.oldest_versions > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt --editable '.[dev]'
	$(OLDEST)/bin/python -m pip check
	$(OLDEST)/bin/python -m pytest -n 2 -m "not stress" -W ignore::DeprecationWarning

# All tests but stress with TransformerLens 4, in an environment of its own. What it does not have is
# skipped with the reason; everything else is as in constraints.txt.
TL4 := .venv-tl4
test-tl4: $(TL4)/.installed
	OMP_NUM_THREADS=1 $(TL4)/bin/python -m pytest -n 2 -m "not slow and not stress"
	$(TL4)/bin/python -m pytest -n 2 -m "slow and not stress"

$(TL4)/.installed: pyproject.toml constraints.txt
	test -x $(TL4)/bin/python || $(PYTHON) -m venv $(TL4)
	sed 's/^transformer-lens==.*/transformer-lens==4.3.0/' constraints.txt > $(TL4)/constraints.txt
	$(TL4)/bin/python -m pip install --quiet --constraint $(TL4)/constraints.txt --editable '.[dev]'
	touch $(TL4)/.installed

# What comes first on each of these versions of Python, in environments of their own, or with
# TESTS="not stress" both halves. A Python is found as python3.12 or by pyenv; if it is elsewhere:
# make test-pythons PYTHON_3.12=/opt/python3.12/bin/python
PYTHONS ?= 3.11 3.12 3.13
TESTS ?= not slow and not stress
test-pythons: $(PYTHONS:%=test-python-%)

test-python-%: .venv-py%/.installed
	OMP_NUM_THREADS=1 .venv-py$*/bin/python -m pytest -n 2 -m "$(TESTS)"

.PRECIOUS: .venv-py%/.installed
.venv-py%/.installed: pyproject.toml constraints.txt
	@test -x $(@D)/bin/python \
		|| $(or $(PYTHON_$*),python$*) -m venv $(@D) 2>/dev/null \
		|| "$$(pyenv prefix $* 2>/dev/null)/bin/python" -m venv $(@D) 2>/dev/null \
		|| { echo "expected a Python $* with venv, found none; name it: PYTHON_$*=/its/bin/python"; false; }
	$(@D)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(TL4) .venv-py* runs docs/_build

# Installs once; again only if the dependencies changed.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)
