"""Idle allocated GPUs: utilisation by holder, idle spells, and GPU-time freed by reclaiming.

A sample's utilisation counts until the next sample of its series. Before a gap longer than `max_gap_s`, and at the end, it
counts for one step. A GPU is idle while its utilisation is below a threshold. A job is idle while all its GPUs are idle, since
a gang can't release some of them. A job reclaimed after n idle minutes releases its GPUs until it computes again, and then
returns as a separate job.

The study of low utilisation: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX
ATC 2019, section 3.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.errors import check_in, unknown_name

SECONDS_PER_HOUR = 3600.0

NO_SPANS: FloatArray = np.zeros((0, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleOptions:
    """Options that define when a GPU is idle, and when a job is reclaimed.

    Attributes
    ----------
    below
        Thresholds of utilisation in per cent, in (0, 100]. Idle time is reported below each threshold; the first
        threshold decides which jobs are reclaimed.
    after_min
        Idle minutes after which a job is reclaimed, each at least 1.
    max_gap_s
        Longest time in seconds for which a sample counts; None for the larger of 300 s and two steps. Prometheus repeats the last
        sample of a series for 300 s.
    """

    below: tuple[float, ...] = (5.0,)
    after_min: tuple[float, ...] = (30.0, 60.0, 240.0)
    max_gap_s: float | None = None

    def __post_init__(self) -> None:
        """Check ranges."""
        for name, interval in (("below", "(0, 100]"), ("after_min", "[1, 1e6]")):
            for value in getattr(self, name):
                check_in(interval, {name: value})
        check_in("(0, 1e6]", self, "max_gap_s")

    @property
    def min_spell_s(self) -> float:
        """Shortest idle spell, in seconds, that can lead to reclaiming."""
        return 60.0 * min(self.after_min, default=np.inf)

    def gap_s(self, step_s: float) -> float:
        """Return the longest time in seconds for which a sample counts."""
        return self.max_gap_s if self.max_gap_s is not None else max(300.0, 2.0 * step_s)


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a GPU, with "" for unknown fields. A GPU without a job, a user and a namespace is free."""

    namespace: str = ""
    user: str = ""
    job: str = ""
    gpu: str = ""

    @property
    def is_free(self) -> bool:
        """Whether no job holds the GPU."""
        return not (self.job or self.user or self.namespace)


@dataclass(slots=True, kw_only=True, eq=False)
class GpuUse:
    """Use of one GPU by one holder, summed over time; samples are added in order, in chunks of any size.

    Attributes
    ----------
    step_s
        Seconds for which the last sample, or a sample before a gap, counts.
    held_s
        Allocated time in seconds.
    busy_s
        Integral of the utilisation, as a share, over the allocated time, in seconds.
    idle_s
        Seconds with a utilisation below each threshold.
    longest_s
        Seconds of the longest spell below the first threshold.
    left_out_s
        Seconds of gaps between samples, which count neither as held nor as idle.
    runs
        Begin and end of each period without a gap; shape (periods, 2).
    spells
        Begin and end of each idle spell of at least `IdleOptions.min_spell_s`; shape (spells, 2).
    """

    options: IdleOptions
    step_s: float
    held_s: float = 0.0
    busy_s: float = 0.0
    idle_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0
    left_out_s: float = 0.0
    runs: FloatArray = field(default_factory=lambda: NO_SPANS)
    spells: FloatArray = field(default_factory=lambda: NO_SPANS)
    _last: tuple[float, float] | None = None
    _spell: FloatArray = field(default_factory=lambda: NO_SPANS)

    def __post_init__(self) -> None:
        """Initialise idle times with 0."""
        self.idle_s = [0.0] * len(self.options.below)

    @property
    def last_s(self) -> float:
        """Time of the last sample, or minus infinity if there is none."""
        return -np.inf if self._last is None else self._last[0]

    def add(self, time_s: FloatArray, percent: FloatArray) -> None:
        """Add samples later than the last sample: increasing times in seconds, and utilisation in per cent; shape (n,) each."""
        if self._last is not None:
            time_s, percent = np.concatenate([[self._last[0]], time_s]), np.concatenate([[self._last[1]], percent])
        if len(time_s):
            self._last = float(time_s[-1]), float(percent[-1])
            self._count(time_s[:-1], time_s[1:], percent[:-1])

    def finish(self) -> None:
        """Count the last sample."""
        if self._last is not None:
            time, percent = self._last
            self._count(np.array([time]), np.array([time + self.step_s]), np.array([percent]))
            self._last = None
        self._close(self._spell)
        self._spell = NO_SPANS

    def _count(self, begin: FloatArray, after: FloatArray, percent: FloatArray) -> None:
        """Count samples, each from `begin` to `after`."""
        if not len(begin):
            return
        length = after - begin
        length = np.where(length > self.options.gap_s(self.step_s), self.step_s, length)
        self.left_out_s += float((after - begin - length).sum())
        self.held_s += float(length.sum())
        self.busy_s += float((length * percent).sum()) / 100.0
        for place, below in enumerate(self.options.below):
            self.idle_s[place] += float(length[percent < below].sum())
        self.runs = joined(np.concatenate([self.runs, spans_of(begin, begin + length)]))
        is_idle = percent < self.options.below[0]
        spells = np.concatenate([self._spell, spans_of(begin[is_idle], (begin + length)[is_idle])])
        spells = joined(spells)
        # Only a busy sample closes the last spell, because the next sample may also be idle.
        is_open = bool(is_idle[-1])
        self._spell = spells[-1:] if is_open else NO_SPANS
        self._close(spells[:-1] if is_open else spells)

    def _close(self, spells: FloatArray) -> None:
        length = spells[:, 1] - spells[:, 0]
        self.longest_s = max(self.longest_s, float(length.max(initial=0.0)))
        self.spells = np.concatenate([self.spells, spells[length >= self.options.min_spell_s]])


