"""The study `traps`: pitfalls that the parameter-server kernels avoid, and the cost of each.

Measurements on CPUs found all of these. The study repeats them because compilers change: the workaround for a pitfall
that has no cost any more can be removed.

A row alternates between the kernel and the naive code on the same work, and compares the results.
`milliseconds` is the kernel's time, `naive_ms` the naive code's, and `times` their ratio. `processor_times` is the ratio of
processor seconds, since an update with slots runs on one core and the naive expression on all cores. For
`two-carries` both also run on a table with ten times the rows: `growth` and `naive_growth` are the ratios to the time
on the smaller table, ideally 1. `roof-in-cache` compares speeds: it shows the
roof of a working set that fits into a cache.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.benchmarks.measuring import Call, medians, race, timed
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.kernels.parameter_server import (
    Adagrad,
    Adam,
    RowLayout,
    Sgd,
    apply_pushes,
    initial_rows,
    push_sparse,
)
from optim_studies.kernels.baselines import RATE, StatefulCall, TrapOptions, furthest
from optim_studies.kernels.memory_speed import roof_bytes

OURS, NAIVE = "ours", "naive"

GROWTH = 10
"""Rows of the larger table per row of the smaller one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    """A pitfall, ready to measure.

    Parameters
    ----------
    calls
        The same work by each implementation, including `OURS` and `NAIVE`. The name of a call at another size ends with
        the size's factor.
    moved
        Minimum number of bytes that each implementation must move, if its speed is of interest.
    difference
        Function that returns the maximum difference between results, after equal numbers of runs.
    """

    calls: dict[str, Call]
    moved: dict[str, int]
    difference: Callable[[], float]


def stacked_sum(sizes: TrapOptions, rng: np.random.Generator) -> Trap:
    """Return sums over W pushes: a chain of separate arguments, and three implementations over stacked pushes."""
    workers, size = sizes.workers, sizes.parameters
    stacked = rng.random((workers, size), dtype=np.float32) - np.float32(0.5)
    pushes, stacked_pushes = [jnp.array(push) for push in stacked], jnp.array(stacked)
    weights, version = jnp.ones(workers), jnp.int32(0)

    def chained(w: jax.Array) -> jax.Array:
        return apply_pushes(w, (), pushes, weights, version, optimiser=Sgd(learning_rate=RATE))[0]

    def by(mean: Callable[[jax.Array], jax.Array]) -> Callable[..., Any]:
        update: Callable[..., Any] = jax.jit(lambda w, pushed: w - RATE * mean(pushed), donate_argnums=0)
        return update

    def scanned(pushed: jax.Array) -> jax.Array:
        return lax.scan(lambda total, push: (total + push, None), jnp.zeros(size), pushed)[0] / workers

    sides = {
        OURS: StatefulCall(chained, jnp.zeros(size)),
        NAIVE: StatefulCall(by(lambda pushed: jnp.sum(pushed, axis=0) / workers), jnp.zeros(size), stacked_pushes),
        "product": StatefulCall(
            by(lambda pushed: jnp.full(workers, 1.0 / workers) @ pushed), jnp.zeros(size), stacked_pushes
        ),
        "scan": StatefulCall(by(scanned), jnp.zeros(size), stacked_pushes),
    }
    return Trap(
        calls=dict(sides),
        moved=dict.fromkeys(sides, 4 * size * (workers + 2)),
        difference=lambda: furthest(*(side.state for side in sides.values())),
    )


