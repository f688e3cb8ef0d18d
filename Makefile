# Two commands do everything: `make book` builds the site, `make test` runs every check.

PYTHON ?= python3
PIP_ARGS ?=
PORT ?= 8000
NB ?=
ISA ?=
ISA_ARGS = $(if $(ISA),--isa $(ISA))

VENV := .venv
ifeq ($(OS),Windows_NT)
PY := $(VENV)/Scripts/python.exe
else
PY := $(VENV)/bin/python
endif
PIP := $(PY) -m pip install --disable-pip-version-check
SITE := _build/html
BOOK_READY := $(VENV)/.book-ready
GRADE_READY := $(VENV)/.grade-ready
TEST_READY := $(VENV)/.test-ready

.DEFAULT_GOAL := help
.PHONY: help book test refresh check lint links pdf serve newest clean distclean \
        exercises grade bench bakeoff order fork

# An environment works only where it was made, with the Python that made it. Else it is made anew.
PLACE := import os, sys; print(os.fsencode(os.path.realpath(sys.prefix)), *sys.version_info[:2])
HERE := $(shell $(PY) -c '$(PLACE)' 2>/dev/null)
MADE := $(shell cat $(BOOK_READY) 2>/dev/null)
STALE := $(if $(MADE),$(subst $(HERE),,$(MADE)))
ifneq ($(STALE),)
.PHONY: $(BOOK_READY)
endif
CLEAR := $(if $(wildcard $(VENV)/pyvenv.cfg),$(if $(HERE),$(if $(STALE),--clear),--clear))

help: ## Show this list
	@echo "make book and make test are all you need; the rest is for authors and instructors."
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | \
	  awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BOOK_READY): requirements.txt constraints.txt pyproject.toml
	@$(if $(STALE),false,$(PY) -m pip --version) >/dev/null 2>&1 || { \
	  echo "Making the environment in $(VENV)"; \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; say which: make book PYTHON=python3.12"; exit 1; }; \
	  $(PYTHON) -m venv $(CLEAR) $(VENV) || \
	    { echo "No environment could be made. On Debian, Ubuntu: sudo apt install python3-venv"; \
	      exit 1; }; }
	$(PIP) $(PIP_ARGS) -r requirements.txt -c constraints.txt
	$(PIP) $(PIP_ARGS) --no-deps --editable .
	@find $(VENV)/lib -path '*/python*/site-packages/__editable__*.pth' \
	  -exec sh -c 'echo ../../../.. > "$$1"' _ {} \;  # a name beyond ASCII stops Python in locale C
	@$(PY) -c '$(PLACE)' > $@.part && mv $@.part $@

$(GRADE_READY): requirements-grade.txt $(BOOK_READY)
	$(PIP) $(PIP_ARGS) -r requirements-grade.txt -c constraints.txt
	@touch $@

$(TEST_READY): requirements-test.txt requirements-bakeoff.txt requirements-alone.txt $(GRADE_READY)
	$(PIP) $(PIP_ARGS) -r requirements-test.txt -r requirements-bakeoff.txt -c constraints.txt
	$(PIP) $(PIP_ARGS) --no-deps --upgrade --target $(VENV)/alone -r requirements-alone.txt
	@touch $@

book: $(BOOK_READY) ## Build the site from the stored outputs and say where it is
	@$(PY) -m tools.build

test: $(TEST_READY) ## Run every check (ISA=native|oldest)
	@$(PY) -m tools.test $(ISA_ARGS)

refresh: $(BOOK_READY) ## Re-execute the notebooks in place (NB=attention for one)
	@$(PY) -m tools.refresh $(ISA_ARGS) $(NB)

check: $(BOOK_READY) ## Re-execute in memory and compare with what is stored, pictures too
	@$(PY) -m tools.refresh --check $(ISA_ARGS) $(NB)

lint: $(TEST_READY) ## Check style, spelling and types
	@$(PY) -m tools.lint

links: $(BOOK_READY) ## Ask every external link whether it still answers; writes a report
	@$(PY) -m tools.build --links

pdf: $(BOOK_READY) ## Print the whole course into one PDF (needs xelatex)
	@$(PY) -m tools.build --pdf

serve: book ## Build, then serve the site on http://localhost:8000 (PORT=...)
	@$(PY) -m http.server --bind 127.0.0.1 --directory $(SITE) $(PORT)

exercises: $(GRADE_READY) ## Make the student releases from the instructors' sources
	@$(PY) -m exercises.build

grade: $(GRADE_READY) ## Grade a course folder: make grade COURSE=../course SET=02_sinusoidal
	@$(PY) -m exercises.grade_course "$${COURSE:-course}" $${SET:+--set "$$SET"} $(ARGS)

order: $(GRADE_READY) ## Number the chapters by their order in _toc.yml, wherever numbers stand
	@$(PY) -m tools.order

fork: $(BOOK_READY) ## Give a fork its own links (REPO=owner/name TITLE="..." SITE=https://...)
	@$(PY) -m tools.fork "$$REPO" --title "$$TITLE" --site "$$SITE"

NEWEST := sed -E 's/^([A-Za-z0-9._-]+)==(([0-9]+)[0-9.a-z]*).*/\1>=\2,==\3.*/'

newest: $(TEST_READY) ## Move the environment to the newest versions within the same majors
	@mkdir -p _build && rm -f $(SITE)/.made_of
	@$(NEWEST) requirements.txt $(patsubst %,requirements-%.txt,grade bakeoff test) > _build/newest.txt
	@$(NEWEST) requirements-alone.txt > _build/newest-alone.txt
	$(PIP) $(PIP_ARGS) --upgrade -r _build/newest.txt
	$(PIP) $(PIP_ARGS) --no-deps --upgrade --target $(VENV)/alone -r _build/newest-alone.txt

bench: $(TEST_READY) ## Time pe_lib beside the libraries that people use
	@$(PY) -m benchmarks $(ARGS)

bakeoff: $(BOOK_READY) ## Train every method and measure it past its training length
	@$(PY) -m bakeoff $(ARGS)

clean: ## Remove what the build made
	rm -rf _build book/_generated .pytest_cache .ruff_cache .hypothesis .coverage htmlcov

distclean: clean ## Remove the environment, vendored assets and the types' cache too
	rm -rf $(VENV) book/_vendor *.egg-info .mypy_cache
