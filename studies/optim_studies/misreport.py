"""The study `misreport`: frequency and gain of profitable lies under each payment rule.

Auctions are small enough to enumerate all divisions of the GPUs, many tables at a time. The enumeration shares no code
with the solvers, and checks their payments.

References
----------
Cole, Gkatzelis, Goel, EC 2013, DOI 10.1145/2492002.2482582: truthful for divisible goods and homogeneous values;
indivisible GPUs and elapsed time are outside its assumptions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.models.auction.data import EmptyValue
from optim.models.auction.decision import PaymentRule
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.payment import grant_size
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate

PROFIT_TOL = 1e-9
"""Smallest relative gain that counts as profitable: below it is rounding."""

SPREAD = 0.8
"""Standard deviation of the log factors by which a lie changes the values in an app's bids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MisreportOptions:
    """Sizes of the study.

    Parameters
    ----------
    instances, misreports
        Number of auctions, and number of lies tried in each.
    apps, gpus
        Number of apps per auction, and of GPUs of its single machine.
    """

    instances: int = 60
    misreports: int = 120
    apps: int = 3
    gpus: int = 6

    def __post_init__(self) -> None:
        for name, least, most in (("instances", 1, 10**6), ("misreports", 1, 10**6), ("apps", 2, 5), ("gpus", 1, 12)):
            if not least <= getattr(self, name) <= most:
                raise InvalidOptionError(f"{name} must be in [{least}, {most}], got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """Outcomes of the auctions of many value tables.

    Parameters
    ----------
    bundle
        Shape (tables, apps): number of GPUs awarded.
    share
        Shape (tables, apps): share c of its bundle that an app keeps after payment.
    is_contended
        Shape (tables,): whether an app gets no GPUs in the optimum or in one of the optima without another app.
    """

    bundle: IntArray
    share: FloatArray
    is_contended: np.ndarray


def value_tables(instance: AuctionInstance, gpus: int) -> FloatArray:
    """Return V_i(k), k = 0, ..., gpus, of an auction of one machine: the best bid for at most k GPUs."""
    table = np.empty((instance.num_apps, gpus + 1))
    table[:] = 1.0 / instance.apps.empty_rho[:, None]
    for app, k, rho in zip(
        instance.bids.app.tolist(), instance.bids.gpus.tolist(), instance.bids.rho.tolist(), strict=True
    ):
        table[app, k:] = np.maximum(table[app, k:], 1.0 / rho)
    return table


def divide(values: FloatArray, *, is_zero: bool) -> Outcomes:
    """Run the auction on tables V, shape (tables, apps, GPUs + 1), by enumerating all divisions of the GPUs.

    Parameters
    ----------
    values
        Values; with `is_zero` relative to the value without GPUs.
    is_zero
        Whether an empty bundle has value 0, and as many apps as possible are served first.
    """
    tables, apps, width = values.shape
    splits = np.array([s for s in product(range(width), repeat=apps) if sum(s) < width], dtype=np.int64)
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    picked = np.stack([logs[:, i, splits[:, i]] for i in range(apps)], axis=2)  # (tables, splits, apps)
    served = np.isfinite(picked)
    value = np.where(served, picked, 0.0) + (_STEP * served if is_zero else 0.0)
    total = value.sum(axis=2)
    best = total.argmax(axis=1)
    row = np.arange(tables)
    share, contended = np.empty((tables, apps)), ~served[row, best].all(axis=1)
    for i in range(apps):
        others = total - value[:, :, i]
        alone = np.where(splits[:, i] == 0, others, -np.inf)
        without = alone.argmax(axis=1)
        share[:, i] = np.exp(np.minimum(0.0, others[row, best] - alone[row, without]))
        rest = np.delete(served[row, without], i, axis=1)
        contended |= ~rest.all(axis=1)
    return Outcomes(bundle=splits[best], share=share, is_contended=contended)


_STEP = 800.0
"""Bonus per served app, which outweighs all values; ``exp(-_STEP)`` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MisreportResult:
    """Results under one rule.

    Parameters
    ----------
    profitable
        Fraction of the auctions with a profitable lie.
    best_gain, mean_gain
        Maximum and mean relative gain of the best lies, over those auctions.
    leftover
        Fraction of the awarded GPUs left over by truthful payments.
    least_share
        Minimum share c.
    contended
        Fraction of the auctions with an app without GPUs.
    lies
        Number of lies tried.
    """

    profitable: float
    best_gain: float
    mean_gain: float
    leftover: float
    least_share: float
    contended: float
    lies: int


def study(
    instances: "list[AuctionInstance]", rule: PaymentRule, options: MisreportOptions, rng: np.random.Generator
) -> MisreportResult:
    """Search for profitable lies of the first app of each auction; gains are measured by its true values.

    Under the lottery, an app's value is its expectation, relative to the value without GPUs. Under the other rules it
    is the true value of the GPUs after payment.
    """
    is_zero = rule is PaymentRule.LOTTERY
    gains, withheld, least, contended = [], [], 1.0, 0
    for instance in instances:
        truth = value_tables(instance, options.gpus)
        if is_zero:
            truth = truth - truth[:, :1]
        lies = np.repeat(truth[None], options.misreports + 1, axis=0)
        lies[1:, 0, 1:] *= np.exp(SPREAD * rng.standard_normal((options.misreports, options.gpus)))
        lies[1:, 0] = np.maximum.accumulate(lies[1:, 0], axis=1)
        outcomes = divide(lies, is_zero=is_zero)
        value = _true_worth(truth[0], outcomes.bundle[:, 0], outcomes.share[:, 0], rule)
        base = max(float(value[0]), 1e-300)
        gains.append(max(0.0, float(value[1:].max()) / base - 1.0) if value[0] > 0 else float(value[1:].max() > 0))
        granted = [
            _granted_gpus(rule, float(c), int(b)) for c, b in zip(outcomes.share[0], outcomes.bundle[0], strict=True)
        ]
        withheld.append(1.0 - sum(granted) / max(1, int(outcomes.bundle[0].sum())))
        least = min(least, float(outcomes.share[0].min()))
        contended += int(outcomes.is_contended[0])
    paid = [gain for gain in gains if gain > PROFIT_TOL]
    return MisreportResult(
        profitable=len(paid) / len(gains),
        best_gain=max(paid, default=0.0),
        mean_gain=float(np.mean(paid)) if paid else 0.0,
        leftover=float(np.mean(withheld)),
        least_share=least,
        contended=contended / len(gains),
        lies=len(gains) * options.misreports,
    )


def _true_worth(truth: FloatArray, bundle: IntArray, share: FloatArray, rule: PaymentRule) -> FloatArray:
    if rule is PaymentRule.LOTTERY:
        return np.asarray(share * truth[bundle])
    granted = [grant_size(rule, float(c), int(b)) for c, b in zip(share, bundle, strict=True)]
    return np.asarray(truth[np.array(granted, dtype=np.int64)])


def _granted_gpus(rule: PaymentRule, share: float, bundle: int) -> float:
    """Return the number of GPUs after payment; under the lottery the expected number."""
    return share * bundle if rule is PaymentRule.LOTTERY else float(grant_size(rule, share, bundle))


COMPARED = 5
"""Number of auctions whose payments are compared with those of the exact solver."""

SIZES: Mapping[str, MisreportOptions] = MappingProxyType(
    {SMALL: MisreportOptions(), FULL: MisreportOptions(instances=300)}
)


@dataclass(frozen=True, kw_only=True)
class MisreportWork(AbstractStudy):
    """Search for lies under one payment rule (label `rule`)."""

    options_type = MisreportOptions
    is_stoppable = False

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Draw the auctions, search, and compare some payments with the exact solver's."""
        del stop
        options, rule = self.chosen, PaymentRule(str(self.labels["rule"]))
        clock = PhaseClock()
        with clock.phase("build"):
            instances = [draw(options, self.seed * options.instances + k) for k in range(options.instances)]
        progress.start(f"misreports under {rule}", None)
        with clock.phase("solve"):
            finding = study(instances, rule, options, np.random.default_rng(self.seed))
        progress.finish()
        with clock.phase("verify"):
            problems = [text for instance in instances[:COMPARED] for text in disagreements(instance, rule, options)]
        return Finding(
            findings=options_as_dict(finding),
            seconds=clock.seconds,
            problems=problems,
            iterations=finding.lies,
        )


def draw(options: MisreportOptions, seed: int) -> AuctionInstance:
    """Draw an auction of one machine whose apps take any number of GPUs."""
    return generate(
        GeneratorOptions(num_apps=options.apps, num_gpus=options.gpus, num_machines=1, gangs="elastic"), seed
    )


def disagreements(instance: AuctionInstance, rule: PaymentRule, options: MisreportOptions) -> list[str]:
    """Return differences between the shares of enumeration and exact solver; none if they choose different best bundles."""
    is_zero = rule is PaymentRule.LOTTERY
    convention = EmptyValue.ZERO if is_zero else EmptyValue.POSITIVE
    plan = solve(replace(instance, empty_value=convention), "exact", options={"payments": "closed"}).decision
    table = value_tables(instance, options.gpus)
    outcomes = divide((table - table[:, :1] if is_zero else table)[None], is_zero=is_zero)
    if plan.awarded_gpus(options.apps).tolist() != outcomes.bundle[0].tolist():
        return []
    gap = float(np.abs(plan.share_high - outcomes.share[0]).max())
    return [f"{instance.name}: shares differ by {gap:.3g}"] if gap > 1e-6 else []


def _subjects(options: MisreportOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    sizes = {"apps": options.apps, "gpus": options.gpus, "machines": 1}
    name = f"auctions-{options.instances}-{seed}"
    for rule in PaymentRule:
        subject = StudySubject(name=name, topic="auction", drawn_from=(options.apps, options.gpus), parameters=sizes)
        yield subject, {"rule": rule.value}


SPEC = register_study(
    "misreport",
    "auction",
    "how often and how much a lie pays under each payment rule (profitable: share of auctions)",
    kind=MisreportWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("enumeration",),
    others="the study goes through all divisions itself",
    columns=("rule", "profitable", "best_gain", "mean_gain", "leftover", "least_share"),
)
