# Two commands are enough: `make book` builds the site, `make test` runs the tests.

PYTHON ?= python3
PIP_ARGS ?=
PORT ?= 8000
NB ?=
ifdef ISA  # the instruction set (tools/environment.py)
export PE_ISA := $(ISA)
endif

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
        exercises solutions grade bench bakeoff cover

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

# A notebook's cells share a kernel, and tests of a file what they build. Seconds by the clock end
# what hangs. A test often waits for a browser or a sandbox: one more process than two cores.
PYTEST := $(PY) -m pytest -q -n 3 --dist=loadfile --no-loadscope-reorder
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout=900 --nbval-kernel-startup-timeout=300

test: $(TEST_READY) ## Run the tests and every notebook (ISA=native|oldest)
	@$(PYTEST) tests book $(NBVAL)

check: $(TEST_READY) ## Run what concerns one chapter (NB=shaw)
	@test -n "$(NB)" || { echo "Which chapter? make check NB=shaw"; exit 2; }
	@$(PYTEST) tests book $(NBVAL) -k "$(NB)"

# The tests of a module have its name; those of the whole library are named here.
MODULES := $(notdir $(wildcard pe_lib/*.py pe_lib/recent/*.py))
LIBRARY := $(wildcard $(patsubst %,tests/test_%,$(MODULES)))
LIBRARY += $(addprefix tests/test_,promises.py contract.py bad_inputs.py)
DOCTOR := $(wildcard tests/test_doctor*.py) tests/test_configs.py tests/test_position_ids.py

cover: $(TEST_READY) ## Ask how much of the library its tests run, 98 % or more; of the doctor, 94 %
	@$(PYTEST) $(LIBRARY) --cov=pe_lib --cov-report=term:skip-covered --cov-fail-under=98
	@$(PYTEST) $(DOCTOR) --cov=posdoctor --cov-report=term:skip-covered --cov-fail-under=94

lint: $(TEST_READY) ## Check style, spelling and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(dir $(PY))codespell .
	$(PY) -m mypy

refresh: $(BOOK_READY) ## Execute the notebooks anew and store what they give (NB=shaw for one)
	@$(PY) -m tools.refresh $(NB)

links: $(BOOK_READY) ## Ask every external link whether it still answers; writes a report
	@$(PY) -m tools.build --links

pdf: $(BOOK_READY) ## Print the whole course into one PDF (needs xelatex)
	@$(PY) -m tools.build --pdf

serve: book ## Build, then serve the site on http://localhost:8000 (PORT=...)
	@$(PY) -m http.server --bind 127.0.0.1 --directory $(SITE) $(PORT)

exercises: $(GRADE_READY) ## Make the student releases from the instructors' sources
	@$(PY) -m exercises.build

solutions: $(GRADE_READY) ## Write the model solutions of each set, to give out after the date
	@$(PY) -m exercises.solutions

grade: $(GRADE_READY) ## Grade a course folder: make grade COURSE=../course SET=02_sinusoidal
	@$(PY) -m exercises.grade_course "$${COURSE:-course}" $${SET:+--set "$$SET"} $(ARGS)

NEWEST := sed -E 's/^([A-Za-z0-9._-]+)==(([0-9]+)[0-9.a-z]*).*/\1>=\2,==\3.*/'

newest: $(TEST_READY) ## Move the environment to the newest versions within the same majors
	@mkdir -p _build && rm -f $(SITE)/.sources.json
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
