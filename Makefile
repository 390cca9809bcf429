# Everything runs in .venv, which the first target that needs it makes: any Python >= 3.12 will do (PYTHON=/path names one).
# ARGS is handed on: make demo ARGS="--workers 4 --kill-every 5", make test ARGS="-k window -x".

PYTHON ?=
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
export PYTHONPATH := $(CURDIR)

# Settings of the user's pip that would send packages elsewhere than into the environment.
PIP := env -u PIP_TARGET -u PIP_PREFIX -u PIP_REQUIRE_HASHES PIP_USER=0 $(PY) -m pip \
	--disable-pip-version-check --no-input --retries 10 --timeout 60

.PHONY: help demo test test-engine cluster test-cluster check chaos model bench chart lock clean

help:
	@echo "make demo    the whole fleet on this machine, for about half a minute"
	@echo "make test    the tests that take seconds (ARGS goes to pytest)"
	@echo "make test-engine  the contract and a fleet on the real SGLang, on the CPU (5 GB, once, in the user's cache)"
	@echo "make cluster a real Kubernetes cluster on this machine (root, Debian; built once); ARGS=stop ends it"
	@echo "make test-cluster  the chart and the operator on a real cluster: that one, one of its own, or KUBECONFIG's"
	@echo "make check   formatting, lint, types, who may import whom, what the chart has generated"
	@echo "make chaos   real workers and a real broker, killed and frozen for minutes"
	@echo "make model   the specification of the steps, explored further than in make test"
	@echo "make bench   measurements, each one table"
	@echo "make chart   helm/values.schema.json and the table in helm/README.md again from values.yaml"
	@echo "make lock    requirements.lock again from pyproject.toml (ARGS=--upgrade takes what is newest)"
	@echo "make clean   removes .venv and what tools left"

demo: $(INSTALLED)
	$(PY) -m deploy local $(ARGS)

test: $(INSTALLED)
	$(PY) -m pytest -m "not slow" $(ARGS)

test-engine: $(INSTALLED)
	$(PY) -m tests.engine $(ARGS)

cluster: $(INSTALLED)
	@$(PY) -m tests.cluster $(ARGS)

test-cluster: $(INSTALLED)
	$(PY) -m tests.cluster test $(ARGS)

check: $(INSTALLED)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright
	$(PY) $(VENV)/bin/lint-imports
	$(VENV)/bin/hadolint Dockerfile
	$(PY) -m tests.helm.generate --check

chaos: $(INSTALLED)
	$(PY) -m tests.chaos $(ARGS)

model: $(INSTALLED)
	$(PY) -m tests.model $(ARGS)

bench: $(INSTALLED)
	$(PY) -m bench $(ARGS)

# The stamp is written last: an installation that was cut off is taken up again. The project itself is installed from
# here without a download: what builds it is in the lock.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PY) -c 'import sys, pip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || { \
		python=$$(PYTHON="$(PYTHON)" sh .ci/find-python) || exit 1; \
		echo "making $(VENV) with $$python"; \
		rm -rf $(VENV) && "$$python" -m venv $(VENV); }
	@echo "installing requirements.lock into $(VENV) (a minute, once)"
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

chart: $(INSTALLED)
	$(PY) -m tests.helm.generate

# One lock for every Python from 3.12 on, and of it what the image needs; --no-emit-index-url, since an address in it
# would be this machine's.
LOCK := UV_CUSTOM_COMPILE_COMMAND="make lock" build/uv/bin/uv pip compile --quiet --universal --python-version 3.12 \
	--generate-hashes --no-emit-index-url --extra worker --extra api --extra deploy

lock:
	@python=$$(PYTHON="$(PYTHON)" sh .ci/find-python) || exit 1; \
		test -x build/uv/bin/uv || { "$$python" -m venv build/uv && build/uv/bin/python -m pip install --quiet uv; }
	@$(LOCK) --extra dev $(ARGS) --output-file requirements.lock pyproject.toml
	@$(LOCK) --constraint requirements.lock --output-file requirements.image.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist out .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
