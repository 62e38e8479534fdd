"""What a profile's own figures say against it."""

from msgspec import UNSET

from optim.workloads.profiles.document import JobProfile, ProfileDocument
from optim.workloads.profiles.timing import MOST_NOISE

MOST_ERROR = 0.10
"""Median relative error of points predicted from all others beyond which a fit tells little."""


def fit_errors(job: JobProfile) -> dict[str, float]:
    """Return the median error of points predicted from the others, of each fit that the profile has."""
    fits = {"synchronous speed": job.speed, "asynchronous speed": job.asynchronous, "update cost": job.update}
    return {name: fit.error for name, fit in fits.items() if fit is not UNSET and fit.error is not UNSET}


def doubts(profiles: ProfileDocument) -> list[str]:
    """Return a line for each figure that shouldn't be trusted, with what to do."""
    found = []
    machine = profiles.machine
    if machine is not UNSET and machine.noise > MOST_NOISE:
        found.append(
            f"measured in noise: equal work took times that differ by {machine.noise:.0%}, at most {MOST_NOISE:.0%} gives a "
            "profile; measure again on an idle machine"
        )
    for job in profiles.jobs:
        for name, error in fit_errors(job).items():
            if error > MOST_ERROR:
                more = (
                    "a larger --scale or --option repeats=N"
                    if job.usage is UNSET
                    else "more steps or --option rounds=N"
                )
                found.append(
                    f"{job.name}: the {name} misses points that it is not fitted to by {error:.0%} (median), more than "
                    f"{MOST_ERROR:.0%}; measure on a quieter machine, or with {more}"
                )
        for name, told in _untold(job).items():
            found.append(f"{job.name}: measurements of the {name} can't tell {told}; it is counted there")
    return found


def _untold(job: JobProfile) -> dict[str, str]:
    """Return what each fit of a profile can't tell apart."""
    fits = {"synchronous speed": job.speed, "asynchronous speed": job.asynchronous, "update cost": job.update}
    return {name: ", ".join(fit.untold) for name, fit in fits.items() if fit is not UNSET and fit.untold}