def donation(sizes: TrapOptions, rng: np.random.Generator) -> Trap:
    """Return one pass over a buffer beyond the cache, in place and into fresh memory."""
    size = max(sizes.parameters, roof_bytes() // 8)
    start = jnp.array(rng.random(size, dtype=np.float32))
    sides = {
        OURS: StatefulCall(jax.jit(lambda x: x + 1.0, donate_argnums=0), jnp.copy(start)),
        NAIVE: StatefulCall(jax.jit(lambda x: x + 1.0), start),
    }
    return Trap(
        calls=dict(sides),
        moved=dict.fromkeys(sides, 8 * size),
        difference=lambda: furthest(sides[OURS].state, sides[NAIVE].state),
    )


def row_scatter(sizes: TrapOptions, rng: np.random.Generator) -> Trap:
    """Return a sparse push row by row, and by one scatter."""
    layout = RowLayout(optimiser=Sgd(learning_rate=RATE), width=sizes.width)
    rows = jnp.array(rng.integers(0, sizes.rows, sizes.pushed), jnp.int32)
    values = jnp.array(rng.random((sizes.pushed, sizes.width), dtype=np.float32))
    start = jnp.zeros((sizes.rows, sizes.width))
    ours = StatefulCall(
        lambda table: push_sparse(table, rows, values, jnp.int32(0), layout=layout), initial_rows(start, layout)
    )
    scatter = jax.jit(lambda w, rows, values: w.at[rows].add(-RATE * values), donate_argnums=0)
    naive = StatefulCall(scatter, start, rows, values)
    moved = 4 * sizes.pushed * (3 * sizes.width + 1)
    return Trap(
        calls={OURS: ours, NAIVE: naive},
        moved={OURS: moved, NAIVE: moved},
        difference=lambda: furthest(ours.state.parameters, naive.state),
    )


def two_carries(sizes: TrapOptions, rng: np.random.Generator) -> Trap:
    """Return exact Adagrad with one loop per array, and with one loop that carries both arrays, on two tables.

    A loop over rows that carries more than one array copies them at every step: its time grows with the table. The same
    push into ten times the rows must take as long as before.
    """
    rule = Adagrad(learning_rate=RATE)
    layout = RowLayout(optimiser=rule, width=sizes.width)
    values = jnp.array(rng.random((sizes.carried_pushes, sizes.width), dtype=np.float32))
    sides: dict[str, StatefulCall] = {}
    for suffix, num_rows in (("", sizes.carried_rows), (f"_{GROWTH}", GROWTH * sizes.carried_rows)):
        # Each row once: the naive loop doesn't add up repeated rows first.
        rows = jnp.array(rng.choice(num_rows, sizes.carried_pushes, replace=False), jnp.int32)
        start = jnp.zeros((num_rows, sizes.width))

        def push(table: Any, rows: jax.Array = rows) -> Any:
            return push_sparse(table, rows, values, jnp.int32(0), layout=layout)

        sides[OURS + suffix] = StatefulCall(push, initial_rows(start, layout))
        sides[NAIVE + suffix] = StatefulCall(
            _carry_both(rule, sizes.width), (start, jnp.zeros_like(start)), rows, values
        )

    def difference() -> float:
        return max(
            furthest(sides[OURS + suffix].state.parameters, sides[NAIVE + suffix].state[0])
            for suffix in ("", f"_{GROWTH}")
        )

    return Trap(calls=dict(sides), moved={}, difference=difference)


def _carry_both(rule: Adagrad, width: int) -> Callable[..., Any]:
    """Return the most obvious implementation of the update: one loop, in which each row changes in both arrays."""

    def visit(carried: Any, message: Any) -> tuple[Any, None]:
        (table, squares), (row, gradient) = carried, message
        at = (row, 0)
        old, slot = (lax.dynamic_slice(array, at, (1, width)) for array in (table, squares))
        new, (new_slot,) = rule.update(old, (slot,), gradient[None], jnp.int32(1))
        return (lax.dynamic_update_slice(table, new, at), lax.dynamic_update_slice(squares, new_slot, at)), None

    def push(state: Any, rows: jax.Array, values: jax.Array) -> Any:
        return lax.scan(visit, state, (rows, values))[0]

    update: Callable[..., Any] = jax.jit(push, donate_argnums=0)
    return update


def shared_producer(sizes: TrapOptions, rng: np.random.Generator) -> Trap:
    """Return aggregation with Adam block by block, and as one expression, whose sum is computed again for each output."""
    rule, workers, size = Adam(learning_rate=RATE), sizes.workers, sizes.parameters
    pushes = tuple(jnp.array(rng.random(size, dtype=np.float32) - np.float32(0.5)) for _ in range(workers))
    weights, version = jnp.ones(workers), jnp.int32(0)

    def ours(state: Any) -> Any:
        parameters, slots = state
        return apply_pushes(parameters, slots, pushes, weights, version, optimiser=rule)

    def in_one_expression(state: Any, pushes: tuple[jax.Array, ...]) -> Any:
        total = pushes[0]
        for push in pushes[1:]:
            total = push + total
        parameters, slots = state
        return rule.update(parameters, slots, total / workers, jnp.int32(1))

    sides = {
        OURS: StatefulCall(ours, (jnp.zeros(size), rule.initial_slots(jnp.zeros(size)))),
        NAIVE: StatefulCall(
            jax.jit(in_one_expression, donate_argnums=0), (jnp.zeros(size), rule.initial_slots(jnp.zeros(size))), pushes
        ),
    }
    return Trap(
        calls=dict(sides),
        moved=dict.fromkeys(sides, 4 * size * (workers + 6)),
        difference=lambda: furthest(*(side.state[0] for side in sides.values())),
    )


def many_leaves(sizes: TrapOptions, rng: np.random.Generator) -> Trap:
    """Return an update of one flat vector, and of the same parameters in many arrays."""
    part = max(1, sizes.parameters // sizes.leaves)
    workers, size = 4, part * sizes.leaves
    gradients = [rng.random(size, dtype=np.float32) - np.float32(0.5) for _ in range(workers)]
    pushes, weights = [jnp.array(push) for push in gradients], jnp.ones(workers)
    trees = tuple([jnp.array(leaf) for leaf in push.reshape(sizes.leaves, part)] for push in gradients)

    def flat(w: jax.Array) -> jax.Array:
        return apply_pushes(w, (), pushes, weights, jnp.int32(0), optimiser=Sgd(learning_rate=RATE))[0]

    def by_leaf(state: Any, *sent: Any) -> Any:
        return jax.tree.map(lambda w, *leaves: w - RATE * (sum(leaves) / workers), state, *sent)

    ours = StatefulCall(flat, jnp.zeros(size))
    naive = StatefulCall(jax.jit(by_leaf, donate_argnums=0), [jnp.zeros(part) for _ in range(sizes.leaves)], *trees)
    return Trap(
        calls={OURS: ours, NAIVE: naive},
        moved=dict.fromkeys((OURS, NAIVE), 4 * size * (workers + 2)),
        difference=lambda: furthest(ours.state, np.concatenate([np.asarray(leaf) for leaf in naive.state])),
    )


def roof_in_cache(sizes: TrapOptions, rng: np.random.Generator) -> Trap:
    """Return a pass over up to four cache sizes, at the memory's speed, and one over a sixteenth of it, in the cache."""
    del sizes
    first = float(rng.random())
    add, size = jax.jit(lambda x: x + 1.0, donate_argnums=0), roof_bytes() // 4
    lengths = {OURS: size, NAIVE: size // 16}
    sides = {name: StatefulCall(add, jnp.full(length, first)) for name, length in lengths.items()}
    return Trap(
        calls=dict(sides),
        moved={name: 8 * length for name, length in lengths.items()},
        difference=lambda: abs(float(sides[OURS].state[0]) - float(sides[NAIVE].state[0])),
    )


TRAPS: Mapping[str, Callable[[TrapOptions, np.random.Generator], Trap]] = MappingProxyType(
    {
        "stacked-sum": stacked_sum,
        "donation": donation,
        "row-scatter": row_scatter,
        "two-carries": two_carries,
        "shared-producer": shared_producer,
        "many-leaves": many_leaves,
        "roof-in-cache": roof_in_cache,
    }
)

NAMES = ("stacked-sum", "donation", "row-scatter", "two-carries", "shared-producer", "many-leaves", "roof-in-cache")

AGREEMENT = 1e-4
"""Maximum difference between two implementations after one update with learning rate 0.01."""

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
    """Run all implementations of a trap in rounds."""

    options_type = TrapOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Measure one row."""
        import jax

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
            problems=[] if difference <= AGREEMENT else [f"results of the implementations differ by {difference:.2e}"],
            iterations=len(times[OURS]),
            is_whole=len(times[OURS]) == rounds,
        )


def _figures(wall: dict[str, float], spent: dict[str, float], moved: Mapping[str, int]) -> dict[str, Any]:
    """Return medians by implementation, speeds, and ratios."""
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
    "pitfalls that the parameter-server kernels avoid, and their cost",
    kind=TrapWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("jax",),
    columns=("milliseconds", "naive_ms", "times", "processor_times", "growth", "naive_growth"),
)
