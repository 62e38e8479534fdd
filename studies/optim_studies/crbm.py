"""The study `crbm`: training the phase encoder, compared with batches in NumPy and with one window at a time.

A row `batched` trains two CRBMs from the same start on the same windows, one by the kernel and one in NumPy, in turns, and
reports the forecast error of both on containers held out from training. A row `one-by-one` is the public code's method, a
row `many-epochs` the full training of a paper. A row `sweep` trains many CRBMs at once, and reports times per CRBM. Compile
time is separate.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.measuring import medians, race, timed
from optim.benchmarks.study import AbstractStudy, Finding, StudySubject, register_study
from optim.benchmarks.suite import FULL, SMALL
from optim.core.driver import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion
from optim.workloads.containers.generator import ContainerOptions, generate_containers

Float32 = NDArray[np.float32]

FIELDS = ("weights", "autoregression", "conditioning", "visible_bias", "hidden_bias")
"""The kernel's names of a CRBM's parameters."""


@dataclass(slots=True, eq=False)
class PlainCrbm:
    """A CRBM in NumPy that is trained in place, in float32.

    Attributes
    ----------
    windows
        Shape (n, D + V): histories, oldest frame first, followed by samples; stored, so that a batch is a slice.
    num_visible
        Number V of visible units.
    weights
        Shape (V, H).
    dynamic
        Shape (D, V + H): autoregression and conditioning side by side, for one product instead of two.
    bias
        Shape (V + H,).
    """

    windows: Float32
    num_visible: int
    weights: Float32
    dynamic: Float32
    bias: Float32
    velocity: list[Float32] = field(init=False)

    def __post_init__(self) -> None:
        self.velocity = [np.zeros_like(array) for array in (self.weights, self.dynamic, self.bias)]

    def epoch(self, rng: np.random.Generator, batch_size: int, rate: float, momentum: float, decay: float) -> None:
        """Visit every window once, in batches of a fresh shuffle: CD-1 with drawn hiddens, momentum and decay.

        Arrays are reused and constants are float32, so that NumPy neither copies nor converts to float64 without need.
        """
        shuffled = self.windows[rng.permutation(len(self.windows))]
        split, length = self.num_visible, len(self.dynamic)
        step, keep, pull = np.float32(rate), np.float32(momentum), np.float32(decay)
        parameters = (self.weights, self.dynamic, self.bias)
        for first in range(0, len(shuffled), batch_size):
            batch = shuffled[first : first + batch_size]
            history, sample = batch[:, :length], batch[:, length:]
            inputs = history @ self.dynamic
            inputs += self.bias
            probability = _sigmoid(sample @ self.weights + inputs[:, split:])
            hidden = (rng.random(probability.shape, dtype=np.float32) < probability).astype(np.float32)
            rebuilt = hidden @ self.weights.T
            rebuilt += inputs[:, :split]
            again = _sigmoid(rebuilt @ self.weights + inputs[:, split:])
            gradient = sample.T @ probability
            gradient -= rebuilt.T @ again
            residual = np.concatenate([sample - rebuilt, probability - again], axis=1)
            scale = np.float32(1.0 / len(batch))
            gradients = (gradient, history.T @ residual, residual.sum(axis=0))
            for i, own_pull in enumerate((pull, pull, np.float32(0))):
                self.velocity[i] *= keep
                self.velocity[i] += step * (scale * gradients[i] - own_pull * parameters[i])
                np.add(parameters[i], self.velocity[i], out=parameters[i])

    def one_by_one(self, rows: NDArray[np.int64], rate: float) -> None:
        """Make one step per window: CD-1 with mean-field hiddens, without momentum and decay.

        References
        ----------
        The public code of AI4DL (https://github.com/HiEST/AI4DL), `crbm_tools`, trains in this way.
        """
        split, length, step = self.num_visible, len(self.dynamic), np.float32(rate)
        for row in rows.tolist():
            history, sample = self.windows[row, :length], self.windows[row, length:]
            inputs = history @ self.dynamic + self.bias
            probability = _sigmoid(sample @ self.weights + inputs[split:])
            rebuilt = self.weights @ probability + inputs[:split]
            again = _sigmoid(rebuilt @ self.weights + inputs[split:])
            residual = np.concatenate([sample - rebuilt, probability - again])
            self.weights += step * (np.outer(sample, probability) - np.outer(rebuilt, again))
            self.dynamic += step * np.outer(history, residual)
            self.bias += step * residual

    def fields(self) -> dict[str, Float32]:
        """Return the parameters by the kernel's names."""
        split = self.num_visible
        parts = (self.weights, self.dynamic[:, :split], self.dynamic[:, split:], self.bias[:split], self.bias[split:])
        return dict(zip(FIELDS, (part.copy() for part in parts), strict=True))


def _sigmoid(inputs: Float32) -> Float32:
    """Return the logistic function, computed in place."""
    np.negative(inputs, out=inputs)
    np.exp(inputs, out=inputs)
    inputs += np.float32(1)
    np.reciprocal(inputs, out=inputs)
    return inputs


Timing = tuple[dict[str, float], dict[str, float]]
"""Measurements of a method, and its seconds by phase."""

LEAST_TURNS = 3
"""Number of timed epochs of a sweep; the study reports their median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrbmOptions:
    """Sizes of the study.

    Parameters
    ----------
    windows, delays, hidden, batch
        Windows to train on, frames of history, hidden units, and windows per batch.
    epochs, repeats
        Epochs per turn, and turns of kernel and NumPy; the time is that of the median turn.
    alone
        Number of windows for `one-by-one`.
    many
        Number of epochs for `many-epochs`.
    machines
        Number of CRBMs for `sweep`, with different learning rates and draws.
    learning_rate
        Step along a batch's mean gradient; `one-by-one` uses the paper's 0.001.
    """

    windows: int = 20_000
    delays: int = 3
    hidden: int = 10
    batch: int = 1024
    epochs: int = 5
    repeats: int = 9
    alone: int = 5_000
    many: int = 50
    machines: int = 4
    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        for name in ("windows", "delays", "hidden", "batch", "epochs", "repeats", "alone", "many", "machines"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise InvalidOptionError(f"learning_rate must be positive, got {self.learning_rate}")


class TrainingBench:
    """CRBMs that are trained on one set of windows.

    Parameters
    ----------
    series
        Shape (T, V), float32, standardised.
    ends, held_out
        Windows to train on, and those held out, as int32 rows of the series.
    options
        Sizes.
    seed
        Seed of initial parameters, shuffles and draws.
    """

    def __init__(
        self,
        series: NDArray[np.float32],
        ends: NDArray[np.int32],
        held_out: NDArray[np.int32],
        options: CrbmOptions,
        seed: int,
    ) -> None:
        import jax
        import jax.numpy as jnp

        from optim.kernels import crbm

        self.options, self.crbm, self.seed = options, crbm, seed
        self.series, self.ends, self.held_out = (jnp.asarray(array) for array in (series, ends, held_out))
        self.device: str = jax.devices()[0].device_kind
        self.key = jax.random.key(seed)
        self.rates = crbm.Rates(learning_rate=options.learning_rate, early_epochs=0)
        start = crbm.initial_parameters(
            jax.random.fold_in(self.key, 1), series.shape[1], options.delays, options.hidden
        )
        self.state = crbm.initial_state(start)
        initial = {name: np.array(value) for name, value in start._asdict().items()}
        rows = ends[:, None] + np.arange(-options.delays, 1)
        self.plain = PlainCrbm(
            windows=series[rows].reshape(len(ends), -1),
            num_visible=series.shape[1],
            weights=initial["weights"],
            dynamic=np.concatenate([initial["autoregression"], initial["conditioning"]], axis=1),
            bias=np.concatenate([initial["visible_bias"], initial["hidden_bias"]]),
        )

    def _train(self, num_epochs: int) -> None:
        self.state, errors = self.crbm.train(
            *(self.state, self.series, self.ends, self.rates, self.key),
            num_epochs=num_epochs,
            batch_size=self.options.batch,
        )
        errors.block_until_ready()

    def _loss(self, parameters: Any) -> float:
        """Return the mean squared error of the forecast on unseen containers."""
        return float(self.crbm.forecast_error(parameters, self.series, self.held_out).mean())

    def _figures(self, ms: float, cpu_ms: float) -> dict[str, float]:
        """Return the columns that every method reports, in milliseconds per epoch."""
        return {"ms": ms, "cpu_ms": cpu_ms, "us_a_window": 1e3 * ms / self.options.windows}

    def _plain_loss(self) -> float:
        return self._loss(self.crbm.CrbmParameters(**self.plain.fields()))

    def batched(self, stop: StoppingCriterion, progress: Progress) -> Timing:
        """Train in turns: some epochs by the kernel, then as many in NumPy."""
        options, rng = self.options, np.random.default_rng(self.seed)
        rates = (options.learning_rate, float(self.rates.momentum), float(self.rates.decay))

        def in_numpy() -> None:
            for _ in range(options.epochs):
                self.plain.epoch(rng, options.batch, *rates)

        sides = {"kernel": lambda: self._train(options.epochs), "numpy": in_numpy}
        compile_s, *_ = (timed(side)[0] for side in sides.values())
        turns = race(sides, options.repeats, stop, progress, always=sides)
        wall, cpu = (scaled(medians(turns, which), 1e3 / options.epochs) for which in (0, 1))
        figures = {
            **self._figures(wall["kernel"], cpu["kernel"]),
            "numpy_ms": wall["numpy"],
            "numpy_cpu_ms": cpu["numpy"],
            "speedup": wall["numpy"] / wall["kernel"],
            "cpu_speedup": cpu["numpy"] / cpu["kernel"],
            "loss": self._loss(self.state.parameters),
            "numpy_loss": self._plain_loss(),
        }
        return figures, {"compile": compile_s, "solve": sum(each for each, _ in turns["kernel"])}

    def one_by_one(self, stop: StoppingCriterion, progress: Progress) -> Timing:
        """Train with one step per window."""
        del stop, progress
        rows = np.random.default_rng(self.seed).permutation(self.options.windows)[: self.options.alone]
        wall, cpu = timed(lambda: self.plain.one_by_one(rows, 1e-3))
        each = 1e3 * self.options.windows / len(rows)
        return {**self._figures(each * wall, each * cpu), "loss": self._plain_loss()}, {"solve": wall}

    def many_epochs(self, stop: StoppingCriterion, progress: Progress) -> Timing:
        """Train as long as a paper does, and report the error on unseen containers after each call of the kernel."""
        del stop
        calls = max(1, self.options.many // 50)
        share = -(-self.options.many // calls)
        compile_s, _ = timed(lambda: self._train(share))
        progress.start("epochs", calls * share)

        def train() -> None:
            for call in range(calls):
                self._train(share)
                progress.update((call + 1) * share, {"loss": self._loss(self.state.parameters)})

        wall, cpu = timed(train)
        progress.finish()
        each = 1e3 / (calls * share)
        figures = {**self._figures(each * wall, each * cpu), "loss": self._loss(self.state.parameters)}
        return figures, {"compile": compile_s, "solve": wall}

    def sweep(self, stop: StoppingCriterion, progress: Progress) -> Timing:
        """Train many CRBMs at once, with learning rates from a tenth of the option `learning_rate` up to it."""
        import jax
        import jax.numpy as jnp

        options, machines = self.options, self.options.machines
        width = self.series.shape[1]
        share = jnp.linspace(0.1, 1.0, machines) if machines > 1 else jnp.ones(1)
        rates = self.rates._replace(learning_rate=options.learning_rate * share)
        keys = jax.random.split(self.key, machines)
        mask = self.crbm.parameter_mask(width, options.delays, options.hidden, options.delays, options.hidden)
        states, masks = (
            jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (machines, *leaf.shape)), one)
            for one in (self.state.parameters, mask)
        )
        states_cell = [self.crbm.initial_state(states)]

        def train() -> None:
            states_cell[0], errors = self.crbm.sweep(
                *(states_cell[0], self.series, self.ends, rates, keys, masks), num_epochs=1, batch_size=options.batch
            )
            errors.block_until_ready()

        compile_s, _ = timed(train)
        turns = race({"machines": train}, LEAST_TURNS, stop, progress, always=("machines",))
        wall, cpu = (1e3 / machines * medians(turns, which)["machines"] for which in (0, 1))
        last = jax.tree.map(lambda leaf: leaf[-1], states_cell[0].parameters)
        figures = {**self._figures(wall, cpu), "loss": self._loss(last)}
        return figures, {"compile": compile_s, "solve": sum(each for each, _ in turns["machines"])}


def scaled(times: dict[str, float], factor: float) -> dict[str, float]:
    """Return times multiplied by a factor."""
    return {name: factor * seconds for name, seconds in times.items()}


BATCHED, ONE_BY_ONE, MANY_EPOCHS, SWEEP = "batched", "one-by-one", "many-epochs", "sweep"

WAYS = (BATCHED, ONE_BY_ONE, MANY_EPOCHS, SWEEP)

AGREEMENT = 0.01
"""Maximum relative difference of the errors of kernel and NumPy on unseen containers."""

SAMPLES_A_CONTAINER = 180

HELD_SHARE = 0.1

SIZES: Mapping[str, CrbmOptions] = MappingProxyType(
    {SMALL: CrbmOptions(), FULL: CrbmOptions(windows=200_000, alone=20_000, many=2_000, machines=256)}
)


@dataclass(frozen=True, kw_only=True)
class CrbmWork(AbstractStudy):
    """Train by one method, which `solver` names."""

    options_type = CrbmOptions

    def measure(self, stop: StoppingCriterion, progress: Progress) -> Finding:
        """Train, time, and compare on unseen containers."""
        clock = PhaseClock()
        with clock.phase("build"):
            windows = drawn_windows(self.chosen.windows, self.chosen.delays, self.seed)
            bench = TrainingBench(*windows, self.chosen, self.seed)
        ways = {
            BATCHED: bench.batched,
            ONE_BY_ONE: bench.one_by_one,
            MANY_EPOCHS: bench.many_epochs,
            SWEEP: bench.sweep,
        }
        figures, seconds = ways[self.solver](stop, progress)
        loss = figures.pop("loss")
        apart = abs(figures.get("numpy_loss", loss) / loss - 1.0)
        problems = [] if apart <= AGREEMENT else [f"the errors of kernel and NumPy differ by {100 * apart:.2f} %"]
        problems += [] if np.isfinite(loss) else ["training diverged"]
        return Finding(
            findings={"loss": loss},
            measures={"device": "cpu" if self.solver == ONE_BY_ONE else bench.device, **figures},
            seconds=clock.seconds | seconds,
            problems=problems,
        )


@lru_cache(maxsize=1)
def drawn_windows(
    windows: int, delays: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]:
    """Return standardised series of generated containers (T, 2), ends of the windows to train on, and of those held out."""
    from optim.kernels.crbm import window_ends

    number = int(windows / SAMPLES_A_CONTAINER / (1 - HELD_SHARE) * 1.2) + 20
    series = generate_containers(ContainerOptions(num_containers=number), seed)
    values = np.log(series.values + 0.01 * series.values.mean(axis=0))
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    ends = window_ends(series.lengths, delays)
    if ends.size <= windows:
        raise InvalidOptionError(f"{number} containers gave {ends.size} windows, too few for {windows}")
    return values.astype(np.float32), ends[:windows], ends[windows:]


def _subjects(options: CrbmOptions, seed: int) -> Iterator[tuple[StudySubject, Mapping[str, Any]]]:
    sizes = {"windows": options.windows, "visible": 2, "delays": options.delays, "hidden": options.hidden}
    name = f"containers-{options.windows}-{seed}"
    yield StudySubject(name=name, topic="phases", drawn_from=options.delays, parameters=sizes), {}


SPEC = register_study(
    "crbm",
    "phases",
    "training the phase encoder's CRBM: the kernel compared with NumPy, and one window at a time",
    kind=CrbmWork,
    sizes=SIZES,
    subjects=_subjects,
    ways=WAYS,
    columns=("device", "ms", "numpy_ms", "speedup", "cpu_ms", "cpu_speedup", "us_a_window", "loss", "numpy_loss"),
)
