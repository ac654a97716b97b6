# groupwise: `make demo` and `make test` set themselves up from nothing in .venv; python3 and make are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# One process collects the tests, loads the libraries and makes what tests share once. PYTEST="-n 2 --dist loadfile" takes less
# time and more of the processors; a file of tests then stays with one of the two.
PYTEST ?=
# Small matrices gain nothing from threads that wait for each other, and lose a factor of ten where something else runs.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
# Some machines forbid it: hundreds of short processes of the tests would each compile the same libraries again.
unexport PYTHONDONTWRITEBYTECODE
# uv takes seconds where pip takes minutes, but it does not read pip's configuration: hand over a folder of wheels where this
# machine has one (nothing of it is kept), and leave it to pip where uv finds no way to an index.
WHEELS  = $${UV_FIND_LINKS:-$$($(PYTHON) -m pip config get global.find-links 2>/dev/null | tr -s ' \n' ',' || true)}
define install
	@echo "groupwise: installing $(1) into $(VENV) (once)"
	@UV_FIND_LINKS="$(WHEELS)" $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt $(foreach package,$(1),--editable '$(package)') \
	|| { echo "groupwise: uv could not; trying pip"; $(BIN)/pip install -qq --disable-pip-version-check --constraint constraints.txt $(foreach package,$(1),--editable '$(package)'); }
	@touch $@
endef
NUMERIC = tests/forecasting tests/edge tests/estimators lab/tests/theory lab/tests/golden tests/comparison tests/golden tests/test_intervals.py tests/gradients \
	lab/tests/trainer/test_policy.py lab/tests/trainer/test_language_policy.py lab/tests/trainer/test_grpo.py lab/tests/experiments/test_language_models.py
MUTATED = estimators intervals.py edge comparison forecasting diagnostics
.DEFAULT_GOAL := help
.PHONY: help processors cluster slurm loops demo demo-recorded demo-llm gpu test wheel release kernels freeze sentences mutants house check bench docs slow torture fuzz soak explore experiments studies dynamics final-gap fixture reference picture clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/uv:
	@echo "groupwise: making $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -qq --disable-pip-version-check uv

# A stamp a set of extras, so that a second call installs nothing; all but the first have the laboratory too.
PROJECTS = pyproject.toml lab/pyproject.toml constraints.txt
$(VENV)/.installed: $(PROJECTS) | $(BIN)/uv
	$(call install,.)

$(VENV)/.installed-lab: $(PROJECTS) | $(BIN)/uv
	$(call install,.[hf] ./lab[hf])

$(VENV)/.installed-%: $(PROJECTS) | $(BIN)/uv
	$(call install,.[$*] ./lab[hf])

demo: $(VENV)/.installed-lab  ## a model learns while you watch: forecast, group size, groupwise-report.html
	@$(BIN)/python scripts/demo.py

demo-recorded: $(VENV)/.installed  ## the same report on a recorded TRL run, without torch
	@$(BIN)/python -m groupwise report src/groupwise/examples/trl_run -o groupwise-report.html --force \
	|| case $$? in 1|3) ;; *) exit 1;; esac
	@echo "The report is in $(CURDIR)/groupwise-report.html"

LLM ?= $(or $(GROUPWISE_MODELS),$(HOME)/.cache/groupwise/models)/smollm2
LLM_TRAIN = $(BIN)/python -m groupwise_lab train larger_of_two --model "$(LLM)" --lora 16 --set examples=3 -G 8 -N 64 --learning-rate 0.0003 \
	--set optimizer=adamw --set adaptive.every=100 --set evaluate_every=12 --set evaluation_problems=16 --set rollouts_every=1 \
	--device cpu -o build/demo-llm
