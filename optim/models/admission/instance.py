"""The data of an admission problem, as exact integers in arrays over jobs and server classes.

Notation (docs/mathematics/admission.md; Bao, Peng, Wu, Li, INFOCOM 2018): job ``i``, slot ``t``, worker server
``h``, parameter server (PS) host ``k``, resource ``r``. All resource quantities are integers of 1e-6
units, so that feasibility is decided without rounding.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from optim.core.arrays import ComparesByValue, derived
from optim.core.frames import Rows, frame_of
from optim.models.admission.jobs import MAX_QUANTITY, MICRO, FloatArray, IntArray, Jobs, ServerClasses, as_int_array
from optim.models.admission.speedup import TWENTIETHS, curve_of, progress_by_workers

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "MAX_QUANTITY",
    "MICRO",
    "AdmissionInstance",
    "FloatArray",
    "IntArray",
    "Jobs",
    "ServerClasses",
    "as_int_array",
    "units_per_server",
]

MEGABITS_THERE_AND_BACK = 16
"""Megabits moved a mini-batch per megabyte of gradient: pushed and pulled, 8 bits a byte."""

FAR_TOO_MUCH = 2**62
"""Work beyond any horizon; larger amounts are cut to it so that they fit 64 bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionInstance(ComparesByValue):
    """An admission problem: which jobs to train, with how many workers and PSs, where and when.

    Parameters
    ----------
    name
        Name of the instance, for records.
    horizon
        Number of slots T; slots are 0, ..., T-1.
    slot_micro_s
        Length of a slot in 1e-6 seconds.
    resources
        Names of the R resource types.
    jobs
        The jobs.
    worker_servers, ps_servers
        Hosts of workers and hosts of PSs; the same object where servers are shared.
    min_utility_share
        A completion that earns less than this share of f(0) earns nothing (default 1 %).
    max_share_per_server
        If set, a job's workers on one server use at most this share of each resource, one worker at
        least; likewise its PSs. On shared servers the share bounds workers and PSs together.
    chunk_integral
        Whether a slot's workers finish whole data chunks within the slot.

    Raises
    ------
    InvalidProblemError
        If any field contradicts the definitions; the text names field, value and remedy.
    """

    name: str
    horizon: int
    slot_micro_s: int
    resources: tuple[str, ...]
    jobs: Jobs
    worker_servers: ServerClasses
    ps_servers: ServerClasses
    min_utility_share: Fraction = field(default=Fraction(1, 100))
    max_share_per_server: Fraction | None = None
    chunk_integral: bool = False

    def __post_init__(self) -> None:
        from optim.models.admission.validation import validate

        validate(self)

    @classmethod
    def from_jobs(
        cls,
        jobs: Rows,
        *,
        horizon: int,
        slot_s: float = 3600.0,
        worker_servers: Rows | None = None,
        ps_servers: Rows | None = None,
        shared_servers: Rows | None = None,
        resources: Sequence[str] | None = None,
        name: str = "jobs",
        min_utility: float | None = None,
        max_share_per_server: float | None = None,
        chunk_integral: bool | None = None,
    ) -> "AdmissionInstance":
        """Build an instance from plain Python, or from pandas frames with a column a field.

        Parameters
        ----------
        jobs
            A mapping a job (or a frame) with fields as in a file of the schema ``optim/admission/1``. In short: ``id``,
            ``arrival`` (a slot, 0), ``work`` in worker-slots, ``max_workers`` at once (1), ``worker`` and ``ps``, what a
            worker and a parameter server take by resource, ``value`` if the job ends by slot ``deadline`` (or ever).
            Without ``worker_mbps`` and ``ps_mbps`` one parameter server will do. ``work`` is all that a job takes, sending
            included, and excludes ``gradient_mb``, which belongs to ``epochs``, ``chunks``, ``minibatches`` and ``minibatch_s``.
            In frames ``worker.gpu`` is a worker's demand for ``gpu``.
        horizon, slot_s
            Number of slots, and seconds in each.
        worker_servers, ps_servers, shared_servers
            A mapping a class: ``capacity`` by resource, ``count`` (1) and ``type``. Without the last two, parameter
            servers have a host of their own and must need nothing. Shared servers stand for both.
        resources
            Names; those that capacities name unless given.
        name, min_utility, max_share_per_server, chunk_integral
            As in the instance.

        Raises
        ------
        InvalidProblemError
            If a field is unknown, missing, or contradicts the definitions; the text names it.

        Warns
        -----
        UserWarning
            If jobs can never run, with the reasons; `never_run` has them all.

        Examples
        --------
        >>> jobs = [
        ...     {"id": "a", "work": 6, "max_workers": 3, "worker": {"gpu": 1}, "value": 10, "deadline": 2},
        ...     {"id": "b", "work": 4, "max_workers": 2, "worker": {"gpu": 2}, "value": 3},
        ... ]
        >>> instance = AdmissionInstance.from_jobs(jobs, horizon=4, worker_servers=[{"capacity": {"gpu": 4}}])
        >>> instance.work.tolist(), instance.value.max(axis=1).tolist()
        ([6, 4], [10.0, 3.0])
        """
        from optim.models.admission.building import admission_document
        from optim.models.admission.never_run import remark
        from optim.models.admission.reading import instance_from_document

        fields = {"min_utility": min_utility, "max_share_per_server": max_share_per_server}
        servers = {"worker_servers": worker_servers, "ps_servers": ps_servers, "shared_servers": shared_servers}
        instance = instance_from_document(
            admission_document(
                jobs,
                horizon=horizon,
                slot_s=slot_s,
                servers=servers,
                resources=resources,
                name=name,
                chunk_integral=chunk_integral,
                **fields,
            )
        )
        if said := remark(instance):
            warnings.warn(said, stacklevel=2)
        return instance

    def to_frame(self) -> "DataFrame":
        """Return the jobs as a pandas frame, a row a job, a column a field; `from_jobs` reads it.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        from optim.models.admission.building import job_columns

        return frame_of(job_columns(self))

    @property
    def num_jobs(self) -> int:
        """Number of jobs I."""
        return len(self.jobs)

    @property
    def num_resources(self) -> int:
        """Number of resource types R."""
        return len(self.resources)

    @property
    def has_shared_servers(self) -> bool:
        """Whether workers and PSs live on the same servers."""
        return self.worker_servers is self.ps_servers

    @property
    def has_segments(self) -> bool:
        """Whether any job's demands change with the work done."""
        return len(self.jobs.segment_start) > self.num_jobs

    @derived
    def has_steps(self) -> bool:
        """Whether any job's progress is a table by its workers, and not their number."""
        return self.chunk_integral or any(self.jobs.speedup)

    @derived
    def segment_job(self) -> IntArray:
        """Job of each demand segment, shape (segments,)."""
        return np.repeat(np.arange(self.num_jobs), np.diff(self.jobs.segment_offset))

    @derived
    def chunk_slots(self) -> tuple[Fraction, ...]:
        """Worker-slots that one data chunk takes, M kappa with kappa = (tau + 2 e / b), exactly."""
        jobs = self.jobs
        slot = Fraction(self.slot_micro_s, MICRO)
        result = []
        for minibatches, tau, gradient, rate in zip(
            jobs.minibatches.tolist(),
            jobs.minibatch_micro_s.tolist(),
            jobs.gradient_micro_mb.tolist(),
            jobs.worker_micro_mbps.tolist(),
            strict=True,
        ):
            seconds = Fraction(tau, MICRO) + Fraction(MEGABITS_THERE_AND_BACK * gradient, rate)
            result.append(minibatches * seconds / slot)
        return tuple(result)

    @derived
    def work(self) -> IntArray:
        """W_i = ceil(E N M kappa), the worker-slots that job i needs (row (2)), at least 1; shape (jobs,)."""
        pairs = zip(self.jobs.epochs.tolist(), self.jobs.chunks.tolist(), self.chunk_slots, strict=True)
        needed = (max(1, -((-e * n * chunk) // 1)) for e, n, chunk in pairs)
        return np.array([min(amount, FAR_TOO_MUCH) for amount in needed], dtype=np.int64)

    @derived
    def target(self) -> IntArray:
        """Units of progress that complete a job, shape (jobs,).

        Worker-slots W_i; chunks E_i N_i if `chunk_integral`; else twentieths of worker-slots where there is a speed-up.
        """
        if not self.chunk_integral:
            result = self.work.copy()
            for i in self._curved:
                amount = TWENTIETHS * int(self.jobs.epochs[i]) * int(self.jobs.chunks[i]) * self.chunk_slots[i]
                result[i] = min(max(1, -(-amount // 1)), FAR_TOO_MUCH)
            return result
        pairs = zip(self.jobs.epochs.tolist(), self.jobs.chunks.tolist(), strict=True)
        return np.array([min(epochs * chunks, FAR_TOO_MUCH) for epochs, chunks in pairs], dtype=np.int64)

    @derived
    def max_workers(self) -> IntArray:
        """Most workers that job i ever runs at once, min(N_i, W_i) (N_i where progress is a table); shape (jobs,)."""
        result = self.jobs.chunks.copy() if self.chunk_integral else np.minimum(self.jobs.chunks, self.work)
        result[self._curved] = self.jobs.chunks[self._curved]
        return result

    @derived
    def _curved(self) -> list[int]:
        """Jobs with a table of speed-ups."""
        return [i for i, table in enumerate(self.jobs.speedup) if table]

    @derived
    def progress(self) -> tuple[IntArray, ...]:
        """For each job the progress made in one slot by Y = 0, ..., max_workers workers (row (2))."""
        tables = []
        for i, (most, chunk) in enumerate(zip(self.max_workers.tolist(), self.chunk_slots, strict=True)):
            table, unit = np.arange(most + 1, dtype=np.int64), 1
            if curve := curve_of(self.jobs, i):
                table, unit = progress_by_workers(curve, most), TWENTIETHS
            if self.chunk_integral and chunk > 0:
                table = np.array([int(speed / (unit * chunk)) for speed in table.tolist()], dtype=np.int64)
            elif self.chunk_integral:
                table = np.where(np.arange(most + 1) > 0, np.iinfo(np.int32).max, 0).astype(np.int64)
            tables.append(table)
        return tuple(tables)

    @derived
    def ps_needed(self) -> tuple[IntArray, ...]:
        """For each job Z(Y) = ceil(Y b / B), the PSs that Y = 0, ..., max_workers workers need (row (6))."""
        tables = []
        rates = zip(
            self.max_workers.tolist(),
            self.jobs.worker_micro_mbps.tolist(),
            self.jobs.ps_micro_mbps.tolist(),
            strict=True,
        )
        for most, worker_rate, ps_rate in rates:
            tables.append(np.array([-((-y * worker_rate) // ps_rate) for y in range(most + 1)], dtype=np.int64))
        return tuple(tables)

    @derived
    def value(self) -> FloatArray:
        """What completing job i in slot t earns, shape (jobs, slots).

        Zero before arrival, and from the first slot on in which the utility falls below its minimum.
        """
        table = np.zeros((self.num_jobs, self.horizon))
        for i, (arrival, utility) in enumerate(zip(self.jobs.arrival.tolist(), self.jobs.utilities, strict=True)):
            worth = utility.values(self.horizon - arrival)
            floor = self.jobs.min_utility[i]
            if np.isnan(floor):
                floor = float(self.min_utility_share) * worth[0]
            table[i, arrival:] = np.where(worth >= floor, worth, 0.0)
        return table

    @derived
    def deadline(self) -> IntArray:
        """Last slot in which completing job i earns anything, -1 if none; shape (jobs,)."""
        earns = self.value > 0
        last = self.horizon - 1 - np.argmax(earns[:, ::-1], axis=1)
        return np.where(earns.any(axis=1), last, -1).astype(np.int64)

    @derived
    def earliest_completion(self) -> IntArray:
        """Slot in which each job completes if it has the cluster for itself, -1 where it never does; shape (jobs,)."""
        from optim.models.admission.reach import earliest_completion

        return earliest_completion(self)

    @property
    def never_run(self) -> Mapping[str, str]:
        """Jobs that no plan can admit, by id, each with the reason."""
        return MappingProxyType(dict(self._never_run))

    @derived
    def _never_run(self) -> tuple[tuple[str, str], ...]:
        from optim.models.admission.never_run import never_run

        return tuple(never_run(self).items())

    @derived
    def workers_per_server(self) -> IntArray:
        """n: most workers of a job's segment on ONE server of a class, shape (segments, classes, slots).

        Whole numbers of demands in the empty capacity, capped by N_i and `max_share_per_server`.
        """
        most = self.max_workers[self.segment_job]
        return units_per_server(self.jobs.worker_demand, self.worker_servers.capacity, most, self.max_share_per_server)

    @derived
    def ps_per_server(self) -> IntArray:
        """m: most PSs of a job's segment on ONE server of a class, shape (segments, classes, slots)."""
        most = np.array([table[-1] for table in self.ps_needed], dtype=np.int64)[self.segment_job]
        return units_per_server(self.jobs.ps_demand, self.ps_servers.capacity, most, self.max_share_per_server)


def units_per_server(demand: IntArray, capacity: IntArray, most: IntArray, share: Fraction | None) -> IntArray:
    """Return how many units of each demand one server of each class holds in each slot, exactly."""
    num_segments, num_resources = demand.shape
    result = np.repeat(
        np.broadcast_to(most[:, None], (num_segments, capacity.shape[0]))[:, :, None], capacity.shape[1], axis=2
    ).copy()
    allowed = result.copy()
    for r in range(num_resources):
        unit = demand[:, r]
        uses = unit > 0
        if not uses.any():
            continue
        divisor = unit[uses][:, None, None]
        result[uses] = np.minimum(result[uses], capacity[None, :, :, r] // divisor)
        if share is not None:
            part = _share_of(capacity[:, :, r], share)
            allowed[uses] = np.minimum(allowed[uses], part[None] // divisor)
    if share is not None:
        result = np.minimum(result, np.maximum(1, allowed))
    return result


def _share_of(capacity: IntArray, share: Fraction) -> IntArray:
    """Return floor(share * capacity) exactly: demands are whole, so the floor loses nothing."""
    flat = [quantity * share.numerator // share.denominator for quantity in capacity.ravel().tolist()]
    return np.array(flat, dtype=np.int64).reshape(capacity.shape)
