"""Small instances as an adversary sees them: waves of equal jobs on a few equal servers, and moves between."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from optim.models.admission.instance import MICRO, AdmissionInstance, Jobs, ServerClasses, as_int_array
from optim.models.admission.utility import StepUtility

PER_CENT = MICRO // 100
"""One per cent of a server: demands are whole multiples of it."""

PS_PER_CENT = 5
"""What a PS takes of a PS host, in per cent: PSs are no bottleneck, but their rows have prices."""

VALUE_FACTORS = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 10.0)
"""By how much a move changes what a job is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """`copies` equal jobs that arrive one after the other.

    Parameters
    ----------
    arrival, patience
        Slot of arrival, and the largest delay that still earns `value`; later completions earn nothing.
    work, most
        Worker-slots needed, and most workers at once.
    demand
        What a worker takes of a server, in per cent.
    value
        Utils of each job.
    """

    arrival: int = 0
    patience: int = 0
    work: int = 1
    most: int = 1
    demand: int = 10
    value: float = 1.0
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchRanges:
    """What an adversary may draw.

    Parameters
    ----------
    horizon, servers
        Most slots, and most servers on each side.
    waves, copies
        Most waves, and most jobs in a wave.
    work
        Most worker-slots of a job.
    demand
        Largest demand of a worker in per cent of a server. A job never has more workers on a server
        in a slot than fit into this share, so that it bounds the theorems' epsilon.
    value_spread
        Values lie between 1 and this.
    """

    horizon: int = 3
    servers: int = 2
    waves: int = 4
    copies: int = 1
    work: int = 3
    demand: int = 60
    value_spread: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Waves in their order of arrival, on `servers` equal worker servers and as many PS hosts."""

    horizon: int
    servers: int
    waves: tuple[Wave, ...]
    share: Fraction

    def in_order(self) -> tuple[Wave, ...]:
        """Return the waves by arrival, then as listed: the order of the instance's jobs."""
        return tuple(sorted(self.waves, key=lambda wave: wave.arrival))

    def instance(self, name: str) -> AdmissionInstance:
        """Build the instance: one resource, a slot of one second, one PS for every worker."""
        singles = [wave for wave in sorted(self.waves, key=lambda wave: wave.arrival) for _ in range(wave.copies)]
        num = len(singles)
        ones = as_int_array([1] * num)
        capacity = np.full((1, self.horizon, 1), MICRO, dtype=np.int64)
        capacity.setflags(write=False)
        return AdmissionInstance(
            name=name,
            horizon=self.horizon,
            slot_micro_s=MICRO,
            resources=("share",),
            jobs=Jobs(
                ids=tuple(f"job-{i}" for i in range(num)),
                arrival=as_int_array([wave.arrival for wave in singles]),
                # E N M tau = work: E chunks of work for each of N = most chunks' share of a second.
                epochs=as_int_array([wave.work for wave in singles]),
                chunks=as_int_array([wave.most for wave in singles]),
                minibatches=ones,
                minibatch_micro_s=as_int_array([MICRO // wave.most for wave in singles]),
                gradient_micro_mb=as_int_array([0] * num),
                worker_micro_mbps=ones,
                ps_micro_mbps=ones,
                segment_offset=as_int_array(list(range(num + 1))),
                segment_start=as_int_array([0] * num),
                worker_demand=as_int_array([wave.demand * PER_CENT for wave in singles]).reshape(num, 1),
                ps_demand=as_int_array([PS_PER_CENT * PER_CENT] * num).reshape(num, 1),
                utilities=tuple(StepUtility(value=wave.value, max_delay=wave.patience) for wave in singles),
                min_utility=np.full(num, np.nan),
            ),
            worker_servers=ServerClasses(types=("worker",), capacity=capacity, count=as_int_array([self.servers])),
            ps_servers=ServerClasses(types=("ps",), capacity=capacity, count=as_int_array([self.servers])),
            max_share_per_server=self.share,
        )


def draw_sketch(ranges: SketchRanges, rng: np.random.Generator) -> Sketch:
    """Draw a sketch at random."""
    horizon = int(rng.integers(1, ranges.horizon + 1))
    waves = tuple(_draw_wave(ranges, horizon, rng) for _ in range(int(rng.integers(1, ranges.waves + 1))))
    return Sketch(
        horizon=horizon,
        servers=int(rng.integers(1, ranges.servers + 1)),
        waves=waves,
        share=Fraction(ranges.demand, 100),
    )


def neighbour(sketch: Sketch, ranges: SketchRanges, rng: np.random.Generator) -> Sketch:
    """Return a sketch that differs in one trait: a wave's field, a wave more or less, or two waves' order."""
    waves = list(sketch.waves)
    place = int(rng.integers(len(waves)))
    kind = int(rng.integers(8))
    if kind == 0 and len(waves) < ranges.waves:
        waves.insert(place, _draw_wave(ranges, sketch.horizon, rng))
    elif kind == 1 and len(waves) > 1:
        del waves[place]
    elif kind == 2 and len(waves) > 1:
        other = int(rng.integers(len(waves)))
        waves[place], waves[other] = waves[other], waves[place]
    else:
        waves[place] = _changed(waves[place], ranges, sketch.horizon, rng)
    return replace(sketch, waves=tuple(waves))


def _draw_wave(ranges: SketchRanges, horizon: int, rng: np.random.Generator) -> Wave:
    arrival = int(rng.integers(horizon))
    return Wave(
        arrival=arrival,
        patience=int(rng.integers(horizon - arrival)),
        work=int(rng.integers(1, ranges.work + 1)),
        most=int(rng.choice((1, 2))),
        demand=int(rng.integers(1, ranges.demand + 1)),
        value=_clip(ranges.value_spread ** rng.random(), ranges),
        copies=int(rng.integers(1, ranges.copies + 1)),
    )


def _changed(wave: Wave, ranges: SketchRanges, horizon: int, rng: np.random.Generator) -> Wave:
    """Return a wave with one field changed a little, or its value by a factor."""
    fresh = _draw_wave(ranges, horizon, rng)
    match int(rng.integers(6)):
        case 0:
            return replace(wave, arrival=fresh.arrival, patience=fresh.patience)
        case 1:
            return replace(wave, work=fresh.work, most=fresh.most)
        case 2:
            step = int(rng.choice((-5, -1, 1, 5)))
            return replace(wave, demand=min(ranges.demand, max(1, wave.demand + step)))
        case 3:
            step = int(rng.choice((-2, -1, 1, 2)))
            return replace(wave, copies=min(ranges.copies, max(1, wave.copies + step)))
        case _:
            return replace(wave, value=_clip(wave.value * float(rng.choice(VALUE_FACTORS)), ranges))


def _clip(value: float, ranges: SketchRanges) -> float:
    """Return a value inside the spread, with three significant digits so that instances stay readable."""
    return float(f"{min(ranges.value_spread, max(1.0, value)):.3g}")
