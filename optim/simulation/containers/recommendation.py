"""Requests and limits for the next cycle of containers, from what similar ones needed; nothing here talks to a cluster.

A `Recommender` learns from some containers what follows on a moment (`Analogs`), and tunes one multiplier a resource on others by split
conformal prediction. Of a container it then looks at the end of its series only, so that containers come in blocks of any size.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.ranges import check_in
from optim.models.containers.series import ContainerSeries, FloatArray, Resource
from optim.phases.grid import to_grid
from optim.phases.windows import split_containers
from optim.simulation.containers.censoring import uncensor
from optim.simulation.containers.forecast import Forecast
from optim.simulation.containers.harm import SECONDS_PER_DAY
from optim.simulation.containers.learned_policies import Analogs
from optim.simulation.containers.requirement import Draws, Requirement, draw_needs, least_covered
from optim.simulation.containers.tuning import Tuned, tune
from optim.simulation.containers.windows import moments_at
from optim.simulation.containers.world import World, make_world

MOST_LEARNED = 400
"""Containers to learn from and to tune on together."""

CPU_LIMIT_RISK = 0.001
"""Where CPU is limited: a sample above the limit is as rare as this, by the forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions:
    """How recommendations are made.

    Attributes
    ----------
    cycle_s
        How long a recommendation is to hold.
    interval_s, max_gap_s
        Grid, and the longest gap that is bridged.
    requirement
        Kills and throttling that are allowed.
    """

    cycle_s: float = 3600.0
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    requirement: Requirement = field(default_factory=Requirement)

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("(0, inf)", self, "cycle_s", "interval_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What a container should get of a resource.

    Attributes
    ----------
    request
        In the resource's unit; of a resource that is held the limit as well.
    limit
        Of a rate what only one sample in a thousand exceeds, by the forecast; None for none.
    quantile
        Level of the request in the forecast of the next cycle: of its peak (held) or of its samples (rate).
    reason
        Why so much, in words.
    compared_with, saving
        Its limit now, or where it has none its peak so far, and how much less the request is, as a share.
    expected_kills_per_day, expected_throttled
        By the forecast, if each cycle of a day were like the next one; kills of a resource that is held (one a cycle at most),
        throttled share of a rate.
    kills_per_day
        Of a resource that is held: how often the container was killed at its limit so far, see `uncensor`.
    """

    request: float
    limit: float | None
    quantile: float
    reason: str
    compared_with: str
    saving: float
    expected_kills_per_day: float | None
    expected_throttled: float | None
    kills_per_day: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What a container should get in the next cycle, by resource."""

    container: str
    unit: str | None
    amounts: dict[str, Amount]


class Recommender:
    """Learned and tuned, ready for containers.

    Parameters
    ----------
    series
        Containers to learn from, at least two units; of many a random part counts.
    options
        How.
    seed
        Of the split and of the draws.

    Raises
    ------
    InvalidProblemError
        If there are fewer than two units, or none has a whole cycle behind it.
    """

    def __init__(self, series: ContainerSeries, options: RecommendOptions, seed: int) -> None:
        self.options = options
        grid = to_grid(uncensor(series).series, options.interval_s, options.max_gap_s).series
        rng = np.random.default_rng(seed)
        if grid.unit_index.max() < 1:
            raise InvalidProblemError(
                "at least two containers of different pods are needed: one to learn from, one to tune on"
            )
        if int(grid.lengths.max()) * options.interval_s < 2 * options.cycle_s:
            raise InvalidProblemError(
                f"no container has two whole cycles of {options.cycle_s:g} s; choose shorter ones"
            )
        units = rng.permutation(int(grid.unit_index.max()) + 1)[:MOST_LEARNED]
        chosen = grid.select(np.flatnonzero(np.isin(grid.unit_index, units)))
        learned, tuned = split_containers(chosen, 0.5, rng)
        self._world = make_world(chosen.select(tuned), chosen.select(learned), cycle_s=options.cycle_s)
        self._analogs = Analogs(self._world, is_whole=True)
        self._draws = draw_needs(self._world, rng, is_whole=True)
        if not len(self._draws.need):
            raise InvalidProblemError(
                f"no container to tune on has two whole cycles of {options.cycle_s:g} s; choose shorter ones"
            )
        self.tuned = self._tune()

    @property
    def num_tuned(self) -> int:
        """Containers that the multipliers were tuned on."""
        return len(self._draws.need)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Resources that there must be."""
        return self._world.resources

    def promise(self) -> str:
        """Say what the multipliers keep, on average over containers like those learned from."""
        wanted, number = self.options.requirement, self.num_tuned
        least = 1.0 / (number + 1)
        shares = " and ".join(
            f"{100 * max(share, least):.3g} % of {what}"
            for share, what in ((wanted.kills, "cycles killed"), (wanted.throttled, "samples throttled"))
        )
        return f"tuned on {number} containers: on average at most {shares}, for containers like these"

    def _tune(self) -> Tuned:
        draws, world = self._draws, self._world
        answers = [self._at_draws(draws, world, column) for column in range(len(world.resources))]
        unknown, limit = world.first, np.full((len(draws.need), len(world.resources)), np.inf)
        allowed = self.options.requirement.allowed(world).tolist()
        least = np.array([min(least_covered(len(draws.need), share), len(draws.need)) for share in allowed])

        class Drawn:
            """Allocations at the draws only, shape (n, R)."""

            def allocate(self, multiplier: FloatArray) -> FloatArray:
                given = [own.allocation(multiplier, unknown, limit)[:, column] for column, own in enumerate(answers)]
                return np.stack(given, axis=1)

        return tune(Drawn(), lambda given: (given >= draws.need).sum(axis=0) >= least, len(world.resources))

    def _at_draws(self, draws: Draws, world: World, column: int) -> Forecast:
        """Return the forecasts that each draw's container would have had as the drawn cycle began."""
        ends = draws.cycle[:, column] * world.cycle_samples
        return self._forecast([world.values[k, :end] for k, end in zip(draws.series[:, column], ends, strict=True)])

    def _forecast(self, pasts: list[FloatArray]) -> Forecast:
        parts = [moments_at(own, np.array([len(own)]), self._world) for own in pasts]
        return self._analogs.forecast(parts)

    def recommend(self, series: ContainerSeries) -> Iterator[Recommendation]:
        """Yield a recommendation a container, from its last segment.

        Raises
        ------
        InvalidProblemError
            If the series have other resources than those learned from.
        """
        if series.resources != self._world.resources:
            raise InvalidProblemError(
                f"the series have {series.names}, learned were {[r.name for r in self._world.resources]}"
            )
        seen = uncensor(series)
        grid = to_grid(seen.series, self.options.interval_s, self.options.max_gap_s).series
        last = np.flatnonzero(np.append(np.diff(grid.container_index) != 0, True))
        latest = np.flatnonzero(np.append(np.diff(series.container_index) != 0, True))
        answer = self._forecast([grid.values[grid.rows(segment)] for segment in last.tolist()])
        number = len(grid.resources)
        limit = np.full((len(last), number), np.inf) if grid.limit is None else grid.limit[last]
        limit = np.where(np.isfinite(limit), limit, np.inf)
        given = np.maximum(answer.allocation(self.tuned.multiplier, self._world.first, limit), seen.least[latest])
        for place, segment in enumerate(last.tolist()):
            name, past = grid.containers[segment], grid.values[grid.rows(segment)]
            own = latest[place]
            amounts = {
                resource.name: self._amount(
                    answer,
                    resource,
                    column,
                    place,
                    given[place, column],
                    seen.limit[own, column],
                    past[:, column],
                    (int(seen.kills[own, column]), float(seen.kills_per_day[own, column])),
                )
                for column, resource in enumerate(grid.resources)
            }
            yield Recommendation(container=name, unit=grid.units.get(name), amounts=amounts)

    def _amount(
        self,
        answer: Forecast,
        resource: Resource,
        column: int,
        place: int,
        given: float,
        limit: float,
        past: FloatArray,
        killed: tuple[int, float],
    ) -> Amount:
        need = answer.need[place, column]
        risk = float(np.interp(given, need, answer.risk))
        peak = min(float(past.max()), limit)
        is_limited = bool(np.isfinite(limit))
        now = float(limit) if is_limited else peak
        cycles = SECONDS_PER_DAY / self.options.cycle_s
        high = float(np.interp(CPU_LIMIT_RISK, answer.risk[::-1], need[::-1]))
        what = "peak" if resource.is_level else "samples"
        return Amount(
            request=float(given),
            limit=float(given) if resource.is_level else min(max(float(given), high), float(limit)),
            quantile=1.0 - risk,
            reason=(
                (
                    f"killed {killed[0]} times at its limit of {limit:.4g}, {killed[1]:.3g} a day, so that it needs more, at least a fifth; "
                    if killed[0]
                    else ""
                )
                + f"{what} of the next {self.options.cycle_s / 60:g} min: the {100 * (1 - risk):.4g} % quantile of what followed on the most "
                f"similar moments of {self._world.training.num_segments} containers; used now {float(past[-1]):.4g}, at most so far {peak:.4g}"
                + (f" {resource.unit}" if resource.unit else "")
            ),
            compared_with="limit" if is_limited else "peak so far",
            saving=1.0 - float(given) / now if now > 0 else 0.0,
            expected_kills_per_day=risk * cycles if resource.is_level else None,
            expected_throttled=None if resource.is_level else risk,
            kills_per_day=killed[1] if resource.is_level else None,
        )


def recommend_blocks(recommender: Recommender, blocks: Iterable[ContainerSeries]) -> Iterator[Recommendation]:
    """Yield the recommendations of containers that come in blocks, one block in memory at a time."""
    for block in blocks:
        yield from recommender.recommend(block)
