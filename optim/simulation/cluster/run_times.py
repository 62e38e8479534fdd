"""Run times of jobs from history: survival curves by user, partition and size, and draws given how long a job has run."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.cluster.workload import US, Workload
from optim.statistics import kaplan_meier

MIN_AT_RISK = 20
"""Minimum number of a group's ended jobs whose run times exceed a job's present run time; with fewer, the job uses a larger
group."""

TAIL_SHARE = 0.1
"""Share of the run times from which the tail's exponent is estimated: the longest tenth."""

MIN_TAIL = 0.1
"""Minimum of the inverse of the tail's exponent, so that the exponent is finite if all run times are equal."""

LEFT_S = 1e-3
"""Minimum remaining time of a running job."""

GROUPINGS = (("user", "partition", "size"), ("user", "size"), ("partition", "size"), ("size",), ())
"""Traits by which jobs are grouped, from the finest groups to one group of all jobs."""

BATCH_S = 3600.0
"""Maximum seconds between submissions of successive jobs of a batch."""

WEEK_S = 7 * 86_400.0

DRIFTING = ("partition", "size")
"""Grouping whose run times drift from week to week."""

BATCHED = ("user", "partition", "gpus")
"""Traits that jobs of a batch share."""

MAX_PAIRS = 1_000
"""Maximum weight of one group's week in the estimate of the week correlation, in pairs of batches."""

MIN_SHARE = 1e-300
"""Minimum survival probability, so that a job's score is finite."""

MAX_CORRELATION = 0.95
"""Maximum correlation within batches, so that the jobs of a batch differ."""


