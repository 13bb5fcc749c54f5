# Two commands do everything: `make demo` and `make test`. `make help` lists the rest.
#
# Each set of packages has a stamp in .venv; while it is newer than pyproject.toml and
# constraints.txt nothing is installed and no network is needed.

VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt
ARGS   ?=
# Tests wait more than they compute: twice as many at a time as there are processors. With
# WORKERS=0 they run one after the other, in one process (for a debugger, or a handful of tests).
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
BESIDE := -n $(WORKERS) --dist worksteal
# Each worker has a cluster of its own, a module of tests at a time, the longest ones first; those that
# need images of a GB are one unit (tests/cluster/conftest.py), so that one cluster loads them.
CLUSTERS := -n $(if $(filter 0,$(WORKERS)),0,2) --dist loadfile --no-loadscope-reorder

# Compiled files are what makes the second start fast; a shell that forbids them would hide it.
unexport PYTHONDONTWRITEBYTECODE
# A variable meant for another project's interpreter must not reach ours.
unexport PYTHONPATH PYTHONHOME

# The first interpreter that is new enough; override with `make PYTHON=/path/to/python3.12 demo`.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; \
	done)
endif

.PHONY: help demo pictures reference test test-real test-cluster test-gpu check docs docs-serve format bench \
	bench-ps bench-rec bench-operator dist clean tools-real tools-cluster operator-image demo-image
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

# ------------------------------------------------------------------------------------- the demo

# FRAMEWORK=torch or paddle. Without it: what your own Python has (make demo PYTHON=...), what .venv
# has, or paddle, the smaller install (docs/decisions/0024-the-demo.md).
ifeq ($(FRAMEWORK)|$(MAKECMDGOALS),|demo)
FRAMEWORK := $(shell "$(PYTHON)" -c 'from importlib.util import find_spec as find; \
	print(next((name for name in ("torch", "paddle") if find(name)), ""))' 2>/dev/null)
endif
FRAMEWORKS := torch paddle
FRAMEWORK := $(firstword $(FRAMEWORK) $(patsubst $(VENV)/.demo-%,%,$(wildcard $(VENV)/.demo-*)) paddle)
ifeq ($(filter $(FRAMEWORK),$(FRAMEWORKS)),)
$(error FRAMEWORK=$(FRAMEWORK): choose torch or paddle)
endif
OTHER = $(filter-out $(FRAMEWORK),$(FRAMEWORKS))
DEMO = --nproc-per-node 2 examples/$(FRAMEWORK)_digits.py
LENT := $(VENV)/openmp
SEEN := yaml,watch,web,debug

demo: export LD_LIBRARY_PATH := $(if $(LD_LIBRARY_PATH),$(LD_LIBRARY_PATH):)$(CURDIR)/$(LENT)
demo: $(VENV)/.demo-$(FRAMEWORK) ## train a digit classifier on 2 ranks; FRAMEWORK=torch or paddle
	@echo "== The plan: paddock explain $(DEMO)"
	@$(BIN)/paddock explain $(DEMO) | sed -e '/^values/,$$d' -e '/^environment/,$$d' -e '/^each runs/d' -e '/^$$/d'
	@echo "== The job: paddock launch $(DEMO)"
	@$(BIN)/paddock launch $(DEMO)
	@echo "== It worked: two ranks trained one model. Next:"
	@echo "     source $(BIN)/activate"
	@echo "     paddock logs last --rank 1                          # what the other rank printed"
	@echo "     paddock bill last                                   # what its time was spent on"
	@echo "     paddock web                                         # your runs in a browser; here: paddock top"
	@echo "     paddock launch --nproc-per-node 2 YOUR_SCRIPT.py"
	@echo "     make demo FRAMEWORK=$(OTHER)                         # the same with $(OTHER)"

# ------------------------------------------------------------------------------- tests and checks

test: $(VENV)/.dev ## everything that needs no cluster: unit, scenario, simulation, local processes
	$(PYTEST) $(BESIDE) --doctest-modules tests src --ignore=tests/real --ignore=tests/cluster \
	  --ignore=tests/gpu -m "not real and not cluster" $(ARGS)

test-real: tools-real $(VENV)/.real ## real etcd, network namespaces, real Paddle, PyTorch and JAX
	$(PYTEST) $(BESIDE) tests -m real --ignore=tests/cluster --ignore=tests/gpu $(ARGS)

