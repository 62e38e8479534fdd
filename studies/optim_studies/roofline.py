"""The study `roofline`: every kernel on JAX's default device, as a share of the device's roof.

A row times one kernel by queued calls with a single wait, so launch overhead counts only if it is the bottleneck.
Its floor is the larger of two times: the bytes to move, at the speed of a copy in the same run, and the operations, at the
speed of a float32 matrix product in the same run. `bound` names the larger one, and `share` is the floor over the
median time. Rows of dependent steps, such as a CRBM in small batches, necessarily have a small share.
NumPy checks every result, on a sample of elements or rows if a full check would take minutes.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError, check_in
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion

if TYPE_CHECKING:
    import jax

Call = Callable[[], Any]

RATE, SAMPLE = 0.01, 65_536
"""Learning rate of all rows, and number of elements to check."""

OURS = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineOptions:
    """Sizes of the study.

    Parameters
    ----------
    parameters
        Length of dense pushes.
    rows, pushed, width
        Number of rows of the table, of rows per push, and of parameters per row.
    windows
        Number of windows on which the CRBM is trained.
    series
        Length of each of the 20 series of the hidden Markov model; k-means clusters 100 times as many points.
    jobs
        Number of jobs that `best_payoffs` prices.
    instance
        Reference instance of admission that is priced end to end.
    rounds, calls
        Number of rounds, over which times are medians, and of queued calls per round.
    is_brief
        Whether to measure only four rows.
    """

    parameters: int = 1 << 28
    rows: int = 1 << 22
    pushed: int = 1 << 20
    width: int = 64
    windows: int = 200_000
    series: int = 2_000
    jobs: int = 1_000
    instance: str = "wide-0"
    rounds: int = 7
    calls: int = 5
    is_brief: bool = False

    def __post_init__(self) -> None:
        names = ("parameters", "rows", "pushed", "width", "jobs", "rounds", "calls")
        check_in("[1, inf)", {name: getattr(self, name) for name in names})
        if self.windows < 100 or self.series < 10:
            raise InvalidOptionError(
                f"windows must be at least 100 and series at least 10, got {self.windows} and {self.series}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A kernel, ready to be timed.

    Parameters
    ----------
    calls
        The kernel, named `OURS`, and its rivals; each returns arrays to wait for.
    moved, operations
        Minimum bytes and operations of a call.
    error
        Function that returns the difference from NumPy's result, to be called when each implementation has run once.
    tolerance
        Largest allowed error.
    """

    calls: Mapping[str, Call]
    moved: float
    operations: float
    error: Callable[[], float]
    tolerance: float = 1e-4


class Cell:
    """Arrays that each call replaces by a function's result; the function may overwrite them."""

    def __init__(self, function: Callable[..., Any], state: Any) -> None:
        self._function, self.state = function, state

    def __call__(self) -> Any:
        """Replace the arrays, and return them."""
        self.state = self._function(self.state)
        return self.state


def queued(call: Call, count: int) -> float:
    """Return the seconds per call of `count` calls with a single wait at the end."""
    import jax

    begun = time.perf_counter()
    for _ in range(count):
        result = call()
    jax.block_until_ready(result)
    return (time.perf_counter() - begun) / count


@cache
def ceilings(size: int) -> tuple[float, float]:
    """Return bytes per second of a copy, and operations per second of a float32 product, each the best of some rounds.

    Parameters
    ----------
    size
        Elements of the copied array.
    """
    import jax
    import jax.numpy as jnp

    source = jnp.arange(size, dtype=jnp.float32)
    copy = jax.jit(lambda _, x: jnp.copy(x), donate_argnums=0, keep_unused=True)
    cell = Cell(lambda old: copy(old, source), jnp.zeros(size))
    side = 256 if size < 1 << 24 else 8192
    matrix = jax.random.normal(jax.random.key(0), (side, side))
    product: Callable[..., Any] = jax.jit(partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST))
    calls: tuple[Call, ...] = (cell, lambda: product(matrix, matrix))
    seconds = []
    for call in calls:
        jax.block_until_ready(call())
        seconds.append(min(queued(call, 5) for _ in range(5)))
    return 8 * size / seconds[0], 2 * side**3 / seconds[1]


