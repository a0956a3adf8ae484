PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test test-matrix proof mutants lint docs pictures scripts bench bench-full bench-smoke bench-suites bench-bars bench-litellm litellm chaos chaos-short clean

demo: $(VENV)/stamp
	$(RUN) -m pyslot.demo

test: $(VENV)/bench
	$(RUN) -m pytest -q -n 2 --dist loadfile tests

# The whole contract on each server through each client: about two minutes. `test` takes one row of it.
test-matrix: $(VENV)/stamp
	PYSLOT_PROOF=all $(RUN) -m pytest -q -n 2 tests/proof/test_matrix.py

# The long form of all that tests/proof attacks, more ways of giving a limiter its client, more servers: ten minutes.
proof: $(VENV)/stamp
	PYSLOT_PROOF=all $(RUN) -m pytest -q -n 2 tests/proof

# Breaks the scripts and the flows in some forty ways, and sees that the tests notice each: about three minutes.
mutants: $(VENV)/stamp
	$(RUN) tools/mutants.py

lint: $(VENV)/bench
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict -p pyslot -p tests -p bench

docs: $(VENV)/stamp
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

pictures: $(VENV)/stamp
	$(RUN) tools/draw_docs.py

scripts: $(VENV)/stamp
	$(RUN) tools/build_scripts.py

# A million operations among faults: about ten minutes. The short form, about one, is part of the tests.
chaos: $(VENV)/stamp
	$(RUN) -m tests.chaos --seconds 600

chaos-short: $(VENV)/stamp
	$(RUN) -m tests.chaos --seconds 24

# The callback example in the real proxy: a minute and a half.
litellm: $(VENV)/stamp .venv-litellm/stamp
	.venv-litellm/bin/python -m pip install -q 'msgpack>=1.0' 'redis>=6'
	$(RUN) -m pytest -q tests/service/litellm_proxy.py

# Peers are installed for these alone. LiteLLM stays in an environment of its own, for it pins much of what it needs.
# Five minutes on two servers and a cluster; bench/results/last.md shows it.
bench: $(VENV)/bench bench-litellm
	$(RUN) -m bench

# All servers and clusters, and the bars: twenty minutes; docs/benchmarks.md shows it.
bench-full: $(VENV)/bench bench-litellm
	$(RUN) -m bench.bars || echo "going on: the report says which bars were missed"
	$(RUN) -m bench --full

# Everything in them once, on one server: under a minute. It says that they run, and nothing else.
bench-smoke: $(VENV)/bench
	$(RUN) -m bench --smoke
	$(RUN) -m pytest -q bench/suites --benchmark-disable

# pytest-benchmark, one operation a test, on every server through every client: a minute and a half.
bench-suites: $(VENV)/bench
	mkdir -p bench/results
	$(RUN) -m pytest -q bench/suites --benchmark-max-time=0.3 --benchmark-columns=median,iqr,ops,rounds \
	    --benchmark-sort=name --benchmark-group-by=group --benchmark-json=bench/results/suites.json

bench-bars: $(VENV)/bench bench-litellm
	$(RUN) -m bench.bars

bench-litellm: .venv-litellm/stamp

$(VENV)/bench: $(VENV)/stamp
	$(RUN) -m pip install -q --group bench
	touch $@

.venv-litellm/stamp: bench/beside.py
	rm -rf .venv-litellm
	$(PYTHON) -m venv .venv-litellm
	.venv-litellm/bin/python -m pip install -q "$$(sed -n 's/^PIN = "\(.*\)"$$/\1/p' bench/beside.py)"
	touch $@

clean:
	rm -rf $(VENV) .venv-litellm site .servers .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Last is the stamp: an environment that was left half made is made again. The copies of adapters/ and scripts/ go,
# because an editable install takes them along (the wheel's force-include) and they would only grow old.
$(VENV)/stamp: pyproject.toml
	rm -rf $(VENV)
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "pyslot needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -q --upgrade 'pip>=25.1'
	$(RUN) -m pip install -q -e '.[all]' --group dev
	rm -rf $(VENV)/lib/python*/site-packages/pyslot
	touch $@