test-cluster: tools-cluster ## a real Kubernetes with two nodes, made on this machine; as root
	$(PYTEST) $(CLUSTERS) tests/cluster -m cluster $(ARGS)

# With the frameworks of another Python, built for the devices: make test-gpu GPU_PYTHON=python3
GPU_PYTHON ?= $(BIN)/python
test-gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(VENV)/.real) ## what a machine with NVIDIA GPUs can show
	$(GPU_PYTHON) -m pytest tests/gpu -m gpu $(ARGS)

check: $(VENV)/.dev ## ruff, mypy strict, layers and purity, the tests' own tidiness, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST) -q tests/test_tidy.py tests/test_layers.py tests/test_words.py
	$(BIN)/codespell

# Strict: a page that is in no menu, a link or an anchor that leads nowhere, a name of the API that is not there.
docs: $(VENV)/.docs ## the site of the documentation, both languages, into build/site
	$(BIN)/python docs/site_pages.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: docs ## look at it: http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

format: $(VENV)/.dev ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pictures: $(VENV)/.dev $(VENV)/.demo-paddle ## every picture of the docs anew, or ARGS="flow failure"; needs root and sshd
	PYTHONPATH=src:tests $(BIN)/python -m pictures $(ARGS)

# The page of state machines, and the table of PaddleRec's keys, are written by the tests that read them.
RECORDED := tests/core/test_tables.py tests/rec/config/test_reference.py
reference: $(VENV)/.dev ## what is generated: docs/reference with its schemas, state machines, deploy/
	PYTHONPATH=docs $(BIN)/python -m reference_pages docs/reference
	$(BIN)/python -m paddock.operator.manifests --write deploy
	$(PYTEST) -q --record $(RECORDED)
	$(BIN)/python docs/chinese.py

bench: tools-real $(VENV)/.real ## ours beside torchrun, mpirun and paddle.distributed.launch
	$(BIN)/python -m benchmarks $(ARGS)

bench-ps: $(VENV)/.bench-ps ## the parameter server beside PaddlePaddle 2.6.2's (docs/benchmarks.md)
	$(BIN)/python -m benchmarks.ps $(ARGS)

bench-rec: $(VENV)/.bench-ps ## `paddock rec` and `paddock data` beside PaddleRec's way (docs/benchmarks.md)
	$(BIN)/python -m benchmarks.rec $(ARGS)

bench-operator: tools-cluster ## the operator on a real API server (docs/benchmarks.md)
	PYTHONPATH=tests $(BIN)/python -m benchmarks.operator $(ARGS)

# Twice from the same commit gives the same bytes: hatchling writes no times but the one it is given.
dist: $(VENV)/.dist ## the wheel and the sdist, as the package index takes them (CONTRIBUTING.md)
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python -m twine check --strict dist/*

clean: ## remove what make made; the next run installs again
	rm -rf $(VENV) .venv-peer log build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# ---------------------------------------------------------------------------------------- images

# make operator-image LOAD=kind, or minikube, k3d, k3s, ctr; or PUSH=registry.example/you/name:tag
TO := $(if $(LOAD),--load $(LOAD)) $(if $(PUSH),--push $(PUSH))
operator-image: ## the operator's image, by podman, docker or buildah; LOAD=kind puts it on its nodes
	@deploy/images/build.sh operator $(TO)

demo-image: ## the image of the examples, PaddlePaddle in it; LOAD=kind puts it on its nodes
	@deploy/images/build.sh demo $(TO)

# -------------------------------------------------------------------------------------- packages

$(VENV)/.python:
	@if [ -z "$(PYTHON)" ]; then \
	  echo "make: no Python >= 3.10 found. Try: apt-get install python3 python3-venv," >&2; \
	  echo "      or name one: make PYTHON=/path/to/python3.12 demo" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "make: $(PYTHON) is older than Python 3.10. Name another: make PYTHON=... demo" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make virtual environments." >&2; \
	  echo "      Try: apt-get install python3-venv" >&2; exit 1; }
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# What `pip install` needs the network for; said once, where it can fail.
define install
	@echo "== installing $(1) into $(VENV)"
	@$(PIP) $(2) || { echo "make: could not install $(1): the first run needs the network" \
	  "(or a pip configured to find the packages of constraints.txt)" >&2; exit 1; }
	@touch $@
endef

# With a framework of $(PYTHON) its own packages count, not those of constraints.txt.
$(FRAMEWORKS:%=$(VENV)/.demo-%): $(VENV)/.demo-%: $(VENV)/.python pyproject.toml constraints.txt
	@if "$(PYTHON)" .ci/lend $* $(VENV); then $(filter-out -c constraints.txt,$(PIP)) -e '.[$(SEEN)]' scikit-learn; \
	  else echo "== installing paddock and $* into $(VENV)"; $(PIP) -e '.[$*,$(SEEN)]' scikit-learn; fi || { \
	  echo "make: could not install $*: the first run needs the network" \
	  "(or a pip configured to find the packages of constraints.txt)" >&2; exit 1; }
	@[ $* = torch ] || $(BIN)/python -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || { \
	  echo "make: PaddlePaddle needs libgomp1, which is not here. Try: apt-get install libgomp1"; \
	  echo "      Until then this demo borrows the one in scikit-learn."; mkdir -p $(LENT); \
	  ln -sf "$(CURDIR)"/$(VENV)/lib/python3*/site-packages/scikit_learn.libs/libgomp-*.so* \
	    $(LENT)/libgomp.so.1; }
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	$(call install,paddock and the tools of the tests,-e '.[dev]')