def dense(rule_name: str, workers: int, options: RooflineOptions, seed: int) -> Trial:
    """Aggregate dense pushes and apply them, compared with optax alone."""
    import jax
    import jax.numpy as jnp
    import optax

    from optim.kernels.parameter_server import apply_pushes
    from optim_studies.kernels.baselines import RULES, PlainDense, furthest

    rule, size = RULES[rule_name], options.parameters
    keys = jax.random.split(jax.random.key(seed), workers + 1)
    draw = jax.jit(lambda key: jax.random.uniform(key, (size,), minval=-0.5, maxval=0.5))
    start, pushes = draw(keys[0]), [draw(key) for key in keys[1:]]
    weights, step = jnp.ones(workers), jnp.int32(0)
    place = np.random.default_rng(seed).integers(0, size, min(SAMPLE, size))
    sample = [np.array(array[place]) for array in (start, *pushes)]
    ours = Cell(
        lambda state: apply_pushes(state[0], state[1], pushes, weights, step, optimiser=rule),
        (start + 0.0, rule.initial_slots(start)),
    )
    others = {"sgd": optax.sgd(RATE), "momentum": optax.sgd(RATE, 0.9), "adam": optax.adam(RATE)}
    other = others.get(rule_name) or optax.adagrad(RATE, initial_accumulator_value=0.0)

    @partial(jax.jit, donate_argnums=0)
    def by_optax(state: Any, pushes: Any) -> Any:
        parameters, inner = state
        updates, inner = other.update(sum(pushes[1:], pushes[0]) / workers, inner, parameters)
        return optax.apply_updates(parameters, updates), inner

    rival = Cell(lambda state: by_optax(state, pushes), (start, other.init(start)))

    def error() -> float:
        with ThreadPoolExecutor(1) as pool:
            plain = PlainDense(rule, sample[0].copy(), sample[1:], pool, 1)
            plain.by_numpy()
        return furthest(plain.w, np.asarray(ours.state[0][place]))

    moved = 4.0 * size * (workers + 2 * (1 + rule.num_slots))
    return Trial(calls={OURS: ours, "optax": rival}, moved=moved, operations=float(size * (workers + 4)), error=error)


def sparse(rule_name: str, skew: float, options: RooflineOptions, seed: int) -> Trial:
    """Push rows of a table, or pull them, compared with a scatter and optax over the table, or with a gather."""
    import jax
    import jax.numpy as jnp

    from optim.kernels.parameter_server import RowLayout, initial_rows, pull_rows, push_sparse
    from optim_studies.kernels.baselines import RULES, PlainSparse, furthest
    from optim_studies.kernels.cases import SparseCase

    case = SparseCase(rule=rule_name, pushed=options.pushed, width=options.width, rows=options.rows, skew=skew)
    rng = np.random.default_rng(seed)
    rows = case.draw(rng)
    first, second = jax.random.split(jax.random.key(seed))
    start = jax.random.uniform(first, (case.rows, case.width))
    # Multiples of 2^-10, whose sums are exact in every order: the first step of Adagrad and Adam has the sign of the sum.
    values = jax.random.randint(second, (case.pushed, case.width), -512, 513).astype(jnp.float32) / 1024
    asked, step = jnp.asarray(rows), jnp.int32(0)
    rule = RULES.get(rule_name, RULES["sgd"])
    layout = RowLayout(optimiser=rule, width=case.width)
    # The row that is pushed most often, and some others.
    chosen = np.unique(np.append(rng.choice(rows, 255), np.bincount(rows).argmax()))
    known = np.array(start[chosen])
    if rule_name == "pull":
        table = initial_rows(start, layout)
        ours = Cell(lambda _: pull_rows(table, asked), None)
        gather = jax.jit(lambda array, rows: array[rows])
        is_chosen = np.isin(rows, chosen)

        def pull_error() -> float:
            return furthest(known[np.searchsorted(chosen, rows[is_chosen])], np.asarray(ours.state)[is_chosen])

        calls: dict[str, Call] = {OURS: ours, "gather": lambda: gather(start, asked)}
        return Trial(calls=calls, moved=float(case.moved), operations=0.0, error=pull_error, tolerance=0.0)
    place = np.flatnonzero(np.isin(rows, chosen))
    pushed = np.array(values[jnp.asarray(place)])
    ours = Cell(lambda table: push_sparse(table, asked, values, step, layout=layout), initial_rows(start, layout))

    def error() -> float:
        plain = PlainSparse(rule, known, np.searchsorted(chosen, rows[place]).astype(np.int32), pushed)
        plain.by_numpy()
        return furthest(plain.w, np.asarray(ours.state.parameters[jnp.asarray(chosen)]))

    calls = {OURS: ours, **_sparse_rivals(rule_name, start, asked, values)}
    operations = float(case.pushed * case.width * (1 + 6 * rule.num_slots))
    return Trial(calls=calls, moved=float(case.moved), operations=operations, error=error)