demo-llm: $(VENV)/.installed-hf  ## twelve updates of SmolLM2 while you watch: components before, judgement after (six minutes; fetches 98 MB once)
	@[ -d "$(LLM)" ] || $(BIN)/python scripts/fetch_model.py smollm2 --folder "$(LLM)"
	@echo "Components of 16 prompts with 8 rollouts each before any training, and one update (three minutes):"
	@$(LLM_TRAIN) --steps 1 --force
	@echo "The advice is of one gradient. Whole runs did best with 4 to 8, in the mean of three seeds (lab/docs/studies/language-models.md): eleven more updates with 8."
	@$(LLM_TRAIN) --steps 12 --resume
	@echo "Twelve rows are too few for most judgements; this one says what it lacks:"
	@$(BIN)/python -m groupwise diagnose build/demo-llm || case $$? in 1|3) ;; *) exit 1;; esac

test: $(VENV)/.installed-test  ## every test but the slow ones, doctests included, with the seconds of a processor (PYTEST="-n 2 --dist loadfile" for two cores)
	@$(BIN)/python scripts/yardstick.py $(PYTEST) -p no:logging

wheel: $(VENV)/.installed-test,release  ## build and check the wheel, install it alone, run the README's lines there: size and seconds
	@rm -rf build/dist && mkdir -p build
	@$(BIN)/python -m build --outdir build/dist >build/dist.log || { cat build/dist.log; exit 1; }
	@$(BIN)/python -m twine check --strict build/dist/*
	@UV_FIND_LINKS="$(WHEELS)" $(BIN)/python scripts/try_wheel.py build/dist/*.whl

release: $(VENV)/.installed-test,release  ## build both packages twice (equal hashes), check and install each with uv and pip: build/release; signs and uploads nothing
	@UV_FIND_LINKS="$(WHEELS)" $(BIN)/python scripts/release.py

slow: $(VENV)/.installed-test  ## the studies that take minutes: coverage of intervals, backtests
	@$(BIN)/python -m pytest -m slow -s

torture: $(VENV)/.installed-test  ## every byte of a journal flipped, every length cut, 200 kills, 50 stops, full disks (half an hour at most)
	@$(BIN)/python -m pytest -m torture -s tests/torture

fuzz: $(VENV)/.installed-test  ## 3,000 mutants of real logs and 100 hostile files, each within 1 GB and 10 s of a processor; goes on when called again
	@$(BIN)/python scripts/fuzz.py

soak: $(VENV)/.installed-test  ## the live page with 200 clients for five minutes: memory, and how long the page takes
	@$(BIN)/python scripts/soak.py

explore: $(VENV)/.installed-test  ## the tests that draw their examples, on new ones, a thousand where a test sets no number
	@$(BIN)/python -m pytest $(PYTEST) --hypothesis-profile=explore -m "hypothesis and not slow"

kernels: $(VENV)/.installed-test  ## the numeric tests under three kernels of OpenBLAS and two of torch, which round differently
	@for kernels in "Haswell avx2" "Sandybridge default" "Prescott avx2"; do set -- $$kernels; echo "== OpenBLAS $$1, torch $$2"; \
	OPENBLAS_CORETYPE=$$1 ATEN_CPU_CAPABILITY=$$2 $(BIN)/python -m pytest $(PYTEST) -q $(NUMERIC) || exit 1; done

processors:  ## make demo and make test in a fresh clone under every pair of kernels (half an hour)
	@scripts/every_processor.sh

freeze: $(VENV)/.installed  ## what every command answers on the logs of ../shared/data, against the frozen answers
	@$(BIN)/python scripts/freeze.py check

sentences: $(VENV)/.installed-test  ## tests/golden anew: the sentences that tests compare, and what the examples are answered
	@WRITE_SENTENCES=1 $(BIN)/python -m pytest -n 0 -q -m "" tests/golden/test_answers.py $$(grep -rl "says(" tests --include="test_*.py")

mutants: $(VENV)/.installed-dev  ## mutation testing of the mathematics: 300 seeded mutants a room, resumable (an hour)
	@for room in $(MUTATED); do echo "== $$room"; $(BIN)/python scripts/mutants.py $$room || exit 1; done

house: $(VENV)/.installed-dev  ## the size of the house, and how calls travel through it (RUN=LOG traces the commands on a log)
	@$(BIN)/python scripts/measure_house.py $(RUN)

check: $(VENV)/.installed-dev  ## lint, format, types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.installed-dev  ## speed, each beside a peer in the same run
	@$(BIN)/python -m pytest benchmarks --benchmark-only -o addopts="--import-mode=importlib"
	@$(BIN)/python benchmarks/speed_table.py
	@$(BIN)/python benchmarks/report_time.py

reference: $(VENV)/.installed-dev  ## docs/reference from the command line itself, docs/metrics.md from the table of keys, the notebook from its cells
	@$(BIN)/python scripts/make_reference.py
	@$(BIN)/python scripts/make_metrics.py
	@$(BIN)/python scripts/make_notebook.py

docs: reference  ## the documentation as a site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "The documentation is in $(CURDIR)/build/site/index.html"

EXPERIMENTS = u_statistic/gradient_mse u_statistic/optimal_group_size u_statistic/adaptive_group_size u_statistic/oracle \
	predictable_grpo/deep_truth predictable_grpo/deep_threshold predictable_grpo/deep_inertia \
	predictable_grpo/deep_larger predictable_grpo/deep_factors predictable_grpo/deep_dynamics

experiments: $(VENV)/.installed-dev  ## what is missing of both papers' experiments on a trained network (an hour each at most)
	@for name in $(EXPERIMENTS); do echo "== $$name"; $(BIN)/python lab/experiments/$$name.py || exit 1; done

cluster: $(VENV)/.installed-ray  ## a Ray head and two workers on this machine run the jobs that have engines, and end
	@$(BIN)/python scripts/cluster.py

slurm: $(VENV)/.installed-slurm  ## a real SLURM of one node (slurmctld, slurmd, munge of the system; root) runs them, with 20 kills at random (ten minutes)
	@$(BIN)/python scripts/slurm.py

loops: $(VENV)/.installed-dev  ## trainers' own loops and loggers, an environment each in build/loops, against what groupwise reads; resumable; ONLY="verl-loop" runs some; docs/reference/trainers.md
	@$(BIN)/python scripts/loops.py $(if $(ONLY),--only $(ONLY))

gpu: $(VENV)/.installed-hf  ## what only a GPU can run of the experiments on language models; MINUTES=25, and goes on when called again (fetches SmolLM2 once)
	@[ -d "$(LLM)" ] || $(BIN)/python scripts/fetch_model.py smollm2 --folder "$(LLM)" || true
	@GROUPWISE_DEVICE=$(or $(DEVICE),cuda) $(BIN)/python lab/experiments/language_models/gpu.py --minutes $(or $(MINUTES),25)

studies: $(VENV)/.installed-dev  ## the studies of estimators, intervals and forecasts, anew
	@for script in lab/experiments/forecast/*.py lab/experiments/gradient/*.py lab/experiments/intervals/*.py; do \
	echo "== $$script"; $(BIN)/python $$script || exit 1; done

dynamics: $(VENV)/.installed-dev  ## the figures of lab/docs/studies/dynamics-experiments.md (six minutes)
	@for script in kicks trajectories onset boundary group_size fluctuations inertia force_of_runs; do \
	echo "== $$script"; $(BIN)/python lab/experiments/predictable_grpo/$$script.py || exit 1; done

final-gap: $(VENV)/.installed-dev  ## the figures of lab/docs/studies/final-gap.md (half an hour)
	@for script in gap_law gap_rate gap_bounds mixture_accuracy; do \
	echo "== $$script"; $(BIN)/python lab/experiments/u_statistic/$$script.py || exit 1; done

fixture:  ## record the embedded TRL run anew (own virtual environment, a few minutes)
	@$(PYTHON) scripts/record_trl_run.py

picture: demo-recorded  ## the pictures of reports and of the live page (needs Chromium and Playwright)
	@$(BIN)/python scripts/gallery.py
	@$(BIN)/python scripts/take_live_picture.py

clean:  ## remove what the other targets made
	@rm -rf $(VENV) .venv-trl build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks groupwise-report.html