Group = tuple[str | int, ...]
"""Values of the traits of a group: all of its jobs have these values."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTraits:
    """Traits by which run times are grouped, one entry per job in the order of submission.

    The traits are names of users and partitions ("" if unknown), numbers of GPUs, and submission times in seconds.
    """

    user: Sequence[str]
    partition: Sequence[str]
    gpus: IntArray
    submit_s: FloatArray

    @classmethod
    def of(cls, jobs: Workload, shift_s: float = 0.0) -> "JobTraits":
        """Return the traits of a workload's jobs, with its virtual clusters as partitions and `shift_s` added to submissions."""
        return cls(
            user=[jobs.users[number] for number in jobs.user.tolist()],
            partition=[jobs.groups[number] for number in jobs.group.tolist()],
            gpus=jobs.gpus,
            submit_s=jobs.submit_us / US + shift_s,
        )

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.gpus)

    def select(self, rows: IntArray) -> "JobTraits":
        """Return the traits of the jobs at some rows."""
        user, partition = ([texts[row] for row in rows.tolist()] for texts in (self.user, self.partition))
        return JobTraits(user=user, partition=partition, gpus=self.gpus[rows], submit_s=self.submit_s[rows])

    def joined(self, other: "JobTraits") -> "JobTraits":
        """Return the traits of these jobs, followed by those of other jobs."""
        return JobTraits(
            user=[*self.user, *other.user],
            partition=[*self.partition, *other.partition],
            gpus=np.concatenate([self.gpus, other.gpus]),
            submit_s=np.concatenate([self.submit_s, other.submit_s]),
        )

    @cached_property
    def _columns(self) -> dict[str, tuple[list[str | int], IntArray]]:
        """Distinct values of each trait, and the index of each job's value.

        Sizes are numbers of GPUs rounded up to powers of two, so that 5 to 8 GPUs are one size.
        """
        sizes = np.ceil(np.log2(self.gpus)).astype(np.int64).tolist()
        traits: dict[str, Sequence[str | int]] = {
            "user": self.user, "partition": self.partition, "size": sizes, "gpus": self.gpus.tolist()
        }  # fmt: skip
        columns: dict[str, tuple[list[str | int], IntArray]] = {}
        for name, values in traits.items():
            numbers: dict[str | int, int] = {}
            codes = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
            columns[name] = list(numbers), codes
        return columns

    def groups(self, grouping: Sequence[str]) -> tuple[list[Group], IntArray]:
        """Return the distinct groups by some traits, and the index of each job's group; shape (jobs,)."""
        code = np.zeros(len(self), np.int64)
        for name in grouping:
            values, codes = self._columns[name]
            code = code * len(values) + codes
        _, first, number = np.unique(code, return_index=True, return_inverse=True)
        parts = [[self._columns[name][0][at] for at in self._columns[name][1][first].tolist()] for name in grouping]
        return (list(zip(*parts, strict=True)) if grouping else [()] * len(first)), number

    def batches(self) -> IntArray:
        """Return the number of each job's batch; shape (jobs,).

        Jobs of a batch share the traits `BATCHED`, and each is submitted at most `BATCH_S` after the previous one.
        """
        group = self.groups(BATCHED)[1]
        order = np.lexsort((self.submit_s, group))
        is_first = (np.diff(group[order], prepend=-1) > 0) | (np.diff(self.submit_s[order], prepend=-np.inf) > BATCH_S)
        numbers = np.empty(len(self), np.int64)
        numbers[order] = np.cumsum(is_first) - 1
        return numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SurvivalCurve:
    """Share of a group's jobs that run longer than each time.

    Parameters
    ----------
    time_s, survival
        Increasing times, and for each time the share of jobs that run longer, which is above 0.
    ended_s
        Sorted run times of the jobs that ended.
    tail_exponent
        Beyond the last time, the share of jobs that run longer than t is proportional to ``t ** -tail_exponent``.
    """

    time_s: FloatArray
    survival: FloatArray
    ended_s: FloatArray
    tail_exponent: float

    def at(self, time_s: FloatArray) -> FloatArray:
        """Return the share of jobs that run longer than each of some times."""
        steps = np.concatenate([[1.0], self.survival])
        share = steps[np.searchsorted(self.time_s, time_s, side="right")]
        return np.asarray(share * np.maximum(1.0, time_s / self.time_s[-1]) ** -self.tail_exponent)

    def num_beyond(self, time_s: FloatArray) -> IntArray:
        """Return the number of jobs that ended after running for longer than each of some times."""
        return np.asarray(len(self.ended_s) - np.searchsorted(self.ended_s, time_s, side="right"))

    def scores(self, run_s: FloatArray) -> FloatArray:
        """Return the normal score of each run time, taken at the middle of the curve's step at that time."""
        place = np.searchsorted(self.time_s, run_s, side="right")
        steps = np.concatenate([[1.0], self.survival])
        return np.asarray(-ndtri(np.clip((steps[place] + steps[np.maximum(place - 1, 0)]) / 2, 1e-6, 1 - 1e-6)))

    def time_at(self, survival: FloatArray) -> FloatArray:
        """Return the time beyond which each share of the jobs runs; shares lie in (0, 1]."""
        place = np.searchsorted(-self.survival, -survival, side="left")
        beyond = self.time_s[-1] * np.maximum(1.0, self.survival[-1] / survival) ** (1.0 / self.tail_exponent)
        return np.where(place < len(self.time_s), self.time_s[np.minimum(place, len(self.time_s) - 1)], beyond)