def _sparse_rivals(rule_name: str, start: "jax.Array", rows: "jax.Array", values: "jax.Array") -> dict[str, Call]:
    """Return a plain scatter for SGD, otherwise a scatter followed by the optax optimiser over all rows of the table."""
    import jax
    import jax.numpy as jnp
    import optax

    if rule_name == "sgd":
        scatter = jax.jit(lambda w, rows, values: w.at[rows].add(-RATE * values), donate_argnums=0)
        return {"scatter": Cell(lambda w: scatter(w, rows, values), start)}
    other = optax.adagrad(RATE, initial_accumulator_value=0.0) if rule_name == "adagrad" else optax.adam(RATE)

    @partial(jax.jit, donate_argnums=0)
    def update(state: Any, rows: "jax.Array", values: "jax.Array") -> Any:
        parameters, inner = state
        updates, inner = other.update(jnp.zeros_like(parameters).at[rows].add(values), inner, parameters)
        return optax.apply_updates(parameters, updates), inner

    return {"optax": Cell(lambda state: update(state, rows, values), (start, other.init(start)))}


def crbm_epoch(batch: int, options: RooflineOptions, seed: int) -> Trial:
    """Train a CRBM for an epoch, compared with XLA's loop over batches."""
    import jax
    import jax.numpy as jnp

    from optim.kernels import crbm
    from optim.kernels.crbm import training

    visible, delays, hidden = 2, 3, 10
    rng = np.random.default_rng(seed)
    drift = np.cumsum(rng.standard_normal((options.windows + delays + 1_000, visible)), axis=0)
    series = jnp.asarray((drift - drift.mean(axis=0)) / drift.std(axis=0), jnp.float32)
    ends = jnp.arange(delays, options.windows + delays, dtype=jnp.int32)
    unseen = jnp.arange(options.windows + delays, len(series), dtype=jnp.int32)
    rates, key = crbm.Rates(learning_rate=RATE), jax.random.key(seed)
    start = crbm.initial_parameters(jax.random.key(seed + 1), num_visible=visible, num_delays=delays, num_hidden=hidden)
    static = {"num_epochs": 1, "batch_size": batch, "num_gibbs_steps": 1, "sampling": "bernoulli", "way": "scan"}

    def ours_step(state: Any) -> Any:
        return crbm.train(state[0], series, ends, rates, key, num_epochs=1, batch_size=batch)

    ours = Cell(ours_step, (crbm.initial_state(start), None))
    scan = Cell(
        lambda state: training._train_one(state[0], series, ends, rates, key, None, **static),
        (crbm.initial_state(start), None),
    )

    def error() -> float:
        losses = [float(crbm.forecast_error(cell.state[0].parameters, series, unseen).mean()) for cell in (ours, scan)]
        return abs(losses[0] / losses[1] - 1.0)

    entries = (visible + hidden) * (delays * visible + visible + 1)
    return Trial(
        calls={OURS: ours, "plain": scan},
        moved=4.0 * (series.size + 2 * options.windows),
        operations=options.windows * (4.0 * entries + 8.0 * visible * hidden),
        error=error,
        tolerance=0.01,
    )


def hidden_markov_fit(options: RooflineOptions, seed: int) -> Trial:
    """Fit a hidden Markov model of five states to 20 series, with ten restarts; NumPy checks the log-likelihood."""
    import jax
    import jax.numpy as jnp

    from optim.kernels import hidden_markov
    from optim.kernels.hidden_markov.model import log_emission

    states, restarts, number = 5, 10, 20
    rng = np.random.default_rng(seed)
    regime = np.cumsum(rng.random((number, options.series)) < 0.02, axis=1) % states
    series = jnp.asarray(regime[:, :, None] * [1.0, -0.5] + 0.3 * rng.standard_normal((number, options.series, 2)))
    series, lengths = series.astype(jnp.float32), jnp.full(number, options.series)
    ours = Cell(
        lambda _: hidden_markov.fit(series, lengths, jax.random.key(seed), num_states=states, num_restarts=restarts),
        None,
    )

    def error() -> float:
        model = ours.state.parameters
        emission = np.asarray(log_emission(model, series, lengths), np.float64)  # (samples, series, states)
        transition, now = np.exp(np.asarray(model.log_transition, np.float64)), None
        total = 0.0
        for likelihood in emission:
            before = np.exp(np.asarray(model.log_initial, np.float64))[None] if now is None else now @ transition
            largest = likelihood.max(axis=1, keepdims=True)
            joint = before * np.exp(likelihood - largest)
            norm = joint.sum(axis=1, keepdims=True)
            now, total = joint / norm, total + float((np.log(norm) + largest).sum())
        return abs(float(ours.state.log_likelihood) / total - 1.0)

    # At least one iteration per restart: forward, backward and the sums of pairs, with K^2 products and sums each.
    samples = float(number * options.series * restarts)
    return Trial(calls={OURS: ours}, moved=8.0 * samples, operations=6.0 * samples * states**2, error=error)


