"""The kernels import only NumPy, JAX and optax: a machine with an accelerator may have no other packages."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

BARE = """
import importlib.metadata, sys

needs = {"numpy", "jax", "jaxlib", "ml_dtypes", "opt_einsum", "scipy", "optax", "absl"}
installed = {name for name, _ in importlib.metadata.packages_distributions().items()}
tried = []

class OnlyTheseThree:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in installed - needs - {"optim"} and top not in sys.stdlib_module_names:
            tried.append(name)
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, OnlyTheseThree())
assert "numba" in installed and "msgspec" in installed
try:
    import msgspec
except ModuleNotFoundError:
    tried.clear()
else:
    raise SystemExit("the block does not hold")

import pkgutil
from importlib import import_module

import jax.numpy as jnp
import optim.kernels
import optim.kernels.crbm, optim.kernels.hidden_markov, optim.kernels.k_means

# These don't even look for more.
heavy = {"numba", "pandas", "highspy", "pyomo", "cvxpy", "networkx", "matplotlib", "msgspec", "typer", "rich"}
assert not heavy & {name.partition(".")[0] for name in tried}, tried

import optim.kernels.parameter_server as server

for module in pkgutil.walk_packages(optim.kernels.__path__, "optim.kernels."):
    import_module(module.name)

mine = [name for name, module in sys.modules.items() if name.startswith("optim.") and module is not None]
rule = server.Sgd(learning_rate=0.5)
parameters, _ = server.apply_pushes(jnp.zeros(4), (), [jnp.ones(4)], jnp.full(1, 2.0), jnp.int32(0), optimiser=rule)
assert float(parameters[0]) == -0.5
layout = server.RowLayout(optimiser=server.Adagrad(learning_rate=0.5), width=2)
table = server.push_sparse(
    server.initial_rows(jnp.zeros((3, 2)), layout), jnp.array([1, 1]), jnp.ones((2, 2)), jnp.int32(0), layout=layout
)
assert float(table.slots[0][1, 0]) == 4.0
assert not {"optim.models", "optim.solvers"} & set(mine), mine
print("works")
"""


@pytest.mark.prove
def test_kernels_work_where_only_numpy_jax_and_optax_are_installed():
    done = subprocess.run([sys.executable, "-c", BARE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("works", 0), done.stderr


def test_every_public_name_says_what_it_does():
    import optim.kernels.parameter_server as server

    names = [
        name for name in vars(server) if not name.startswith("_") and name != "jaxtyping"
    ]  # put there where it looks on
    assert all(getattr(server, name).__doc__ for name in names)
