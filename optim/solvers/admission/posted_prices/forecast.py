"""Prices from earlier days: the sample-average packing LP, solved by column generation.

The jobs of all days share one cluster; its capacities are counted once per day. The dual of this LP,

    min over p >= 0 of  days * fill * b . p + sum over all jobs of max(0, max over schedules of value - p . use),

is at fill = 1 the sum over the days of the bounds that p proves, so its solution is best on average. But the LP packs
fractions of jobs into classes. Single servers filled with integral jobs in order of arrival reach a lower utilisation, so
prices of an LP with less capacity earn more. Prices learned on days 1 to 4 of the shipped histories and posted on days 5 to
8 earned more than prices with a fill of 1, by:

| fill | light | medium | heavy |
|---|---|---|---|
| 0.7 | 1.0 % | 1.1 % | 6.2 % |
| 0.55 | 3.1 % | 1.0 % | 3.8 % |

References
----------
Talluri, van Ryzin, "An analysis of bid-price controls for network revenue management", 1998,
DOI 10.1287/mnsc.44.11.1577. Agrawal, Wang, Ye, "A dynamic near-optimal algorithm for online linear programming", 2014,
DOI 10.1287/opre.2014.1289.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.driver import Monitor
from optim.core.errors import InvalidProblemError
from optim.models.admission.data import ServerClasses
from optim.models.admission.forecast import Forecast, read_forecast, without_jobs
from optim.models.admission.instance import AdmissionInstance, check_compatible_cluster, merge_days
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.packing_lp import PackingLP, PackingResult
from optim.solvers.admission.packing.subgradient import SubgradientOptions
from optim.solvers.admission.pricing.classes import JobTables, Prices

TOL = 1e-3
"""Relative gap at which the sample-average LP counts as solved."""

FILL = 0.6
"""Share of the capacities available to the LP."""

HALF_TOL = 1e-2
"""Relative gap when only the difference between two halves of a history is needed."""

COLD, WARM, BETWEEN = (
    SubgradientOptions(num_steps=150, add_every=4),
    SubgradientOptions(num_steps=40, add_every=4),
    SubgradientOptions(num_steps=10),
)
"""Polyak steps before the first master, from prices of zero or from known prices; and after each master."""


class PriceForecast(Forecast):
    """A forecast that can be learned, updated by another day, and transferred to a cluster of another size."""

    @classmethod
    def fit(
        cls,
        histories: Sequence[AdmissionInstance],
        cluster: AdmissionInstance | None = None,
        *,
        monitor: Monitor | None = None,
        fill: float = FILL,
        tol: float = TOL,
    ) -> "PriceForecast":
        """Learn prices from past days.

        Parameters
        ----------
        histories
            At least one day. Clusters may differ from today's in size: only the jobs are used.
        cluster
            The cluster to price; the last day's by default.
        monitor
            Polled between price updates; when it ends the LP, the best prices so far are used.
        fill
            Share of the capacities available to the LP, in (0, 1].
        tol
            Relative gap at which the LP counts as solved.

        Raises
        ------
        InvalidProblemError
            If there is no day, or a day's cluster is incompatible.

        Examples
        --------
        >>> import optim
        >>> days = [optim.reference_instance(name) for name in ("tiny-0", "tiny-1")]
        >>> PriceForecast.fit(days, days[0]).num_days
        2
        """
        if not histories:
            raise InvalidProblemError(
                "a forecast needs at least one day of jobs; give earlier days, or run online-learned without a history"
            )
        today = without_jobs(histories[-1] if cluster is None else cluster)
        for day in histories:
            check_compatible_cluster(day, today, f"history {day.name!r}")
        prices, _ = sample_average(histories, today, fill=fill, monitor=monitor, tol=tol)
        return cls(cluster=today, days=tuple(histories), fill=fill, worker_price=prices.worker, ps_price=prices.ps)

    @classmethod
    def load(cls, path: str | Path) -> "PriceForecast":
        """Read a forecast; raises the same errors as `read_forecast`."""
        return cls.of(read_forecast(path))

    @classmethod
    def of(cls, known: Forecast) -> "PriceForecast":
        """Return a forecast as a `PriceForecast`, which can be updated and transferred."""
        return cls(**{field.name: getattr(known, field.name) for field in fields(known)})

    @property
    def prices(self) -> Prices:
        """The LP's prices."""
        return Prices(worker=self.worker_price, ps=self.ps_price)

    def updated(self, day: AdmissionInstance, *, monitor: Monitor | None = None, tol: float = TOL) -> "PriceForecast":
        """Return the forecast with one more day; the LP starts from the present prices."""
        check_compatible_cluster(day, self.cluster, f"history {day.name!r}")
        return self._solved((*self.days, day), self.cluster, monitor, tol)

    def on(self, instance: AdmissionInstance, *, monitor: Monitor | None = None, tol: float = TOL) -> "PriceForecast":
        """Return the forecast for an instance's cluster: the same object unless classes or their sizes differ.

        Raises
        ------
        InvalidProblemError
            If the instance has other resources, another slot length, or more slots.
        """
        check_compatible_cluster(self.cluster, instance, "the forecast")
        if _is_same_cluster(self.cluster, instance):
            return self
        return self._solved(self.days, without_jobs(instance), monitor, tol)

    def half_difference(self, *, tol: float = HALF_TOL) -> float | None:
        """Return the difference between the prices of the first and the second half of the days; None for a single day.

        It is the capacity's value at the absolute price differences, divided by the mean of its values at the prices of
        the two halves: 0 for equal prices, 2 if no row has a positive price in both halves.
        """
        middle = self.num_days // 2
        if middle == 0:
            return None
        rows = CapacityRows.of(JobTables.build(self.cluster))
        first, second = (
            rows.flat(sample_average(days, self.cluster, fill=self.fill, start=self.prices, tol=tol)[0])
            for days in (self.days[:middle], self.days[middle:])
        )
        total = float((first + second) @ rows.capacity)
        return 2 * float(np.abs(first - second) @ rows.capacity) / total if total > 0 else 0.0

    def _solved(
        self, days: tuple[AdmissionInstance, ...], cluster: AdmissionInstance, monitor: Monitor | None, tol: float
    ) -> "PriceForecast":
        start = Prices(
            worker=_carried_over(self.worker_price, self.cluster.worker_servers, cluster.worker_servers),
            ps=self.ps_price
            if cluster.has_shared_servers
            else _carried_over(self.ps_price, self.cluster.ps_servers, cluster.ps_servers),
        )
        prices, _ = sample_average(days, cluster, fill=self.fill, start=start, monitor=monitor, tol=tol)
        return PriceForecast(cluster=cluster, days=days, fill=self.fill, worker_price=prices.worker, ps_price=prices.ps)