def k_means_fit(options: RooflineOptions, seed: int) -> Trial:
    """Cluster points by ten restarts; NumPy checks that each centre is the mean of the points nearest to it."""
    import jax
    import jax.numpy as jnp

    from optim.kernels import k_means

    number, width, clusters, restarts = 100 * options.series, 10, 5, 10
    rng = np.random.default_rng(seed)
    points = (rng.integers(0, clusters, number)[:, None] + 0.3 * rng.standard_normal((number, width))).astype(
        np.float32
    )
    on_device = jnp.asarray(points)
    ours = Cell(lambda _: k_means.fit(on_device, jax.random.key(seed), num_clusters=clusters), None)

    def error() -> float:
        centres = np.asarray(ours.state.centres, np.float64)
        nearest = np.argmin(((points[:, None, :] - centres[None]) ** 2).sum(axis=2), axis=1)
        if len(np.unique(nearest)) < clusters:
            return np.inf
        means = np.stack([points[nearest == each].mean(axis=0, dtype=np.float64) for each in range(clusters)])
        return float(np.abs(means - centres).max())

    operations = 3.0 * number * width * clusters * restarts
    return Trial(
        calls={OURS: ours}, moved=4.0 * number * width * restarts, operations=operations, error=error, tolerance=1e-2
    )


