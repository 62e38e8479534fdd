"""Keep solutions as the best known of the references that they solve: ``make best FILES='heavy-0.json ...'``.

Of the shipped solution and a file, the better plan and the better bound with its proof remain, each from its origin; no
value gets worse. Solutions that don't verify are rejected.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from optim.core.errors import InvalidProblemError, OptimError
from optim.core.files import read_bytes
from optim.core.solution import Sense, Solution
from optim.models.catalogue import problem_of
from optim.models.files import load_solution, save_solution, verify
from optim.models.reference import SUFFIX, reference_instance, reference_solution, solved_reference_names

MODELS = Path(__file__).resolve().parents[2] / "optim" / "models"


def best_of(shipped: Solution, found: Solution) -> Solution:
    """Return the better plan with the better bound; statistics are those of the run that found the plan."""
    sign = 1.0 if shipped.sense is Sense.MAXIMISE else -1.0

    def earns(solution: Solution) -> float:
        return -float("inf") if solution.objective is None else sign * solution.objective

    def proves(solution: Solution) -> float:
        return float("inf") if solution.bound is None else sign * solution.bound

    plan = found if earns(found) > earns(shipped) else shipped
    bound = found if proves(found) < proves(shipped) else shipped
    if plan is bound:
        return plan
    return replace(plan, bound=bound.bound, dual=bound.dual, certificate=bound.certificate, stated={})


def keep(path: str | Path, models: Path = MODELS) -> str:
    """Keep the better parts of a file and the shipped solution; return a description of the change, in one line.

    Raises
    ------
    InvalidProblemError
        If the file is of no shipped instance, has no plan, or doesn't verify.
    """
    name = str(json.loads(read_bytes(path)).get("instance"))
    instance = reference_instance(name)
    found = load_solution(path, instance)
    if found.objective is None or found.bound is None:
        raise InvalidProblemError(f"{path}: has no plan or no bound; give a solution with both")
    shipped = reference_solution(name) if name in solved_reference_names() else None
    kept = found if shipped is None else best_of(shipped, found)
    for solution in (found, kept):
        checked = verify(instance, solution)
        if not checked.is_ok:
            raise InvalidProblemError(f"{path}: doesn't verify: {checked.violations[0]}")
    told = f"{name}: {kept.objective:.10g}, at most {kept.bound:.10g}"
    if kept is shipped:
        return f"{told}; nothing better in {path}"
    save_solution(kept, instance, models / problem_of(instance).name / "solutions" / f"{name}{SUFFIX}")
    before = "nothing" if shipped is None else f"{shipped.objective:.10g} and {shipped.bound:.10g}"
    return f"{told}; shipped before: {before}"


def main(paths: Sequence[str]) -> int:
    """Keep each file; return the number of rejected files."""
    refused = 0
    for path in paths:
        try:
            print(keep(path))
        except OptimError as error:
            refused += 1
            print(error, file=sys.stderr)
    return refused


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
