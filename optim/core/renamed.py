"""Public names of earlier releases: the error for such a name gives the current name.

The release after a renaming drops the entry. Fields of files are not listed here, because readers accept earlier
versions of their formats.
"""

from collections.abc import Collection
from typing import Final

RENAMED: Final = {
    # policies
    "analogs": "knn",
    "analogs-phases": "knn-phases",
    "clairvoyant-harmless": "oracle-zero-violation",
    # options of solvers, policies, generators and studies; keyword arguments
    "end_heat": "end_temperature",
    "held_share": "allocated_share",
    "largest_ruin": "max_destroyed",
    "lasting": "survival",
    "least_gain": "min_gain",
    "least_gpus": "min_gpus",
    "least_probability": "min_probability",
    "least_workers": "min_workers",
    "most_gpus": "max_gpus",
    "most_jobs": "max_jobs",
    "most_points": "max_points",
    "most_retries": "max_retries",
    "most_servers": "max_servers",
    "most_shift": "max_shift",
    "most_slowdown": "max_slowdown",
    "most_waiting": "max_waiting",
    "most_workers": "max_workers",
    "one_bid_a_market": "one_bid_per_market",
    "start_heat": "start_temperature",
    "tries": "attempts",
    # solvers replaced by another
    "batched": "greedy",
    "convex": "greedy",
    "count-dp": "exact",
    "plain-milp": "dinkelbach",
    "price-and-branch": "branch-and-price",
    "risk-averse": "exchange",
    # container policies replaced by a simpler one
    **dict.fromkeys(("ewma-2", "ewma-5", "ewma-10"), "holt"),
    **dict.fromkeys(("quantile-90", "quantile-99"), "quantile-95"),
    **dict.fromkeys(("vpa-warm", "vpa-no-floor"), "vpa"),
    "autopilot-serving": "autopilot",
    **dict.fromkeys(("boosted-quantiles", "boosted-quantiles-phases"), "forest"),
    **dict.fromkeys(("phase-rule-scaled", "phase-rule-limit"), "phase-rule"),
    **dict.fromkeys(("phase-max", "phase-shift", "phase-markov", "phase-semi-markov"), "phase-price"),
}
"""Current name or replacement of former policies, solvers and options."""


def present_name(former: str, known: Collection[str]) -> str | None:
    """Return the current name of a renamed name, None if it is not renamed or its current name is not in `known`.

    Examples
    --------
    >>> present_name("most_jobs", ["max_jobs", "quantum_s"])
    'max_jobs'
    """
    name = RENAMED.get(former)
    return name if name in known else None
