"""Draw the jobs of a generated instance, as columns."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from optim.models.admission.instance import (
    MEGABITS_THERE_AND_BACK,
    MICRO,
    AdmissionInstance,
    FloatArray,
    IntArray,
    Jobs,
)
from optim.models.admission.utility import Utility
from optim.workloads.admission.durations import draw_durations
from optim.workloads.admission.generator_options import GeneratorOptions

HORIZON_SHARE = 1 / 3
"""Shortest durations take at most this share of the horizon."""

KILO = 1_000
"""Gradients are whole kilobytes: 1e3 of their 1e-6 megabytes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JobColumns:
    """One array a field over all jobs, in the instance's own units.

    Parameters
    ----------
    arrival, epochs, chunks, minibatches
        As in `Jobs`, shape (jobs,).
    minibatch_micro_s, gradient_micro_mb, worker_micro_mbps, ps_micro_mbps
        Likewise.
    cut
        Where demand segments begin, in 1e-6 of the job's work, ascending from 0; shape (jobs, segments).
    worker_demand, ps_demand
        Demands by segment, shape (jobs, segments, resources).
    utilities
        One function a job, an array of objects.
    speedup
        One table of twentieths a job, an array of tuples; None where all speeds are linear.
    """

    arrival: IntArray
    epochs: IntArray
    chunks: IntArray
    minibatches: IntArray
    minibatch_micro_s: IntArray
    gradient_micro_mb: IntArray
    worker_micro_mbps: IntArray
    ps_micro_mbps: IntArray
    cut: IntArray
    worker_demand: IntArray
    ps_demand: IntArray
    utilities: np.ndarray[Any, np.dtype[np.object_]]
    speedup: np.ndarray[Any, np.dtype[np.object_]] | None = None

    @classmethod
    def draw(cls, options: GeneratorOptions, arrival: IntArray, rng: np.random.Generator) -> Self:
        """Draw a job for each arrival."""
        size = len(arrival)
        epochs, chunks, minibatches = (
            rng.integers(low, high, size=size, endpoint=True)
            for low, high in (options.epochs, options.chunk_range, options.minibatches)
        )
        target_delay = rng.integers(*options.target_delay, size=size, endpoint=True)
        slots_left = options.num_slots - arrival
        longest = np.minimum(np.minimum(target_delay, options.num_slots * HORIZON_SHARE), slots_left)
        duration = draw_durations(options.duration_median, options.duration_sigma, options.shortest, longest, rng)
        seconds = duration * options.slot_s / (epochs * minibatches)
        gradient, rate = _draw_communication(options, seconds, rng)
        compute = seconds * MICRO - MEGABITS_THERE_AND_BACK * MICRO * gradient / rate
        utilities = np.empty(size, dtype=np.object_)
        utilities[:] = options.utilities.draw(target_delay.astype(np.float64), rng)
        return cls(
            arrival=arrival,
            epochs=epochs,
            chunks=chunks,
            minibatches=minibatches,
            minibatch_micro_s=np.maximum(np.floor(compute), 0).astype(np.int64),
            gradient_micro_mb=gradient,
            worker_micro_mbps=rate,
            ps_micro_mbps=rng.integers(*options.ps_mbps, size=size, endpoint=True) * MICRO,
            cut=_draw_cuts(size, options.segments, rng),
            worker_demand=_draw_demands(
                size,
                options.segments,
                (options.worker_gpu, options.worker_vcpu, options.worker_memory_gb, options.storage_gb),
                rng,
            ),
            ps_demand=_draw_demands(
                size,
                options.segments,
                ((0, 0), options.ps_vcpu, options.ps_memory_gb, options.storage_gb),
                rng,
            ),
            utilities=utilities,
        )

    def with_rows(self, which: IntArray, others: "JobColumns") -> "JobColumns":
        """Return these columns with the jobs `which` exchanged for others."""
        columns = {}
        for field in dataclasses.fields(self):
            column = getattr(self, field.name)
            if column is not None:
                column = column.copy()
                column[which] = getattr(others, field.name)
            columns[field.name] = column
        return JobColumns(**columns)

    def jobs(self) -> Jobs:
        """Return the jobs with their first segments only."""
        number = len(self.arrival)
        width = len(str(max(number - 1, 0)))
        utilities: list[Utility] = self.utilities.tolist()
        return Jobs(
            ids=tuple(f"job-{i:0{width}d}" for i in range(number)),
            arrival=self.arrival,
            epochs=self.epochs,
            chunks=self.chunks,
            minibatches=self.minibatches,
            minibatch_micro_s=self.minibatch_micro_s,
            gradient_micro_mb=self.gradient_micro_mb,
            worker_micro_mbps=self.worker_micro_mbps,
            ps_micro_mbps=self.ps_micro_mbps,
            segment_offset=np.arange(number + 1, dtype=np.int64),
            segment_start=np.zeros(number, dtype=np.int64),
            worker_demand=self.worker_demand[:, 0],
            ps_demand=self.ps_demand[:, 0],
            utilities=tuple(utilities),
            min_utility=np.full(number, np.nan),
            speedup=() if self.speedup is None else tuple(self.speedup.tolist()),
        )

    def segmented(self, instance: AdmissionInstance) -> AdmissionInstance:
        """Return an instance of these jobs with all segments; cuts that fall together are one."""
        offset, start = [0], []
        rows: list[tuple[int, int]] = []
        for i, target in enumerate(instance.target.tolist()):
            places = [cut * target // MICRO for cut in self.cut[i].tolist()]
            kept = [s for s, place in enumerate(places) if s == 0 or place > places[s - 1]]
            rows += [(i, s) for s in kept]
            start += [places[s] for s in kept]
            offset.append(len(start))
        job, segment = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        jobs = dataclasses.replace(
            instance.jobs,
            segment_offset=np.array(offset, dtype=np.int64),
            segment_start=np.array(start, dtype=np.int64),
            worker_demand=self.worker_demand[job, segment],
            ps_demand=self.ps_demand[job, segment],
        )
        return dataclasses.replace(instance, jobs=jobs)


def _draw_communication(
    options: GeneratorOptions, seconds: FloatArray, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw e and b such that sending takes at most a drawn share of the mini-batches' seconds."""
    size = len(seconds)
    gradient = rng.uniform(*options.gradient_mb, size=size)
    drawn_rate = rng.integers(*options.worker_mbps, size=size, endpoint=True)
    allowed = seconds * rng.uniform(*options.communication, size=size)
    with np.errstate(divide="ignore"):
        needed = np.ceil(MEGABITS_THERE_AND_BACK * gradient / allowed)
    rate = np.clip(needed, drawn_rate, options.worker_mbps[1])
    most = allowed * rate / MEGABITS_THERE_AND_BACK
    kilobytes = np.floor(np.minimum(gradient, most) * KILO)
    return kilobytes.astype(np.int64) * KILO, rate.astype(np.int64) * MICRO


def _draw_cuts(size: int, segments: int, rng: np.random.Generator) -> IntArray:
    cut = np.zeros((size, segments), dtype=np.int64)
    cut[:, 1:] = np.sort(rng.integers(MICRO, size=(size, segments - 1)), axis=1)
    return cut


def _draw_demands(size: int, segments: int, ranges: tuple[tuple[int, int], ...], rng: np.random.Generator) -> IntArray:
    """Draw whole demands by job, segment and resource; GPUs and storage don't change between segments."""
    columns = [rng.integers(low, high, size=(size, segments), endpoint=True) for low, high in ranges]
    for fixed in (0, -1):
        columns[fixed][:] = columns[fixed][:, :1]
    return np.stack(columns, axis=2) * MICRO