class RunTimes:
    """Run times of past jobs, by group.

    Parameters
    ----------
    traits, run_s
        Past jobs, and how long each ran, positive; shape (jobs,).
    has_ended
        Whether each job has ended; for other jobs, `run_s` is the run time so far (censored); shape (jobs,).
    min_at_risk
        See `MIN_AT_RISK`.

    Raises
    ------
    InvalidProblemError
        If no job has ended.

    Notes
    -----
    Curves are Kaplan-Meier estimates. A job that has run for `held` seconds uses the finest group of `GROUPINGS` in which at
    least `min_at_risk` jobs ran longer, and otherwise the group of all jobs. Beyond the last time of a curve, the tail is a
    Pareto distribution with Hill's exponent of the longest tenth of all jobs.

    Run times of jobs that one user submits together are correlated. A batch consists of jobs of one user, partition and number
    of GPUs, each submitted at most `BATCH_S` after the previous one. Let z be the normal score of a run time on its curve. In a
    batch, z = b + e, with b ~ N(0, r) for the batch and e ~ N(0, 1 - r) for the job; r is the mean product of two scores of a
    batch. The distribution of b is conditioned on the batch's ended jobs, and that of e on the job's present run time.

    References
    ----------
    Kaplan, Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53 (1958), DOI 10.1080/01621459.1958.10501452.
    Hill, "A Simple General Approach to Inference About the Tail of a Distribution", Annals of Statistics 3 (1975).
    Tsafrir, Etsion, Feitelson, "Backfilling Using System-Generated Predictions Rather than User Runtime Estimates", IEEE TPDS 18
    (2007): a user's previous jobs predict the next.
    """

    def __init__(
        self, traits: JobTraits, run_s: FloatArray, has_ended: BoolArray, min_at_risk: int = MIN_AT_RISK
    ) -> None:
        if not has_ended.any():
            raise InvalidProblemError(
                "no past job has ended, so that run times are unknown; give a trace with ended jobs (--trace)"
            )
        self.min_at_risk = min_at_risk
        longest = np.sort(run_s[has_ended])[-max(2, round(TAIL_SHARE * int(has_ended.sum()))) :]
        tail = 1.0 / max(float(np.log(longest / longest[0]).mean()), MIN_TAIL)
        self._curves: list[dict[Group, SurvivalCurve]] = []
        for grouping in GROUPINGS:
            keys, rows = _rows_of(traits, grouping)
            kept = [at for at, of in enumerate(rows) if has_ended[of].sum() >= (min_at_risk if grouping else 1)]
            self._curves.append({keys[at]: _curve(run_s[rows[at]], has_ended[rows[at]], tail) for at in kept})
        self.week_correlation = self.batch_correlation = 0.0
        self._week_of: dict[Group, tuple[float, int]] = {}
        self._learn(traits, self._scores(traits, run_s, has_ended))

    @property
    def pooled(self) -> SurvivalCurve:
        """The curve of all jobs."""
        return self._curves[-1][()]

    def curves(self, traits: JobTraits, held_s: FloatArray) -> list[tuple[SurvivalCurve, IntArray]]:
        """Return curves, each with the rows of the jobs that use it, given their run times so far; every job has one curve."""
        found: list[tuple[SurvivalCurve, IntArray]] = []
        is_open = np.ones(len(traits), np.bool_)
        for grouping, curves in zip(GROUPINGS[:-1], self._curves, strict=False):
            for key, rows in zip(*_rows_of(traits, grouping), strict=True):
                if key in curves:
                    own = rows[is_open[rows] & (curves[key].num_beyond(held_s[rows]) >= self.min_at_risk)]
                    is_open[own] = False
                    found.append((curves[key], own))
        found.append((self.pooled, np.flatnonzero(is_open)))
        return [(curve, rows) for curve, rows in found if len(rows)]

    def mean_s(self, traits: JobTraits, held_s: FloatArray) -> FloatArray:
        """Return, for each job, the mean run time of those jobs of its group that ran longer than the job has run so far.

        If no job of the group ran longer, the result is twice the job's run time so far.
        """
        found = np.empty(len(traits))
        for curve, rows in self.curves(traits, held_s):
            count = curve.num_beyond(held_s[rows])
            total = np.concatenate([[0.0], np.cumsum(curve.ended_s[::-1])])[count]
            found[rows] = np.where(count > 0, total / np.maximum(count, 1), 2 * held_s[rows])
        return found

    def quantile_s(self, traits: JobTraits, held_s: FloatArray, level: float) -> FloatArray:
        """Return a quantile of each job's run time given how long it has run; shape (jobs,)."""
        found = np.empty(len(traits))
        for curve, rows in self.curves(traits, held_s):
            found[rows] = curve.time_at(np.maximum(curve.at(held_s[rows]) * (1 - level), MIN_SHARE))
        return np.maximum(found, held_s + LEFT_S)

    def _scores(self, traits: JobTraits, run_s: FloatArray, has_ended: BoolArray) -> FloatArray:
        """Return normal scores of run times.

        The score of a running job is the mean of all scores above that of its present run time, since a batch's short jobs end
        first.
        """
        score = np.empty(len(traits))
        for curve, rows in self.curves(traits, np.zeros(len(traits))):
            score[rows] = curve.scores(run_s[rows])
        return np.where(has_ended, score, _mean_above(score))

    def _learn(self, traits: JobTraits, score: FloatArray) -> None:
        """Estimate the correlations within batches and within weeks, and store sums of scores by batch and for the last week."""
        batch = traits.batches()
        size, total = np.bincount(batch), np.bincount(batch, score)
        within = float(np.clip(_mean_product(batch, score, weigh_items=True), 0.0, MAX_CORRELATION))
        first = np.unique(batch, return_index=True)[1]
        heads = traits.select(first)
        mean = total / size
        age = np.floor((float(traits.submit_s[-1]) - heads.submit_s) / WEEK_S).astype(np.int64)
        names, group = heads.groups(DRIFTING)
        of_week = np.unique(group * (int(age.max()) + 1) + age, return_inverse=True)[1]
        self.week_correlation = float(np.clip(_mean_product(of_week, mean, weigh_items=False), 0.0, within))
        self.batch_correlation = within - self.week_correlation
        self._batch_spread = max(float(mean.var()) - self.week_correlation, 1e-6)
        self._recent_mean = np.where(age == 0, mean, np.nan)
        self._week_of = {}
        for number, key in enumerate(names):
            recent = mean[(group == number) & (age == 0)]
            self._week_of[key] = (float(recent.sum()), len(recent))
        last = np.zeros(len(size))
        np.maximum.at(last, batch, traits.submit_s)
        keys, key_of = heads.groups(BATCHED)
        self._batches: dict[Group, list[PastBatch]] = {key: [] for key in keys}
        columns = zip(
            heads.submit_s.tolist(), last.tolist(), total.tolist(), size.tolist(), key_of.tolist(), strict=True
        )
        for at, (begin, end, all_of_it, count, key) in enumerate(columns):
            entry = PastBatch(begin_s=begin, end_s=end, total=all_of_it, size=count, number=at)
            self._batches[keys[key]].append(entry)

    def _known_batch(self, key: Group, submit_s: float) -> "PastBatch | None":
        """Return the latest past batch to which a job belongs."""
        for entry in reversed(self._batches.get(key, ())):
            if submit_s >= entry.begin_s - BATCH_S:
                return entry if submit_s <= entry.end_s + BATCH_S else None
        return None

    def given(self, traits: JobTraits, held_s: FloatArray, limit_s: FloatArray | None = None) -> "ConditionalRunTimes":
        """Return the distribution of run times of running and waiting jobs, given how long each has run.

        Parameters
        ----------
        traits
            The jobs, in the order of their submission.
        held_s
            Seconds that each job has run, 0 for waiting jobs; shape (jobs,).
        limit_s
            Time limit of each job in seconds of run time, NaN or infinite for none; shape (jobs,).
        """
        curves = self.curves(traits, held_s)
        least = np.full(len(traits), -np.inf)
        for curve, rows in curves:
            share = np.maximum(curve.at(held_s[rows]), MIN_SHARE)
            least[rows] = np.where(held_s[rows] > 0, -ndtri(share), -np.inf)
        keys, number = traits.groups(BATCHED)
        submits = zip(number.tolist(), traits.submit_s.tolist(), strict=True)
        known = [self._known_batch(keys[at], submit) for at, submit in submits]
        limit = np.full(len(traits), np.inf) if limit_s is None else np.where(np.isnan(limit_s), np.inf, limit_s)
        week = self._week_effects(traits, known)
        return ConditionalRunTimes(
            curves=tuple(curves), held_s=held_s, limit_s=limit, least_score=least,
            shared=(week, self._batch_effects(traits, known, week.mean, least)), own_spread=float(np.sqrt(self._own)),
        )  # fmt: skip

    @property
    def _own(self) -> float:
        return 1.0 - self.week_correlation - self.batch_correlation

    def _week_effects(self, traits: JobTraits, known: "list[PastBatch | None]") -> "SharedEffect":
        """Return the distribution of the effect that a group's jobs share, given the group's other batches of the last week."""
        keys, member = traits.groups(DRIFTING)
        told = np.array([self._week_of.get(key, (0.0, 0)) for key in keys]).reshape(len(keys), 2)
        total, count = told[member].T
        own = np.array([np.nan if found is None else self._recent_mean[found.number] for found in known])
        is_in = ~np.isnan(own)
        others, sums = count - is_in, total - np.where(is_in, own, 0.0)
        weight = self.week_correlation / (others * self.week_correlation + self._batch_spread)
        spread = np.sqrt(np.minimum(self.week_correlation, weight * self._batch_spread))
        return SharedEffect(member=member, mean=weight * sums, spread=spread)

    def _batch_effects(
        self, traits: JobTraits, known: "list[PastBatch | None]", week_mean: FloatArray, least: FloatArray
    ) -> "SharedEffect":
        """Return the distribution of the effect that jobs of a batch share, given the batch's past jobs."""
        numbers: dict[tuple[bool, int], int] = {}
        chains = traits.batches().tolist()
        member = np.array(
            [
                numbers.setdefault((found is None, chain if found is None else found.number), len(numbers))
                for found, chain in zip(known, chains, strict=True)
            ],
            np.int64,
        )
        is_running = np.isfinite(least)
        total = np.array([0.0 if found is None else found.total for found in known])
        count = np.array([0 if found is None else found.size for found in known])
        is_in = is_running & (count > 0)
        others = count - is_in
        sums = total - np.where(is_in, _mean_above(np.where(is_running, least, 0.0)), 0.0) - others * week_mean
        r, own = self.batch_correlation, self._own
        return SharedEffect(
            member=member, mean=r * sums / (others * r + own), spread=np.sqrt(r * own / (others * r + own))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PastBatch:
    """A batch of past jobs: submission times of its first and last job, sum of the scores, number of jobs, and batch number."""

    begin_s: float
    end_s: float
    total: float
    size: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedEffect:
    """A random effect that jobs share; for each job: number of the draw that it uses, mean, and standard deviation."""

    member: IntArray
    mean: FloatArray
    spread: FloatArray

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Draw the effect, and return it for each job."""
        return np.asarray(
            self.mean + self.spread * rng.standard_normal(int(self.member.max(initial=-1)) + 1)[self.member]
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConditionalRunTimes:
    """Run times of jobs that run or wait, ready to be drawn; see `RunTimes.given`."""

    curves: tuple[tuple[SurvivalCurve, IntArray], ...]
    held_s: FloatArray
    limit_s: FloatArray
    least_score: FloatArray
    own_spread: float
    shared: tuple[SharedEffect, ...]

    def draw(self, rng: np.random.Generator) -> FloatArray:
        """Return a run time of each job in seconds, longer than it has run; shape (jobs,)."""
        shared = np.sum([effect.draw(rng) for effect in self.shared], axis=0)
        lowest = ndtr((self.least_score - shared) / self.own_spread)
        level = lowest + (1 - lowest) * rng.random(len(shared))
        score = np.maximum(shared + self.own_spread * ndtri(np.minimum(level, 1 - 1e-12)), self.least_score)
        survival = ndtr(-score)
        run_s = np.empty(len(shared))
        for curve, rows in self.curves:
            run_s[rows] = curve.time_at(np.maximum(survival[rows], MIN_SHARE))
        within = np.where(self.limit_s > self.held_s, self.limit_s, np.inf)
        return np.minimum(np.maximum(run_s, self.held_s + LEFT_S), within)


def _mean_above(score: FloatArray) -> FloatArray:
    """Return the mean of a standard normal number given that it exceeds a score, for each score."""
    return np.asarray(np.exp(-(score**2) / 2 - log_ndtr(-score)) / np.sqrt(2 * np.pi))


def _mean_product(group: IntArray, score: FloatArray, *, weigh_items: bool) -> float:
    """Return the mean product of two scores of the same group, 0 if no group has two.

    Groups are weighted by their number of scores, or of pairs up to `MAX_PAIRS`.
    """
    size = np.bincount(group)
    total, squares = np.bincount(group, score), np.bincount(group, score**2)
    several = size > 1
    if not several.any():
        return 0.0
    pairs = (size * (size - 1))[several]
    products = (total**2 - squares)[several] / pairs
    return float(np.average(products, weights=size[several] if weigh_items else np.minimum(pairs, MAX_PAIRS)))


def _rows_of(traits: JobTraits, grouping: Sequence[str]) -> tuple[list[Group], list[IntArray]]:
    """Return the distinct groups and the rows of each, in increasing order."""
    keys, number = traits.groups(grouping)
    ends = np.cumsum(np.bincount(number, minlength=len(keys)))
    return keys, np.split(np.argsort(number, kind="stable"), ends)[: len(keys)]


def _curve(run_s: FloatArray, has_ended: BoolArray, tail_exponent: float) -> SurvivalCurve:
    """Return a group's curve; with n ended jobs, the last share is at least 1 / (n + 1), so that the curve has a tail."""
    time_s, survival = kaplan_meier(run_s, has_ended)
    ended = np.sort(run_s[has_ended])
    floor = np.maximum(survival, 1.0 / (len(ended) + 1))
    return SurvivalCurve(time_s=time_s, survival=floor, ended_s=ended, tail_exponent=tail_exponent)
