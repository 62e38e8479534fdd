"""Compile the loops that most tests run, once before several test processes start: `python -m tests.support.warm_up PART`."""

import sys
from collections.abc import Iterator

from optim.core.errors import UnsupportedProblemError
from optim.core.stopping import IterationLimit
from optim.models.reference import reference_instance
from optim.solvers.solve import solve, solvers_of
from optim.workloads.admission.stress import STRESS_INSTANCES
from tests.support.auction.builders import auction, linear

PARTS = ("own", "shared")
"""Compiled side by side: clusters with servers of either side's own, and shared servers with the auctions."""
ROUNDS = 10


def instances(part: str) -> Iterator[tuple[str, object]]:
    """Yield problems and instances whose solves between them compile the part."""
    if part == "own":
        yield "admission", reference_instance("tiny-0")
    else:
        yield "admission", STRESS_INSTANCES["shared-pair"]()
        yield "auction", reference_instance("auction-tiny-0")
        yield "auction", auction([4, 4], *[linear(4, 8.0, "slot")] * 3)  # one that the counting programme supports


def main(part: str) -> None:
    """Solve the part's instances by every solver that supports them."""
    for problem, instance in instances(part):
        for solver in solvers_of(problem):
            try:
                solve(instance, solver.name, stop=IterationLimit(ROUNDS))
            except UnsupportedProblemError:
                continue


if __name__ == "__main__":
    main(sys.argv[1])
