"""Requests and limits of containers for the next cycle, as JSON and as patches of Kubernetes pods.

A `Recommender` learns a forecast from some containers (`KnnQuantiles`), and tunes one multiplier per resource on others
by split conformal prediction. A recommendation for another container needs only that container's series, so containers
may come in blocks of any size.

Kills and throttling are described by a guarantee and by expected values. The guarantee of the multipliers holds on
average over containers like those used for tuning, and over their cycles, for any forecast; it doesn't hold for a
single container. The expected value for a single container comes from its forecast and has no guarantee. With too few
containers for tuning, the allowed share of violations can't be guaranteed. Each request is then at least the
container's peak so far (for incompressible resources), and at least the forecast's quantile for the allowed share, so
that no container is expected to exceed this share.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, check_in
from optim.core.text import printable
from optim.models.containers.series import ContainerSeries, Resource
from optim.phases.preprocessing import split_containers, to_grid
from optim.rightsizing.engine import SECONDS_PER_DAY
from optim.rightsizing.features import Uncensored, features_at, uncensor
from optim.rightsizing.learned_policies import Forecast, KnnQuantiles
from optim.rightsizing.tuning import Draws, Slo, Tuned, draw_needs, num_needed, num_to_cover, tune
from optim.rightsizing.world import World, make_world

MAX_LEARNED = 400
"""Maximum number of containers for learning and tuning together, unless the guarantee of the allowed shares needs more."""

SPARE = 3
"""Ratio of the chosen containers to those that tuning needs: half serve for learning, and some are too short for tuning."""

ROUNDING = 1e-9
"""Maximum difference of two shares that count as equal."""

CPU_LIMIT_RISK = 0.001
"""Share of samples that exceed a recommended CPU limit according to the forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions:
    """Options of recommendations.

    Attributes
    ----------
    cycle_s
        Seconds for which a recommendation is valid.
    interval_s, max_gap_s
        Seconds between grid points, and the longest gap over which a sample is repeated.
    requirement
        Allowed kills and throttling.
    """

    cycle_s: float = 3600.0
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    requirement: Slo = field(default_factory=Slo)

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("(0, inf)", self, "cycle_s", "interval_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Recommended allocation of a resource to a container.

    Attributes
    ----------
    request
        Request in the resource's unit; for an incompressible resource also the limit.
    limit
        Limit of a rate: the amount that, by the forecast, one sample in a thousand exceeds; at least the request, and
        at most the present limit. For an incompressible resource, see `request`.
    quantile
        Quantile level of the request in the forecast of the next cycle's peak (incompressible) or samples (rate).
    reason
        Explanation of the request.
    compared_with, saving
        Name of the amount with which the request is compared: ``limit`` (the present limit) or, without a limit, ``peak
        so far``; and the share by which the request is lower than this amount.
    expected_kills_per_day, expected_throttled
        Expected values according to the forecast, if each cycle of a day were like the next one: kills for an
        incompressible resource (at most one per cycle), throttled share for a rate.
    past_kills_per_day
        Number of past kills per day for lack of an incompressible resource, see `uncensor`.
    """

    request: float
    limit: float
    quantile: float
    reason: str
    compared_with: str
    saving: float
    expected_kills_per_day: float | None
    expected_throttled: float | None
    past_kills_per_day: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Recommended amounts of a container for the next cycle, by resource."""

    container: str
    unit: str | None
    amounts: dict[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    """Past usage of a resource by a container; `is_raised` states whether the request was raised to its minimum."""

    limit: float
    peak: float
    now: float
    kills: int
    kills_per_day: float
    exceeded: float
    is_raised: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ends:
    """Data at the ends of the series of A containers.

    `last` and `latest` are the indices of each container's last segment in `grid` and in `seen`, respectively. `limit`,
    shape (A, R), is infinite where the limit is unknown, or was reached and so doesn't bound the need.
    """

    seen: Uncensored
    grid: ContainerSeries
    last: IntArray
    latest: IntArray
    answer: Forecast
    limit: FloatArray


class Recommender:
    """Recommender of requests, with a learned forecast and tuned multipliers.

    Parameters
    ----------
    series
        Containers for learning and tuning, from at least two units (pods). If there are many units, a random sample is
        used.
    options
        Options of the recommendations.
    seed
        Seed of the split and of the draws.

    Raises
    ------
    InvalidProblemError
        If there are fewer than two units, or no unit has a complete cycle.
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
                f"no container has two complete cycles of {options.cycle_s:g} s; choose a shorter cycle"
            )
        slo = options.requirement
        needed = max(num_needed(slo.kills if resource.is_level else slo.throttled) for resource in grid.resources)
        units = rng.permutation(int(grid.unit_index.max()) + 1)[: max(MAX_LEARNED, SPARE * needed)]
        chosen = grid.select(np.flatnonzero(np.isin(grid.unit_index, units)))
        learned, tuned = split_containers(chosen, 0.5, rng)
        self._world = make_world(chosen.select(tuned), chosen.select(learned), cycle_s=options.cycle_s)
        self._knn = KnnQuantiles(self._world, is_whole=True)
        self._draws = draw_needs(self._world, rng, is_whole=True)
        if not len(self._draws.need):
            raise InvalidProblemError(
                f"no calibration container has two complete cycles of {options.cycle_s:g} s; choose a shorter cycle"
            )
        self._allowed = slo.allowed(self._world)
        self.tuned = self._tune()
        is_enough = np.array([self.num_tuned >= num_needed(share) for share in self._allowed.tolist()])
        self._is_guaranteed = is_enough & self.tuned.is_reached

    @property
    def num_tuned(self) -> int:
        """Number of containers on which the multipliers were tuned."""
        return len(self._draws.need)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Resources that all series must have."""
        return self._world.resources

    def promise(self) -> str:
        """Return a description of the multipliers' guarantee, which holds on average over exchangeable containers."""
        min_share = 1.0 / (self.num_tuned + 1)
        shares = " and ".join(
            f"{100 * max(share, min_share):.3g} % of {what}"
            for what, share, columns in self._requirements()
            if self.tuned.is_reached[columns].all()
        )
        guarantee = f"on average at most {shares}, for containers like these" if shares else "no guarantee"
        return f"tuned on {self.num_tuned} containers: {guarantee}"

    def warnings(self, recommendations: Sequence[Recommendation]) -> tuple[str, ...]:
        """Return warnings of requirements without a guarantee, and of containers with too many expected violations."""
        lines = []
        for what, share, columns in self._requirements():
            names = ", ".join(self.resources[column].name for column in columns)
            needed, is_level = num_needed(share), self.resources[columns[0]].is_level
            if self.num_tuned < needed:
                peak_clause = "the container's peak so far and " if is_level else ""
                lines.append(
                    f"{100 * share:.3g} % of {what} cannot be guaranteed: that needs {needed} calibration containers, about {2 * needed} "
                    f"containers in all, got {self.num_tuned} for calibration; each request of {names} is at least {peak_clause}the "
                    "forecast's quantile at that share"
                )
            for column in columns:
                if not self.tuned.is_reached[column]:
                    name = self.resources[column].name
                    lines.append(f"no multiplier meets the requirement of {name}; the largest one was used")
                lines += self._exceeding(recommendations, column, share, what)
        return tuple(lines)

    def _requirements(self) -> Iterator[tuple[str, float, list[int]]]:
        """Yield each requirement: the violation, its allowed share, and the columns of its resources (at least one)."""
        for what, is_held in (("cycles killed", True), ("samples throttled", False)):
            columns = np.flatnonzero(self._world.is_level == is_held).tolist()
            if columns:
                yield what, float(self._allowed[columns[0]]), columns

    def _exceeding(
        self, recommendations: Sequence[Recommendation], column: int, share: float, what: str
    ) -> Iterator[str]:
        """Yield a warning if any container has more expected violations than are allowed on average."""
        name = self.resources[column].name
        expected = np.array([1.0 - recommendation.amounts[name].quantile for recommendation in recommendations])
        worst = int(expected.argmax()) if len(recommendations) else 0
        number = int((expected > share + ROUNDING).sum())
        if number:
            yield (
                f"{name}: for {number} of {len(recommendations)} containers the forecast expects more than {100 * share:.3g} % of {what}; "
                f"maximum {100 * expected[worst]:.3g} % ({recommendations[worst].container}), mean {100 * expected.mean():.3g} %"
            )

    def _tune(self) -> Tuned:
        draws, world = self._draws, self._world
        answers = [self._at_draws(draws, world, column) for column in range(len(world.resources))]
        unknown, limit = world.first, np.full((len(draws.need), len(world.resources)), np.inf)
        min_covered = num_to_cover(len(draws.need), self._allowed)

        class Drawn:
            """Plan for the n drawn cycles only, with allocations of shape (n, R)."""

            def allocate(self, multiplier: FloatArray) -> FloatArray:
                allocations = [
                    forecast.allocation(multiplier, unknown, limit)[:, column]
                    for column, forecast in enumerate(answers)
                ]
                return np.stack(allocations, axis=1)

        return tune(
            Drawn(), lambda allocation: (allocation >= draws.need).sum(axis=0) >= min_covered, len(world.resources)
        )

    def _at_draws(self, draws: Draws, world: World, column: int) -> Forecast:
        """Return the forecast for each draw's container at the start of the drawn cycle."""
        ends = draws.cycle[:, column] * world.cycle_samples
        return self._forecast([world.values[k, :end] for k, end in zip(draws.series[:, column], ends, strict=True)])

    def _forecast(self, pasts: list[FloatArray]) -> Forecast:
        parts = [features_at(past, np.array([len(past)]), self._world) for past in pasts]
        return self._knn.forecast(parts)

    def recommend(self, series: ContainerSeries) -> Iterator[Recommendation]:
        """Yield a recommendation per container, from its last segment.

        Raises
        ------
        InvalidProblemError
            If the series have other resources than the training series.
        """
        ends = self._ends(series)
        seen, grid, last, answer = ends.seen, ends.grid, ends.last, ends.answer
        latest = ends.latest
        peak = self._peaks(series, grid, last)
        tuned = answer.allocation(self.tuned.multiplier, self._world.first, ends.limit)
        minimum = np.maximum(seen.minimum[latest], np.minimum(self._minimum(answer, peak), ends.limit))
        requests = np.maximum(tuned, minimum)
        for place, segment in enumerate(last.tolist()):
            name, row = grid.containers[segment], latest[place]
            amounts = {
                resource.name: self._amount(
                    answer,
                    column,
                    place,
                    float(requests[place, column]),
                    _Usage(
                        limit=float(seen.limit[row, column]),
                        peak=float(peak[place, column]),
                        now=float(grid.values[grid.rows(segment)][-1, column]),
                        kills=int(seen.kills[row, column]),
                        kills_per_day=float(seen.kills_per_day[row, column]),
                        exceeded=float(seen.exceeded[row, column]),
                        is_raised=bool(
                            not self._is_guaranteed[column] and minimum[place, column] > tuned[place, column]
                        ),
                    ),
                )
                for column, resource in enumerate(grid.resources)
            }
            yield Recommendation(container=name, unit=grid.units.get(name), amounts=amounts)

    def requests_at(self, series: ContainerSeries, multipliers: Sequence[float]) -> FloatArray:
        """Return the requests of A containers for each of M given multipliers, without a guarantee, shape (M, A, R).

        Requests respect the minimum after kills. They don't decrease with the multiplier, which is at least 0.

        Raises
        ------
        InvalidProblemError
            If the series have other resources than the training series.
        """
        ends, number = self._ends(series), len(self.resources)
        for multiplier in multipliers:
            check_in("[0, inf)", {"multiplier": multiplier})
        tuned = [ends.answer.allocation(np.full(number, each), self._world.first, ends.limit) for each in multipliers]
        return np.maximum(np.stack(tuned), ends.seen.minimum[ends.latest])

    def _ends(self, series: ContainerSeries) -> "_Ends":
        """Return forecasts, limits and last segments at the end of each container's series."""
        if series.resources != self._world.resources:
            raise InvalidProblemError(
                f"the series have resources {', '.join(series.names)}, but the training series have "
                f"{', '.join(resource.name for resource in self._world.resources)}; give the same resources"
            )
        seen = uncensor(series)
        grid = to_grid(seen.series, self.options.interval_s, self.options.max_gap_s).series
        last = np.flatnonzero(np.append(np.diff(grid.container_index) != 0, True))
        limit = np.full((len(last), len(grid.resources)), np.inf) if grid.limit is None else grid.limit[last]
        return _Ends(
            seen=seen,
            grid=grid,
            last=last,
            latest=np.flatnonzero(np.append(np.diff(series.container_index) != 0, True)),
            answer=self._forecast([grid.values[grid.rows(segment)] for segment in last.tolist()]),
            limit=np.where(np.isfinite(limit), limit, np.inf),
        )

    def _peaks(self, series: ContainerSeries, grid: ContainerSeries, last: IntArray) -> FloatArray:
        """Return each container's peak so far, shape (A, R): for rates in the last segment, otherwise in all segments."""
        on_grid = np.stack([grid.values[grid.rows(segment)].max(axis=0) for segment in last.tolist()])
        begins = np.searchsorted(series.container_index[series.segment], np.unique(series.container_index))
        return np.where(self._world.is_level, np.maximum.reduceat(series.values, begins, axis=0), on_grid)

    def _minimum(self, answer: Forecast, peak: FloatArray) -> FloatArray:
        """Return the minimum allocation of the resources without a guarantee, 0 for those with one; shape (A, R)."""
        columns = range(len(self._allowed))
        asked = np.stack([answer.at_risk(float(self._allowed[k]))[:, k] for k in columns], axis=1)
        return np.where(self._is_guaranteed, 0.0, np.where(self._world.is_level, np.maximum(asked, peak), asked))

    def _amount(self, answer: Forecast, column: int, place: int, request: float, seen: _Usage) -> Amount:
        resource, need = self.resources[column], answer.need[place, column]
        risk = float(np.interp(request, need, answer.risk))
        peak = min(seen.peak, seen.limit)
        is_limited = bool(np.isfinite(seen.limit))
        now = seen.limit if is_limited else peak
        cycles = SECONDS_PER_DAY / self.options.cycle_s
        high = float(np.interp(CPU_LIMIT_RISK, answer.risk[::-1], need[::-1]))
        what = "peak" if resource.is_level else "samples"
        reason = (
            f"{what} of the next {self.options.cycle_s / 60:g} min: {100 * (1 - risk):.4g} % quantile of demand after the most similar "
            f"moments of {self._world.training.num_segments} containers; current usage {seen.now:.4g}, peak so far {peak:.4g}"
            + (f" {resource.unit}" if resource.unit else "")
        )
        if seen.is_raised:
            reason += (
                f"; raised, since {self.num_tuned} calibration containers are too few to guarantee the requirement"
            )
        if seen.kills:
            where = "its limit of " if seen.exceeded == seen.limit else ""
            reason = (
                f"killed {seen.kills} times at {where}{seen.exceeded:.4g} ({seen.kills_per_day:.3g} per day), so it needs at least "
                f"20 % more; {reason}"
            )
        return Amount(
            request=request,
            limit=request if resource.is_level else min(max(request, high), seen.limit),
            quantile=1.0 - risk,
            reason=reason,
            compared_with="limit" if is_limited else "peak so far",
            saving=1.0 - request / now if now > 0 else 0.0,
            expected_kills_per_day=risk * cycles if resource.is_level else None,
            expected_throttled=None if resource.is_level else risk,
            past_kills_per_day=seen.kills_per_day if resource.is_level else None,
        )


def recommend_blocks(recommender: Recommender, blocks: Iterable[ContainerSeries]) -> Iterator[Recommendation]:
    """Yield the recommendations of all blocks, with one block in memory at a time."""
    for block in blocks:
        yield from recommender.recommend(block)


SCHEMA = "optim/recommendation/2"
"""Schema of the JSON. Version 1 had `kills_per_day` instead of `past_kills_per_day`, and no warnings."""

MIB_PER_GIB = 1024.0

PARTS = 3
"""Maximum number of parts of a container's name: namespace/pod/container."""

PLAIN = re.compile(r"[ -~]+")
"""Part of a name whose JSON string is also valid YAML; Kubernetes allows fewer characters."""

SHOWN = 80
"""Maximum number of characters of a name in an error message."""

KUBERNETES = ("cpu", "memory")
"""Resources that a pod can request, in cores and GiB."""


def as_json(recommendations: Sequence[Recommendation], recommender: Recommender) -> str:
    """Return recommendations as one JSON object, with amounts in the resources' units."""
    document = {
        "schema": SCHEMA,
        "cycle_s": recommender.options.cycle_s,
        "promise": recommender.promise(),
        "warnings": list(recommender.warnings(recommendations)),
        "units": {resource.name: resource.unit for resource in recommender.resources},
        "containers": [asdict(recommendation) for recommendation in recommendations],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def as_yaml(recommendations: Sequence[Recommendation], recommender: Recommender) -> str:
    """Return one patch per pod as YAML documents, to be reviewed and applied manually (``kubectl patch --patch-file``).

    Names have the form namespace/pod/container or pod/container; a name without a slash is both pod and container. CPU is rounded up
    to a thousandth of a core, memory to a MiB.

    Raises
    ------
    InvalidProblemError
        If a name has more than three parts, or a part that is empty or has characters other than printable ASCII.
    """
    pods: dict[tuple[str | None, str], list[tuple[str, Recommendation]]] = {}
    for recommendation in recommendations:
        namespace, pod, name = _names(recommendation.container)
        pods.setdefault((namespace, pod), []).append((name, recommendation))
    comments = (recommender.promise(), *(f"warning: {text}" for text in recommender.warnings(recommendations)))
    lines = [f"# {printable(text)}" for text in comments]
    for (namespace, pod), parts in pods.items():
        lines += ["---", "apiVersion: v1", "kind: Pod", "metadata:", f"  name: {_text(pod)}"]
        lines += [] if namespace is None else [f"  namespace: {_text(namespace)}"]
        lines += ["spec:", "  containers:"]
        for name, recommendation in parts:
            for key, amount in recommendation.amounts.items():
                comments = (amount.reason, _expected(amount, recommender.options))
                lines += [f"  # {printable(f'{key}: {text}')}" for text in comments]
            lines += [f"  - name: {_text(name)}", "    resources:"]
            lines += _resources(recommendation.amounts)
    return "\n".join(lines) + "\n"


def _expected(amount: Amount, options: RecommendOptions) -> str:
    """Return the expected violations compared with the requirement, as text."""
    if amount.expected_kills_per_day is None:
        expectation, asked = (
            f"{100 * (amount.expected_throttled or 0.0):.3g} % of samples throttled",
            100 * options.requirement.throttled,
        )
        return f"forecast: {expectation}; required on average: at most {asked:.3g} %"
    max_kills = options.requirement.kills * SECONDS_PER_DAY / options.cycle_s
    kills = f"{amount.expected_kills_per_day:.3g} kills per day, at most one per cycle"
    return f"forecast: {kills}; required on average: at most {max_kills:.3g}"


def _names(container: str) -> tuple[str | None, str, str]:
    parts = container.split("/")
    if len(parts) > PARTS or not all(PLAIN.fullmatch(part) for part in parts):
        raise InvalidProblemError(
            f"container {container[:SHOWN]!r} can't be used in a patch: Kubernetes' names have the form namespace/pod/container with "
            "letters, digits, - and .; rename it, or use --format json"
        )
    if len(parts) == PARTS:
        return parts[0], parts[1], parts[2]
    return None, parts[0], parts[-1]


def _resources(amounts: dict[str, Amount]) -> list[str]:
    known = {name: amounts[name] for name in KUBERNETES if name in amounts}
    return [
        "      requests:",
        *(f"        {name}: {_quantity(name, amount.request)}" for name, amount in known.items()),
        "      limits:",
        *(f"        {name}: {_quantity(name, amount.limit)}" for name, amount in known.items()),
    ]


def _quantity(name: str, value: float) -> str:
    """Return an amount in Kubernetes' notation, rounded up, at least the smallest unit."""
    if name == "cpu":
        return f"{max(1, math.ceil(1000 * value - FILE_ROUNDING))}m"
    return f"{max(1, math.ceil(MIB_PER_GIB * value - FILE_ROUNDING))}Mi"


FILE_ROUNDING = 1e-6


def _text(name: str) -> str:
    """Return a name in quotes; names that match `PLAIN` need no YAML escapes."""
    return json.dumps(name)
