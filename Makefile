# Works on a fresh clone with Python >= 3.11 and make.
#
#   make demo       compare models of digits and write report.html
#   make test       the fast tests                  make test ARGS="-k gaussian -x"
#   make test-all   the slow ones too
#   make bench      speed beside the peers
#   make studies    quality beside the peers: imputation and bits of ten tables, forecasts of twenty series
#   make lint       ruff and pyright
#   make docs       the documentation, in site/
#   make pictures   the pictures of the documentation, drawn again
#   make pins       requirements/ again, after a change of pyproject.toml or constraints.txt (needs uv)
#   make clean      remove what was built (not .venv)

PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 2
ARGS    ?=

PY      := $(VENV)/bin/python
# what is imported is compiled when it first is, on all cores; to compile all of it takes one a quarter of a minute
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile
# for every platform and every Python that the project supports
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	--group build --constraints constraints.txt
# worksteal hands each worker long runs of neighbouring tests, so that the tests of one file share their
# compiled programs, and still levels the load at the end
PYTEST  := $(PY) -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo test test-all bench studies lint docs pictures pins clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: $(VENV)/.installed-base
	$(VENV)/bin/freeenergy compare digits --seed 0 --report report.html $(ARGS)

# one thread a worker: more would make the workers wait for each other
test test-all: export OMP_NUM_THREADS = 1
test test-all: export OPENBLAS_NUM_THREADS = 1
# Most of the time of the tests is compilation, most of that optimisation, which small shapes do not repay, and
# cutting programs into parts for several threads: without both, six first fits compile in 7 s instead of 52.
# Rounding differs, so that a test must not depend on how ties are broken; test-all runs the programs that users run.
test test-all: export XLA_FLAGS = --xla_cpu_multi_thread_eigen=false $(LESS)
test: LESS = --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_parallel_codegen_split_count=1 \
	--xla_disable_hlo_passes=while-loop-simplifier,while-loop-invariant-code-motion
# where in the source each operation was made is not written into programs
test: export JAX_TRACEBACK_IN_LOCATIONS_LIMIT = 0

test: $(VENV)/.installed-test
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(VENV)/.installed-test
	$(PYTEST) $(ARGS)

bench: $(VENV)/.installed-bench
	$(PY) -m benchmarks $(ARGS)

# an environment of its own, since a peer needs other versions than the tests
studies:
	@$(MAKE) --no-print-directory VENV=.venv-studies .venv-studies/.installed-studies
	.venv-studies/bin/python -m studies --write $(ARGS)

lint: $(VENV)/.installed-test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)

docs: $(VENV)/.installed-docs
	$(PY) -m mkdocs build --strict

pictures: $(VENV)/.installed-test
	$(PY) examples/series.py docs/families
	$(PY) examples/hidden.py docs/families
	$(PY) examples/dictionary.py docs/families/atoms.png
	$(PY) examples/images.py docs/families/images.png
	$(PY) examples/families.py docs/families
	$(PY) examples/tutorials.py docs/tutorials

# One stamp for each extra; "base" is the package alone.  requirements/ has the hashes of all files of each
# release, so that nothing else is installed; the peers of "bench" and "studies" have none.
LIST = requirements/$(if $(filter bench studies,$*),base,$*).txt
$(VENV)/.installed-%: pyproject.toml constraints.txt $(wildcard requirements/*.txt)
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "freeenergy needs Python 3.11 or later. Got %d.%d instead; choose another with make PYTHON=..." % sys.version_info[:2])'
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing freeenergy ($*) into $(VENV) ..."
	@$(INSTALL) --require-hashes -r $(LIST)
	@$(INSTALL) $(if $(filter bench studies,$*),$(if $(filter bench,$*),-c constraints.txt) -e '.[$*]',--no-deps --no-build-isolation -e .)
	@touch $@

pins:
	@mkdir -p requirements
	@$(foreach name,base test docs,$(COMPILE) $(if $(filter base,$(name)),,--extra $(name)) -o requirements/$(name).txt pyproject.toml &&) true

clean:
	rm -rf build dist site demo report.html .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
