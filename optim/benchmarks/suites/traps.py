"""The study `traps`: what the parameter-server kernels avoid, and what it would cost.

A row does one piece of work by the kernel and as one would write it first, in turns, and compares the results.
`milliseconds` are the kernel's, `naive_ms` the other's, `times` the quotient, and `processor_times` that of processor
seconds: an update with slots runs on one core, where a shard has a thread, and the whole expression on all cores. For
`two-carries` both are measured on a table of ten times the rows too: `growth` and `naive_growth` are what that takes
over the smaller one, and a push should take as long as before. `roof-in-cache` compares speeds: it shows what a roof
would be that fits into a cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.benchmarks.kernels.options import TrapOptions
from optim.benchmarks.racing import medians, race, timed
from optim.benchmarks.spec import FULL, SMALL
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.core.clock import PhaseClock
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion

NAMES = ("stacked-sum", "donation", "row-scatter", "two-carries", "shared-producer", "many-leaves", "roof-in-cache")
AGREEMENT = 1e-4
"""Largest difference between two ways of doing the same, after one update of rate 0.01."""


SIZES: Mapping[str, TrapOptions] = MappingProxyType(
    {
        SMALL: TrapOptions(
            parameters=1 << 20, pushed=16_384, rows=1 << 16, carried_pushes=128, carried_rows=1_000, rounds=3
        ),
        FULL: TrapOptions(),
    }
)


@dataclass(frozen=True, kw_only=True)
class TrapWork(AbstractStudy):
    """Run both sides of a trap, round after round."""

    options_type = TrapOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Measure one row."""
        import jax

        from optim.benchmarks.kernels.traps import OURS, TRAPS

        clock, rounds = PhaseClock(), self.chosen.rounds
        with clock.phase("build"):
            trap = TRAPS[self.subject.name](self.chosen, np.random.default_rng(self.seed))
        compile_s = sum(timed(call)[0] for call in trap.calls.values())
        difference = trap.difference()
        times = race(trap.calls, rounds, stop, progress, always=(OURS,))
        return Finding(
            parameters={"trap": self.subject.name, "device": jax.devices()[0].device_kind},
            measures={
                **_figures(medians(times), medians(times, 1), trap.moved),
                "difference": difference,
            },
            seconds=clock.seconds | {"compile": compile_s, "solve": float(np.sum(times[OURS], axis=0)[0])},
            problems=[] if difference <= AGREEMENT else [f"the two ways differ by {difference:.2e}"],
            iterations=len(times[OURS]),
            is_whole=len(times[OURS]) == rounds,
        )


def _figures(wall: dict[str, float], spent: dict[str, float], moved: Mapping[str, int]) -> dict[str, Any]:
    """Return medians by side, speeds, and quotients."""
    from optim.benchmarks.kernels.traps import GROWTH, NAIVE, OURS

    speeds = {name: moved[name] / wall[name] / 1e9 for name in moved}
    is_same_work = len(set(moved.values())) <= 1
    figures: dict[str, Any] = {
        "milliseconds": 1e3 * wall[OURS],
        "naive_ms": 1e3 * wall[NAIVE],
        "times": wall[NAIVE] / wall[OURS] if is_same_work else speeds[NAIVE] / speeds[OURS],
        "processor_ms": 1e3 * spent[OURS],
        "naive_processor_ms": 1e3 * spent[NAIVE],
        "processor_times": spent[NAIVE] / max(spent[OURS], 1e-9) if is_same_work else None,
    }
    figures |= {f"{name}_ms": 1e3 * seconds for name, seconds in wall.items() if name not in (OURS, NAIVE)}
    figures |= {f"{name}_gigabytes_per_s": speed for name, speed in speeds.items()}
    for name, label in ((OURS, "growth"), (NAIVE, "naive_growth")):
        larger = f"{name}_{GROWTH}"
        figures[label] = wall[larger] / wall[name] if larger in wall else None
    return figures


def _subjects(options: TrapOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    del seed
    for name in NAMES:
        yield StudySubject(name=name, topic="kernels", drawn_from=options), {}


SPEC = register_study(
    "traps",
    "kernels",
    "what the parameter-server kernels avoid, and what it would cost",
    kind=TrapWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("jax",),
    columns=("milliseconds", "naive_ms", "times", "processor_times", "growth", "naive_growth"),
)
