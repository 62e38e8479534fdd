"""Public names of earlier releases: an unknown name that stands here gets an error that tells the present one.

The table is dropped in the release after the one that renames. Fields of files aren't here: each format's reader takes its
earlier versions.
"""

from collections.abc import Collection
from typing import Final

RENAMED: Final = {
    # policies
    "analogs": "knn",
    "analogs-phases": "knn-phases",
    "clairvoyant-harmless": "oracle-zero-violation",
    # options of solvers and policies
    "bounds": "price_range_source",
    "end_heat": "end_temperature",
    "largest_ruin": "max_destroyed",
    "least_gain": "min_gain",
    "most_jobs": "max_jobs",
    "most_slowdown": "max_slowdown",
    "start_heat": "start_temperature",
    "tries": "attempts",
    # options of the command line
    "--most-shift": "--max-shift",
}
"""The present name by the former one: policies, options of solvers and policies, options of the command line."""


def present_name(former: str, known: Collection[str]) -> str | None:
    """Return what a name is called now, None if it isn't renamed or the present name isn't among those known here.

    Examples
    --------
    >>> present_name("most_jobs", ["max_jobs", "quantum_s"])
    'max_jobs'
    """
    name = RENAMED.get(former)
    return name if name in known else None
