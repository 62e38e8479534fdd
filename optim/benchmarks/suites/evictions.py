"""The study `evictions`: how long an eviction table of a whole price history takes, beside plain frequencies."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.benchmarks.record import Record, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.status import PointStatus, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.bidding.eviction import EvictionTable, evictions_within, fit_evictions
from optim.models.bidding.price_history import HOUR_S, PriceHistory
from optim.solvers.solve import package_versions
from optim.workloads.bidding.generator import GeneratorOptions, history_for
from optim.workloads.bidding.instances import draw_instance

PROBLEM = "bidding"
SOLVER = "product-limit"
FULL = "full"
FULL_DAYS = 180.0

FREQUENCY_TOL = 0.02
"""Most that a probability may differ from the frequency among hours without a gap: censoring and order change little."""


@dataclass(frozen=True, kw_only=True)
class EvictionWork(AbstractWork):
    """Estimate the table of one history; the subject is a decision drawn from it."""

    def resolved_options(self) -> dict[str, Any]:
        """Return the history's complete options."""
        return plain(options_as_dict(build_options(GeneratorOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Read or draw prices, estimate, and compare with frequencies."""
        del stop, progress
        try:
            return self._measure()
        except Exception as error:  # one history that fails must not end the others
            return self.failed(describe_error(error))

    def _measure(self) -> Record:
        options = build_options(GeneratorOptions, self.options)
        begun = time.perf_counter()
        history = history_for(options, self.seed)
        built = time.perf_counter()
        table = fit_evictions(history)
        fitted = time.perf_counter()
        furthest = furthest_from_frequency(history, table)
        figures = {
            "deltas": len(table.deltas_micro),
            "days": (history.end_s - history.begin_s) / (24 * HOUR_S),
            "changes": sum(len(path) for path in history.paths),
            "mean_evicted": float(table.beta[:, :-1].mean()),
            "furthest": furthest,
        }
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **figures}},
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.COMPLETED.value,
            primal=PointStatus.FEASIBLE.value,
            objective=furthest,
            load=figures,
            seconds={
                "build": built - begun,
                "compile": 0.0,
                "solve": fitted - built,
                "verify": time.perf_counter() - fitted,
            },
            verified=furthest <= FREQUENCY_TOL,
            violations=[] if furthest <= FREQUENCY_TOL else [f"a probability is {furthest:.3f} off the frequency"],
            iterations=history.num_markets * (len(table.deltas_micro) + 1),
        )


def furthest_from_frequency(history: PriceHistory, table: EvictionTable) -> float:
    """Return the largest difference between the table and the plain frequency among hours that were recorded whole."""
    furthest = 0.0
    for m, path in enumerate(history.paths):
        start = np.arange(-(-int(path.time_s[0]) // 120) * 120, history.end_s - HOUR_S, 120, dtype=np.int64)
        for begin, end in history.gaps.tolist():
            start = start[(start + HOUR_S <= begin) | (start >= end)]
        for d, delta in enumerate(table.deltas_micro.tolist()):
            if len(start):
                furthest = max(furthest, abs(evictions_within(path, start, delta)[0] - float(table.beta[m, d])))
    return furthest


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield one table for each seed.

    Raises
    ------
    InvalidOptionError
        If an option isn't one of `GeneratorOptions`.
    """
    given = {**({} if request.size == SMALL else {"days": FULL_DAYS}), **request.options}
    options = build_options(GeneratorOptions, given)
    for seed in request.seeds:
        history = history_for(options, seed)
        subject = Subject(draw_instance(history, fit_evictions(history), options, seed))
        for solver in request.solvers or (SOLVER,):
            if solver != SOLVER:
                reason = "the study estimates tables, and solves nothing"
                yield Skipped(suite=SPEC.name, instance=subject.name, solver=solver, reason=reason)
                continue
            yield EvictionWork(suite=SPEC.name, subject=subject, solver=SOLVER, seed=seed, options=given)


SPEC = register_suite(
    BenchSpec(
        name="evictions",
        problem=PROBLEM,
        summary="eviction tables of whole price histories (objective: largest distance from plain frequencies)",
        build=build,
        sizes=(SMALL, FULL),
        columns=("markets", "deltas", "days", "changes", "mean_evicted"),
    )
)
