"""Optimisation toolkit for machine-learning clusters: solve, certify, verify, simulate, benchmark.

>>> import optim
>>> instance = optim.reference_instance("tiny-0")
>>> solution = optim.solve(instance, solver="online")
>>> optim.verify(instance, solution).is_ok
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optim import deadlines as deadlines
    from optim import plot as plot
    from optim import testing as testing
    from optim.core.driver import SolveInterrupted as SolveInterrupted
    from optim.core.errors import OptimError as OptimError
    from optim.core.policies import policy_names as policy_names
    from optim.core.solution import Certificate as Certificate
    from optim.core.solution import Solution as Solution
    from optim.core.solution import Verification as Verification
    from optim.models.admission.decision import AdmissionPlan as AdmissionPlan
    from optim.models.admission.instance import AdmissionInstance as AdmissionInstance
    from optim.models.auction.decision import AuctionPlan as AuctionPlan
    from optim.models.auction.instance import AuctionInstance as AuctionInstance
    from optim.models.bidding.decision import FootprintPlan as FootprintPlan
    from optim.models.bidding.instance import BiddingInstance as BiddingInstance
    from optim.models.cluster.run_file import load_run as load_run
    from optim.models.files import load as load
    from optim.models.files import load_solution as load_solution
    from optim.models.files import save as save
    from optim.models.files import save_solution as save_solution
    from optim.models.files import verify as verify
    from optim.models.programmes import export as export
    from optim.models.reference import reference_names as reference_names
    from optim.models.reference import reference_solution as reference_solution
    from optim.solvers.solve import solve as solve
    from optim.solvers.solve import solver_names as solver_names
    from optim.workloads.instances import generate as generate
    from optim.workloads.instances import reference_instance as reference_instance

    __version__: str

_HOME = {
    "AdmissionInstance": "optim.models.admission.instance",
    "AdmissionPlan": "optim.models.admission.decision",
    "AuctionInstance": "optim.models.auction.instance",
    "AuctionPlan": "optim.models.auction.decision",
    "BiddingInstance": "optim.models.bidding.instance",
    "Certificate": "optim.core.solution",
    "FootprintPlan": "optim.models.bidding.decision",
    "OptimError": "optim.core.errors",
    "Solution": "optim.core.solution",
    "SolveInterrupted": "optim.core.driver",
    "Verification": "optim.core.solution",
    "export": "optim.models.programmes",
    "generate": "optim.workloads.instances",
    "load": "optim.models.files",
    "load_run": "optim.models.cluster.run_file",
    "load_solution": "optim.models.files",
    "policy_names": "optim.core.policies",
    "reference_instance": "optim.workloads.instances",
    "reference_names": "optim.models.reference",
    "reference_solution": "optim.models.reference",
    "save": "optim.models.files",
    "save_solution": "optim.models.files",
    "solve": "optim.solvers.solve",
    "solver_names": "optim.solvers.solve",
    "verify": "optim.models.files",
}

_MODULES = ("deadlines", "plot", "testing")

__all__ = sorted((*_HOME, *_MODULES))  # noqa: PLE0605 - the tables above are the one list of public names

if not TYPE_CHECKING:  # type checkers see the imports above, and so find a misspelt name

    def __getattr__(name: str) -> Any:
        """Import a public name from its module on first use, so that `import optim` loads no heavy packages."""
        if name in _HOME:
            return getattr(import_module(_HOME[name]), name)
        if name in _MODULES:
            return import_module(f"optim.{name}")
        if name == "__version__":
            from optim.core.optional import installed_version

            return installed_version("mlcluster-optim") or "0+unknown"
        raise AttributeError(f"module 'optim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