$(VENV)/.docs: $(VENV)/.python pyproject.toml constraints.txt
	$(call install,what makes the site of the documentation,-e '.[docs]')

# All three frameworks live together in one environment. On Linux the torch of the public index
# brings its CUDA libraries (CONTRIBUTING.md has the sizes, and how to use a smaller build).
REAL_EXTRAS := dev,demo,torch,jax,mpi,ray,libraries,tools
$(VENV)/.real: $(VENV)/.python pyproject.toml constraints.txt
	$(call install,PaddlePaddle PyTorch JAX and mpi4py,-e '.[$(REAL_EXTRAS)]')
	@touch $(FRAMEWORKS:%=$(VENV)/.demo-%) $(VENV)/.dev

$(VENV)/.dist: $(VENV)/.dev
	$(call install,twine,twine)

# The peer has an environment of its own, .venv-peer, which the benchmark makes by itself.
PS_EXTRAS := ps,torch,yaml
$(VENV)/.bench-ps: $(VENV)/.python pyproject.toml constraints.txt
	$(call install,paddock with its parameter server and PyTorch,-e '.[$(PS_EXTRAS)]')

# command:package, for whatever Debian does not install by itself.
REAL_TOOLS := etcd:etcd-server etcdctl:etcd-client mpirun:openmpi-bin ip:iproute2 \
	iptables:iptables faketime:faketime unshare:util-linux openssl:openssl \
	sshd:openssh-server ssh:openssh-client slurmctld:slurmctld slurmd:slurmd srun:slurm-client \
	munged:munge chromium:chromium chromedriver:chromium-driver

tools-real:
	@missing=; for pair in $(REAL_TOOLS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${pair%%:*}" >/dev/null || \
	    missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ]; then \
	  echo "make: the real tests need programs that are not here." >&2; \
	  echo "      Try: apt-get install$$missing" >&2; exit 1; fi

CLUSTER_TOOLS := containerd:containerd runc:runc iptables:iptables ip:iproute2 \
	conntrack:conntrack ethtool:ethtool socat:socat debootstrap:debootstrap openssl:openssl \
	sysctl:procps /usr/lib/cni/ptp:containernetworking-plugins etcd:etcd-server \
	sshd:openssh-server buildah:buildah

# Kubernetes itself is compiled from Go modules, minutes the first time, and images are made from
# packages (tests/cluster/control). Both are kept outside of the clone, by what they are made from;
# the tests themselves need no network.
tools-cluster: $(VENV)/.dev
	@missing=; for pair in $(CLUSTER_TOOLS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${pair%%:*}" >/dev/null || \
	    missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ]; then \
	  echo "make: the cluster's tests need programs that are not here." >&2; \
	  echo "      Try: apt-get install --no-install-recommends$$missing" >&2; exit 1; fi
	@PYTHONPATH=tests $(BIN)/python -m cluster.control.build >/dev/null
	@[ "$$(id -u)" -ne 0 ] || PYTHONPATH=tests $(BIN)/python -m cluster.control.images >/dev/null
	@[ "$$(id -u)" -ne 0 ] || PYTHONPATH=tests $(BIN)/python -m cluster.control.built >/dev/null
