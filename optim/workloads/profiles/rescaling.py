"""The profile that a job would have had with slower workers, larger gradients or narrower links."""

from msgspec import UNSET, structs

from optim.workloads.profiles.document import Interval, JobProfile, Placement, ScalingPoint, SpeedFunction
from optim.workloads.profiles.job_profile import MEGABITS_THERE_AND_BACK

COMPUTED, CARRIED = {"synchronous": 0, "asynchronous": 0}, {"synchronous": 2, "asynchronous": 1}
"""Which coefficient of a speed function is of computing (M/w, or 1), and which of carrying gradients (w/p)."""


def rescaled(job: JobProfile, *, tau: float = 1.0, gradient: float = 1.0, bandwidth: float = 1.0) -> JobProfile:
    """Return the profile of the same job whose mini-batch takes `tau` times as long, and so on.

    Its work stays. Step times are taken apart into ``tau + carrying``: the first part grows with `tau`, the second with
    `gradient` over `bandwidth`; speed-ups, slowdowns by placement and losses follow. Starts, and what a step takes
    whatever it computes and carries, stay as they are.

    Parameters
    ----------
    job
        The job.
    tau, gradient, bandwidth
        Factors of tau, of e, and of all bandwidths; positive.
    """
    carrying = gradient / bandwidth
    own_tau, one = job.minibatch_s.value, _one_worker_s(job)
    new_one = own_tau * tau + (one - own_tau) * carrying

    def longer(seconds: float) -> float:
        """Return what a step of so many seconds takes now: its part beyond tau is carrying."""
        return own_tau * tau + max(0.0, seconds - own_tau) * carrying

    points = [
        ScalingPoint(
            workers=point.workers, speedup=point.workers * new_one / longer(point.workers * one / point.speedup)
        )
        for point in job.scaling
    ]
    slower = {place: max(1.0, longer(ratio * one) / new_one) for place, ratio in structs.asdict(job.placement).items()}
    return structs.replace(
        job,
        minibatch_s=job.minibatch_s.through(lambda value: value * tau),
        gradient_mb=job.gradient_mb * gradient,
        worker_mbps=job.worker_mbps.through(lambda value: value * bandwidth),
        ps_mbps=job.ps_mbps.through(lambda value: value * bandwidth),
        scaling=points,
        change_min=job.change_min * carrying,
        eviction_min=job.eviction_min * carrying,
        placement=Placement(**slower),
        speed=UNSET if job.speed is UNSET else _function(job.speed, tau, carrying),
        asynchronous=UNSET if job.asynchronous is UNSET else _function(job.asynchronous, tau, carrying),
    )


def _one_worker_s(job: JobProfile) -> float:
    """Return the seconds of one worker's mini-batch, ``tau + 2 e / b``."""
    return job.minibatch_s.value + MEGABITS_THERE_AND_BACK * job.gradient_mb / job.worker_mbps.value


def _function(function: SpeedFunction, tau: float, carrying: float) -> SpeedFunction:
    factors = {COMPUTED[function.kind]: tau, CARRIED[function.kind]: carrying}
    coefficients = [
        Interval(value=own.value * factor, low=own.low * factor, high=own.high * factor)
        for own, factor in ((own, factors.get(k, 1.0)) for k, own in enumerate(function.coefficients))
    ]
    return structs.replace(function, coefficients=coefficients)
