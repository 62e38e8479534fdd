"""A third party's package: importing it registers its solvers."""

from dummy_solvers import DUMMIES

from optim.core.registry import register

for name, solver in DUMMIES.items():
    register(name, problem="admission")(solver)
