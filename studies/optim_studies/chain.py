"""The study `chain`: sensitivity of the solutions of all three problems to the job measurements.

Each row is one problem and one change of the profiles: mini-batch times x 10, gradient bytes x 10, bandwidths / 10, or a
machine 1000 times slower (mini-batch times x 1000 and bandwidths / 1000). Everything else is the same: arrivals,
utilities, servers, prices, work, and each job's random number. `objective` and `unchanged` are the objectives with changed
and unchanged profiles: utility of the admitted jobs; US dollars for the work of a job by the cheapest portfolio found, or
none if no portfolio does any work; and an auction's welfare, the sum of ``-log rho`` over all apps, including apps slowed
down by their current allocations. `sign` is the sign of the difference.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import UNSET, structs

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import check_in
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.files import verify
from optim.profiling.document import JobProfile, ProfileDocument
from optim.profiling.job_profile import rescaled
from optim.solvers.solve import solve
from optim.workloads.admission.generator import GeneratorOptions as AdmissionOptions
from optim.workloads.auction.generator import GeneratorOptions as AuctionOptions
from optim.workloads.bidding.generator import GeneratorOptions as BiddingOptions
from optim.workloads.instances import PUBLISHED, find_profiles
from optim.workloads.profiles import profiled_instance

CHANGES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "tau x 10": MappingProxyType({"tau": 10.0}),
        "e x 10": MappingProxyType({"gradient": 10.0}),
        "bandwidth / 10": MappingProxyType({"bandwidth": 0.1}),
        "machine / 1000": MappingProxyType({"tau": 1000.0, "bandwidth": 1e-3}),
    }
)
"""Factors on the measurements, by name."""

SOLVERS: Mapping[str, str] = MappingProxyType(
    {"admission": "branch-and-price", "auction": "exact", "bidding": "exchange"}
)
SAME = 1e-9
"""Relative difference up to which two objectives count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions:
    """Sizes of the study.

    Parameters
    ----------
    profile
        A file of job profiles, or ``published``.
    jobs, slots, servers
        Sizes of an admission instance; it has equal numbers of worker servers and parameter-server hosts.
    apps, gpus
        Sizes of an auction.
    auctions
        Number of auctions over which the welfare is averaged.
    seconds
        Time limit in seconds for solving an admission instance; small instances are solved much earlier.
    """

    profile: str = PUBLISHED
    jobs: int = 12
    slots: int = 16
    servers: int = 4
    apps: int = 8
    gpus: int = 32
    auctions: int = 4
    seconds: float = 60.0

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "jobs", "slots", "servers", "apps", "gpus", "auctions")
        check_in("(0, inf)", self, "seconds")


SIZES: Mapping[str, ChainOptions] = MappingProxyType(
    {SMALL: ChainOptions(), FULL: ChainOptions(jobs=40, slots=30, servers=6, apps=16, gpus=64, auctions=20)}
)


def changed(profiles: ProfileDocument, change: str) -> ProfileDocument:
    """Return the profiles of the same jobs under a change of `CHANGES`."""
    return structs.replace(profiles, jobs=[rescaled(job, **CHANGES[change]) for job in profiles.jobs])