def spans_of(begin: FloatArray, end: FloatArray) -> FloatArray:
    """Return the spans with the given begins and ends; adjacent spans are merged; shape (n, 2)."""
    if not len(begin):
        return NO_SPANS
    is_first = np.concatenate([[True], begin[1:] > end[:-1]])
    is_last = np.append(is_first[1:], True)
    return np.stack([begin[is_first], end[is_last]], axis=1)


def joined(spans: FloatArray) -> FloatArray:
    """Return the union of spans as ordered, disjoint spans, shape (n, 2)."""
    if len(spans) < 2:
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    return spans_of(spans[:, 0], np.maximum.accumulate(spans[:, 1]))


def complement(spans: FloatArray, begin: float, end: float) -> FloatArray:
    """Return the complement of ordered, disjoint spans within an interval, shape (n, 2)."""
    edges = np.concatenate([[begin], np.clip(spans, begin, end).ravel(), [end]]).reshape(-1, 2)
    return np.asarray(edges[edges[:, 1] > edges[:, 0]])


def overlap_s(spans: FloatArray, others: FloatArray) -> float:
    """Return the seconds of overlap of two sets of ordered, disjoint spans."""
    if not len(spans) or not len(others):
        return 0.0
    bounds = others.ravel()
    until = np.concatenate([[0.0], np.cumsum(others[:, 1] - others[:, 0])])
    # Seconds of `others` before each time: linear between begins and ends of spans.
    known = np.repeat(until, 2)[1:-1]
    before = np.interp(spans, bounds, known)
    return float((before[:, 1] - before[:, 0]).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobUse:
    """Use of all GPUs of a job.

    Attributes
    ----------
    holder
        Holder of the job's first GPU.
    gpus
        Largest number of GPUs held at the same time.
    begin_s, end_s
        First and last time with a GPU.
    runs
        `GpuUse.runs` of each GPU.
    idle
        Shape (n, 2): spells in which all of the job's GPUs with samples are idle, and at least one GPU has samples.
    """

    holder: Holder
    gpus: int
    begin_s: float
    end_s: float
    runs: tuple[FloatArray, ...]
    idle: FloatArray

    def reclaimed(self, after_min: float) -> FloatArray:
        """Return the spans without GPUs under reclaiming after `after_min` idle minutes, each until the job computes again; shape (n, 2)."""
        spells = self.idle + np.array([60.0 * after_min, 0.0])
        return np.asarray(spells[spells[:, 1] > spells[:, 0]])

    def pieces(self, after_min: float) -> FloatArray:
        """Return the spans with GPUs under reclaiming, shape (n, 2)."""
        return complement(self.reclaimed(after_min), self.begin_s, self.end_s)

    def freed_s(self, after_min: float) -> float:
        """Return the GPU-seconds freed by reclaiming."""
        spans = self.reclaimed(after_min)
        return sum(overlap_s(spans, runs) for runs in self.runs)


def job_uses(uses: Iterable[tuple[Holder, GpuUse]]) -> list[JobUse]:
    """Return the jobs in order of their begins; free GPUs and GPUs without a job name are left out."""
    by_job: dict[tuple[str, str], list[tuple[Holder, GpuUse]]] = {}
    for holder, use in uses:
        if holder.job and len(use.runs):
            by_job.setdefault((holder.namespace, holder.job), []).append((holder, use))
    jobs = [_job_use(parts) for parts in by_job.values()]
    return sorted(jobs, key=lambda job: (job.begin_s, job.holder.namespace, job.holder.job))


def _job_use(parts: Sequence[tuple[Holder, GpuUse]]) -> JobUse:
    runs = tuple(use.runs for _, use in parts)
    begin, end = (float(pick([pick(run[:, k]) for run in runs])) for k, pick in ((0, min), (1, max)))
    busy = joined(np.concatenate([_busy(use) for _, use in parts]))
    unknown = complement(joined(np.concatenate(runs)), begin, end)
    return JobUse(
        holder=parts[0][0],
        gpus=_most_at_once(runs),
        begin_s=begin,
        end_s=end,
        runs=runs,
        idle=complement(joined(np.concatenate([busy, unknown])), begin, end),
    )


def _busy(use: GpuUse) -> FloatArray:
    """Return the spans in which a GPU is allocated and not in one of its idle spells."""
    return np.concatenate(
        [complement(use.spells[(use.spells[:, 1] > a) & (use.spells[:, 0] < b)], a, b) for a, b in use.runs.tolist()]
    )


def _most_at_once(runs: Sequence[FloatArray]) -> int:
    spans = np.concatenate(runs)
    times = np.concatenate([spans[:, 1], spans[:, 0]])
    change = np.repeat([-1, 1], len(spans))
    # Ends come before begins at the same time, so that a GPU handed on within the job counts once.
    return int(np.cumsum(change[np.lexsort((change, times))]).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRow:
    """GPU-hours of one user, namespace or job.

    Attributes
    ----------
    name
        Name of the user, namespace or job; "" if unknown.
    gpus
        Number of different GPUs that were held at some time.
    held_h
        Allocated GPU-hours.
    idle_h
        Allocated GPU-hours below each threshold.
    idle_share
        Share of allocated GPU-hours below the first threshold.
    utilisation
        Mean utilisation in per cent.
    longest_idle_h
        Longest spell of one GPU below the first threshold, in hours.
    """

    name: str
    gpus: int
    held_h: float
    idle_h: tuple[float, ...]
    idle_share: float
    utilisation: float
    longest_idle_h: float


def use_rows(uses: Sequence[tuple[Holder, GpuUse]], by: str) -> list[UseRow]:
    """Return one row per user, namespace or job (`by` names a field of `Holder`), most idle GPU-hours first; free GPUs are left out.

    Raises
    ------
    InvalidOptionError
        If `by` is not such a field.
    """
    known = [each.name for each in fields(Holder) if each.name != "gpu"]
    if by not in known:
        raise unknown_name("column of --by", by, known)
    groups: dict[str, list[tuple[Holder, GpuUse]]] = {}
    for holder, use in uses:
        if not holder.is_free:
            name = getattr(holder, by)
            groups.setdefault(
                f"{holder.namespace}/{name}" if by == "job" and name and holder.namespace else name, []
            ).append((holder, use))
    rows = [total_row(parts, name) for name, parts in groups.items()]
    return sorted(rows, key=lambda row: (-row.idle_h[0], row.name))


def total_row(uses: Sequence[tuple[Holder, GpuUse]], name: str) -> UseRow:
    """Return a row with the totals of the given GPUs."""
    held = sum(use.held_s for _, use in uses)
    idle = np.sum([use.idle_s for _, use in uses], axis=0)
    return UseRow(
        name=name,
        gpus=len({holder.gpu for holder, _ in uses}),
        held_h=held / SECONDS_PER_HOUR,
        idle_h=tuple((idle / SECONDS_PER_HOUR).tolist()),
        idle_share=float(idle[0]) / held if held > 0 else 0.0,
        utilisation=100.0 * sum(use.busy_s for _, use in uses) / held if held > 0 else 0.0,
        longest_idle_h=max(use.longest_s for _, use in uses) / SECONDS_PER_HOUR,
    )