def sample_average(
    days: Sequence[AdmissionInstance],
    cluster: AdmissionInstance,
    *,
    fill: float,
    start: Prices | None = None,
    monitor: Monitor | None = None,
    tol: float = TOL,
) -> tuple[Prices, PackingResult]:
    """Solve the packing LP of all days' jobs; each row's capacity counts `fill` times per day."""
    tables = JobTables.build(merge_days([day.jobs for day in days], cluster))
    rows = CapacityRows.of(tables)
    programme = PackingLP(tables, replace(rows, capacity=fill * len(days) * rows.capacity))
    result = programme.run(
        Monitor() if monitor is None else monitor,
        tol=tol,
        first=COLD if start is None else WARM,
        between=BETWEEN,
        start=None if start is None else rows.flat(start),
    )
    return rows.prices(result.point.row_prices), result


def smoothed(prices: Prices, width: int) -> Prices:
    """Return prices averaged over the `width` slots around each slot (fewer at both ends of the day)."""

    def side(array: FloatArray) -> FloatArray:
        total = np.concatenate([np.zeros_like(array[:, :1]), np.cumsum(array, axis=1)], axis=1)
        slot, half = np.arange(array.shape[1]), width // 2
        low, high = np.maximum(slot - half, 0), np.minimum(slot + half + 1, len(slot))
        return np.asarray((total[:, high] - total[:, low]) / (high - low)[None, :, None])

    return Prices(worker=side(prices.worker), ps=side(prices.ps))


def _is_same_cluster(a: AdmissionInstance, b: AdmissionInstance) -> bool:
    pairs = ((a.worker_servers, b.worker_servers), (a.ps_servers, b.ps_servers))
    return a.horizon == b.horizon and all(
        x.types == y.types and np.array_equal(x.count, y.count) and np.array_equal(x.capacity, y.capacity)
        for x, y in pairs
    )


def _carried_over(prices: FloatArray, known: ServerClasses, now: ServerClasses) -> FloatArray:
    """Return known prices for classes whose name is known, and mean prices for new classes."""
    horizon = now.capacity.shape[1]
    number = {name: c for c, name in enumerate(known.types)}
    mean = prices.mean(axis=0)
    each = [prices[number[name]] if name in number else mean for name in now.types]
    return np.array([one[:horizon] for one in each]).reshape(len(each), horizon, prices.shape[2])