def payoffs(options: RooflineOptions, seed: int) -> Trial:
    """Price jobs of 300 slots, up to 15 workers and 1,000 worker-slots, compared with XLA's loop over slots."""
    import jax
    import jax.numpy as jnp

    from optim.kernels import min_plus

    slots, counts, width = 300, 16, 1_000
    rng = np.random.default_rng(seed)
    costs = np.cumsum(rng.random((options.jobs, slots, counts), dtype=np.float32), axis=2)
    costs[:, :, 0] = 0.0
    value = (1_000 * rng.random((options.jobs, slots)) + 200).astype(np.float32)
    target = rng.integers(width // 2, width + 1, options.jobs).astype(np.int32)
    operands = tuple(jnp.asarray(array) for array in (costs, value, target))
    ours = Cell(lambda _: min_plus.best_payoffs(*operands, width), None)
    plain = jax.jit(partial(min_plus._slot_by_slot, width=width))

    def error() -> float:
        best, furthest = np.asarray(ours.state[0]), 0.0
        for job in range(0, options.jobs, max(1, options.jobs // 3)):
            state = np.append(0.0, np.full(width, np.inf))
            wanted = 0.0
            for slot in range(slots):
                shifted = [np.append(np.full(y, np.inf), state[: width + 1 - y]) for y in range(counts)]
                state = np.min([old + cost for old, cost in zip(shifted, costs[job, slot], strict=True)], axis=0)
                wanted = max(wanted, value[job, slot] - state[target[job]])
            furthest = max(furthest, abs(wanted - float(best[job])) / max(1.0, wanted))
        return furthest

    operations = 2.0 * slots * counts * float(target.sum())
    return Trial(
        calls={OURS: ours, "plain": lambda: plain(*operands)},
        moved=float(costs.nbytes + value.nbytes),
        operations=operations,
        error=error,
    )


def pricing(options: RooflineOptions, seed: int) -> Trial:
    """Price all jobs of an instance from prices on the host to payoffs on the host, compared with the compiled loop."""
    del seed
    import optim
    from optim.solvers.admission.packing.capacity_rows import CapacityRows
    from optim.solvers.admission.pricing.batched_pricing import price_batched
    from optim.solvers.admission.pricing.classes import JobTables, price
    from optim_studies.pricing import prices_of

    tables = JobTables.build(optim.reference_instance(options.instance))
    rows = CapacityRows.of(tables)
    prices = rows.prices(prices_of(tables, rows))
    ours, loop = (
        Cell(lambda _: price_batched(tables, prices)[0], None),
        Cell(lambda _: price(tables, prices).payoff, None),
    )

    def error() -> float:
        return float(np.abs(ours.state - loop.state).max() / max(1.0, float(np.abs(loop.state).max())))

    slots, counts = tables.value.shape[1], tables.most + 1.0
    return Trial(
        calls={OURS: ours, "loop": loop},
        moved=8.0 * slots * float(counts.sum()),
        operations=2.0 * slots * float((counts * tables.target).sum()),
        error=error,
    )


ROWS: Mapping[str, Callable[[RooflineOptions, int], Trial]] = MappingProxyType(
    {
        "dense-sgd-4": partial(dense, "sgd", 4),
        "dense-sgd-16": partial(dense, "sgd", 16),
        "dense-momentum-4": partial(dense, "momentum", 4),
        "dense-adagrad-4": partial(dense, "adagrad", 4),
        "dense-adam-4": partial(dense, "adam", 4),
        **{
            f"sparse-{rule}-{name}": partial(sparse, rule, skew)
            for name, skew in (("even", 0.0), ("zipf", 1.1))
            for rule in ("sgd", "adagrad", "adam")
        },
        "pull-even": partial(sparse, "pull", 0.0),
        "crbm-128": partial(crbm_epoch, 128),
        "crbm-1024": partial(crbm_epoch, 1024),
        "crbm-16384": partial(crbm_epoch, 16384),
        "hidden-markov": hidden_markov_fit,
        "k-means": k_means_fit,
        "best-payoffs": payoffs,
        "pricing": pricing,
    }
)

BRIEF = ("dense-adam-4", "sparse-adagrad-zipf", "crbm-128", "best-payoffs")


@dataclass(frozen=True, kw_only=True)
class RooflineWork(AbstractStudy):
    """Time a kernel and its rivals in rounds."""

    options_type = RooflineOptions
    subject: StudySubject

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Measure one row."""
        import jax

        options, clock = self.chosen, PhaseClock()
        with clock.phase("build"):
            trial = ROWS[self.subject.name](options, self.seed)
        with clock.phase("compile"):
            for call in trial.calls.values():
                jax.block_until_ready(call())
        with clock.phase("verify"):
            error = trial.error()
        with clock.phase("build"):
            copied, multiplied = ceilings(options.parameters)
        seconds: dict[str, list[float]] = {name: [] for name in trial.calls}
        progress.start("rounds", options.rounds)
        with clock.phase("solve"):
            for number in range(options.rounds):
                for name, call in trial.calls.items():
                    seconds[name].append(queued(call, options.calls))
                progress.update(number + 1, {"ms": 1e3 * seconds[OURS][-1]})
                if stop(SolveState(elapsed_s=clock.seconds.get("solve", 0.0), iterations=number)) is not None:
                    break
        progress.finish()
        median = {name: float(np.median(each)) for name, each in seconds.items()}
        floors = {"memory": trial.moved / copied, "arithmetic": trial.operations / multiplied}
        bound = max(floors, key=lambda name: floors[name])
        rival = next((name for name in trial.calls if name != OURS), None)
        return Finding(
            measures={
                "device": jax.devices()[0].device_kind,
                "ms": 1e3 * median[OURS],
                "spread": (max(seconds[OURS]) - min(seconds[OURS])) / median[OURS],
                "bound": bound,
                "floor_ms": 1e3 * floors[bound],
                "share": floors[bound] / max(median[OURS], floors[bound]),
                "rival": rival,
                "rival_ms": None if rival is None else 1e3 * median[rival],
                "gigabytes_per_s": trial.moved / median[OURS] / 1e9,
                "copy_gigabytes_per_s": copied / 1e9,
                "product_teraflops": multiplied / 1e12,
                "error": error,
            },
            seconds=clock.seconds,
            problems=[]
            if error <= trial.tolerance
            else [f"differs from NumPy by {error:.2e}, allowed {trial.tolerance:g}"],
            iterations=len(seconds[OURS]),
            is_whole=len(seconds[OURS]) == options.rounds,
        )


def _subjects(options: RooflineOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    del seed
    for name in BRIEF if options.is_brief else ROWS:
        yield StudySubject(name=name, topic="kernels", drawn_from=name), {}


SIZES: Mapping[str, RooflineOptions] = MappingProxyType(
    {
        SMALL: RooflineOptions(
            parameters=1 << 18,
            rows=16_384,
            pushed=4_096,
            windows=2_000,
            series=200,
            jobs=20,
            instance="small-0",
            rounds=3,
            calls=2,
            is_brief=True,
        ),
        FULL: RooflineOptions(),
    }
)

SPEC = register_study(
    "roofline",
    "kernels",
    "all kernels on the default device, as a share of its memory or arithmetic speed",
    kind=RooflineWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=("jax",),
    columns=("device", "ms", "bound", "floor_ms", "share", "rival", "rival_ms", "error"),
)
