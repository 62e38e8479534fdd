"""What the counters of a solution of an admission problem can be, those that can't be recounted."""

import math
from collections.abc import Mapping
from typing import Any

from optim.core.counters import CountRange
from optim.core.verification import Violation, violation
from optim.models.admission.check.facts import Facts
from optim.models.admission.proof import TreeProof

OF_THE_WORK = (
    *("columns", "moves", "rounds", "schedules", "cuts", "unsplittable", "chosen", "newton_steps", "saddle_steps"),
    *("variables", "simplex_iterations", "programmes", "confined", "fallbacks", "out_of_time", "workers_not_placed"),
    *("days", "resolves", "lost_worker_slots", "nodes"),
)
"""Counts of a solver's own work."""

LP_TOL = 1e-6
"""By how much an LP solved to a tolerance may fall short of its range, as a share."""


def ranges_of(facts: Facts, admitted: int, proof: Any) -> dict[str, CountRange]:
    """Return the range of each counter, given how many jobs the plan admits, and the proof.

    A master's value is that of plans, mixed: no job earns more in it than at its best.
    """
    jobs = len(facts.jobs)
    worth = math.fsum(max(0.0, max(job.worth, default=0.0)) for job in facts.jobs)
    earned = CountRange(low=-LP_TOL, high=worth * (1 + LP_TOL) + LP_TOL)
    leaves = sum(node.branch is None for node in proof.nodes) if isinstance(proof, TreeProof) else math.inf
    return {
        **CountRange.each_whole(OF_THE_WORK),
        **CountRange.each_whole(("refused", "unfinished", "late", "never_started"), jobs - admitted),
        **CountRange.each_whole(("promised",), jobs),
        **CountRange.each_whole(("completed_on_standby",), admitted),
        **CountRange.each_whole(("open",), leaves),
        **dict.fromkeys(("master", "guard_earned"), earned),
        **dict.fromkeys(("tight_rows", "refused_jobs"), CountRange(low=-LP_TOL, high=1.0 + LP_TOL)),
        **dict.fromkeys(("running_dual", "largest_step_ratio", "resolve_ms", "resolve_max_ms"), CountRange()),
        "lp_gap": CountRange(low=-LP_TOL),
    }


def check_jobs_counted(facts: Facts, admitted: int, stated: Mapping[str, float]) -> list[Violation]:
    """Check that jobs that ran for nothing and those that never ran are all but the admitted ones, and who is late ran."""
    unfinished, others = stated.get("unfinished"), len(facts.jobs) - admitted
    if unfinished is None:
        return []
    found = []
    if unfinished + stated.get("never_started", others - unfinished) != others:
        text = f"unfinished and never_started must add up to the {others} jobs that aren't admitted"
        found.append(violation("counts", text, where="unfinished"))
    if stated.get("late", 0.0) > unfinished:
        found.append(violation("counts", f"late must be at most unfinished, {unfinished:g}", where="late"))
    return found