def admission_answer(profiles: ProfileDocument, options: ChainOptions, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Return the utility of the admitted jobs and their ids, with the checker's errors."""
    generator_options = AdmissionOptions(
        num_jobs=options.jobs,
        num_slots=options.slots,
        num_worker_servers=options.servers,
        num_ps_servers=options.servers,
        slot_s=profiles.slot_s,
    )
    instance = profiled_instance("admission", profiles, generator_options, seed)
    solution = solve(instance, SOLVERS["admission"], seed=seed, time_limit_s=options.seconds)
    admitted = [] if solution.decision is None else [instance.jobs.ids[i] for i in solution.decision.admitted.tolist()]
    answer = {
        "objective": solution.objective or 0.0,
        "bound": solution.bound,
        "admitted": len(admitted),
        "which": admitted,
    }
    return answer, [str(row) for row in verify(instance, solution).violations]


def bidding_answer(profiles: ProfileDocument, options: ChainOptions, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Return the US dollars of a job's work by the cheapest portfolio found, averaged over all job types."""
    total, problems, footprints = 0.0, [], []
    for job in profiles.jobs:
        alone = structs.replace(profiles, jobs=[job])
        instance = profiled_instance("bidding", alone, BiddingOptions(num_types=2, num_zones=2, days=3), seed)
        solution = solve(instance, SOLVERS["bidding"], seed=seed)
        problems += [str(row) for row in verify(instance, solution).violations]
        usd = math.inf if solution.objective is None else solution.objective
        total += usd * one_worker_h(job)
        footprints.append(usd)
    number = len(profiles.jobs)
    return {"objective": total / number, "usd_per_work": sum(footprints) / number}, problems


def one_worker_h(job: JobProfile) -> float:
    """Return the hours in which one worker does a job's work; one hour if the profile states no work."""
    if job.epochs is UNSET or job.minibatches is UNSET:
        return 1.0
    minibatch_s = job.minibatch_s.value + 16.0 * job.gradient_mb / job.worker_mbps.value
    return job.epochs * job.minibatches * minibatch_s / 3600.0


def auction_answer(profiles: ProfileDocument, options: ChainOptions, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Return the mean welfare of some auctions."""
    generator_options = AuctionOptions(
        num_apps=options.apps, num_gpus=options.gpus, num_machines=max(1, options.gpus // 4)
    )
    welfare, problems = [], []
    for number in range(options.auctions):
        instance = profiled_instance("auction", profiles, generator_options, seed * options.auctions + number)
        solution = solve(instance, SOLVERS["auction"], seed=seed)
        problems += [str(row) for row in verify(instance, solution).violations]
        # A solution's objective is relative to the empty bundles, whose value is lower for larger slowdowns.
        welfare.append((solution.objective or 0.0) - float(np.log(instance.apps.empty_rho).sum()))
    return {"objective": sum(welfare) / len(welfare)}, problems


Answer = Callable[[ProfileDocument, ChainOptions, int], tuple[dict[str, Any], list[str]]]
ANSWERS: Mapping[str, Answer] = MappingProxyType(
    {"admission": admission_answer, "bidding": bidding_answer, "auction": auction_answer}
)


@dataclass(frozen=True, kw_only=True)
class ChainWork(AbstractStudy):
    """Solve one problem with the unchanged and the changed profiles."""

    options_type = ChainOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Solve twice, and compare."""
        problem, change = str(self.labels["problem"]), str(self.labels["change"])
        profiles, clock = find_profiles(self.chosen.profile), PhaseClock()
        answers, problems = [], []
        progress.start(f"{problem}: {change}", 2)
        for number, profile_set in enumerate((profiles, changed(profiles, change))):
            with clock.phase("solve"):
                answer, violations = ANSWERS[problem](profile_set, self.chosen, self.seed)
            answers.append(answer)
            problems += violations
            progress.update(number + 1)
            if stop(SolveState(elapsed_s=clock.elapsed_s, iterations=number + 1)) is not None:
                break
        progress.finish()
        return Finding(
            findings=_compared(answers) if len(answers) > 1 else {},
            seconds=clock.seconds,
            problems=problems,
            iterations=len(answers),
            is_whole=len(answers) == 2,
        )


def _compared(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return both objectives, the sign of their difference, and the jobs whose admission changed."""
    before, after = answers
    first, second = before["objective"], after["objective"]
    same = math.isclose(first, second, rel_tol=SAME)
    comparison = {"objective": _finite(second), "unchanged": _finite(first)}
    comparison |= {"sign": 0 if same else 1 if second > first else -1}
    comparison |= {name: _finite(after[name]) for name in ("admitted", "usd_per_work") if name in after}
    if "which" in after:
        comparison |= {"admitted_unchanged": before["admitted"]}
        comparison |= {"others_admitted": len(set(after["which"]) ^ set(before["which"])), "bound": after["bound"]}
    return comparison


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _subjects(options: ChainOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    del seed
    for problem in ANSWERS:
        for change in CHANGES:
            name = f"{problem}-{change.replace(' ', '')}"
            yield (
                StudySubject(name=name, topic="profiles", drawn_from=(problem, change, replace(options))),
                {"problem": problem, "change": change},
            )


SPEC = register_study(
    "chain",
    "profiles",
    "how results of admission, bidding and auctions depend on mini-batch time, gradient size and bandwidth",
    kind=ChainWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("solved",),
    columns=("unchanged", "objective", "sign", "admitted_unchanged", "admitted", "others_admitted"),
)
