"""All compiled loops that a solve runs are compiled before its clock starts."""

import subprocess
import sys

SCRIPT = """
import sys
from optim.models.reference import reference_instance
from optim.solvers.auction.settlement import compile_loops
from optim.solvers.solve import solve, solver_named

def signatures():
    modules = [module for name, module in sys.modules.items() if name.startswith("optim.solvers.auction.")]
    found = [one for module in modules for one in vars(module).values() if hasattr(one, "py_func")]
    return {f"{loop.py_func.__module__}.{loop.py_func.__qualname__}": len(loop.signatures) for loop in found}

solver_named("auction", "exact")
compile_loops()
before = signatures()
for instance in ("auction-tiny-0", "auction-named-0", "auction-slots-0"):
    for solver in ("exact", "greedy"):
        solve(reference_instance(instance), solver)
after = signatures()
assert len(after) > 10, after
assert {name: before.get(name, 0) for name in after} == after, (before, after)
assert max(after.values()) == 1, after
"""


def test_after_warming_up_no_loop_is_compiled_or_loaded():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
