"""A plan beside the packing LP's bound, as a solution with its certificate."""

from collections.abc import Mapping
from typing import Any

from optim.core.certificate import Certificate
from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.options import options_as_dict
from optim.core.registry import Solver
from optim.core.solution import Solution, Stats, relative_gap
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.models.admission.instance import AdmissionInstance
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.packing.packing_lp import PackingResult
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.dual_points import bound_certificate

OPTIMALITY_TOL = 1e-6
"""Relative gap at which a plan counts as proven optimal."""


def relaxed_solution(
    solver: Solver,
    instance: AdmissionInstance,
    plan: AdmissionPlan,
    relaxed: PackingResult,
    rows: CapacityRows,
    *,
    termination: Termination,
    iterations: int,
    counts: Mapping[str, float],
    options: Any,
    seed: int,
    clock: PhaseClock,
) -> Solution:
    """Return the solution; optimal if the plan attains the bound."""
    objective, bound = plan.objective(instance), relaxed.point.bound
    gap = relative_gap(objective, bound, Sense.MAXIMISE)
    certificate = bound_certificate(rows, relaxed.point)
    if gap is not None and gap <= OPTIMALITY_TOL:
        termination = Termination.OPTIMAL
        certificate = Certificate(
            kind=CertificateKind.OPTIMALITY,
            statement=f"the plan attains the bound {bound:.9g} of the packing LP's dual to {OPTIMALITY_TOL:g}",
            proof=certificate.proof,
        )
    return Solution(
        problem=solver.problem,
        instance=instance.name,
        solver=solver.name,
        sense=Sense.MAXIMISE,
        termination=termination,
        primal=PointStatus.FEASIBLE,
        dual=PointStatus.FEASIBLE,
        decision=plan,
        objective=objective,
        bound=bound,
        certificate=certificate,
        seed=seed,
        options=options_as_dict(options),
        stats=Stats(
            seconds=clock.seconds,
            iterations=iterations,
            memory_mb=peak_memory_mb(),
            counts={
                "master": relaxed.master,
                "lp_gap": relaxed.gap,
                "columns": float(len(relaxed.pool)),
                "admitted": float(len(plan.admitted)),
                **counts,
            },
        ),
    )
