"""Ways of training the phase encoder's machine on one set of windows, each timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.studies.plain_crbm import PlainCrbm
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress

Timing = tuple[dict[str, float], dict[str, float]]
"""Figures of a way, and its seconds by phase."""

LEAST_TURNS = 3
"""Epochs of a sweep, of which the median is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrbmOptions:
    """Sizes of the study.

    Parameters
    ----------
    windows, delays, hidden, batch
        Windows to train on, frames of history, hiddens, and windows a batch.
    epochs, repeats
        Epochs of one turn, and turns of each side; a way's time is the median turn.
    alone
        Windows for the way that takes one at a time.
    many
        Epochs of the whole training.
    machines
        Machines of the sweep, each with its own learning rate and draws.
    learning_rate
        Step along a batch's mean; one window at a time takes the paper's 0.001.
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
    """The machines of one set of windows.

    Parameters
    ----------
    series
        Shape (T, V), float32, standardised.
    ends, held
        Windows to train on, and those held out, as int32 rows of the series.
    options
        Sizes.
    seed
        Same seed, same machines.
    """

    def __init__(
        self,
        series: NDArray[np.float32],
        ends: NDArray[np.int32],
        held: NDArray[np.int32],
        options: CrbmOptions,
        seed: int,
    ) -> None:
        import jax
        import jax.numpy as jnp

        from optim.kernels import crbm

        self.options, self.crbm, self.seed = options, crbm, seed
        self.series, self.ends, self.held = (jnp.asarray(array) for array in (series, ends, held))
        self.device: str = jax.devices()[0].device_kind
        self.key = jax.random.key(seed)
        self.rates = crbm.Rates(learning_rate=options.learning_rate, early_epochs=0)
        start = crbm.initial_parameters(
            jax.random.fold_in(self.key, 1), series.shape[1], options.delays, options.hidden
        )
        self.state = crbm.initial_state(start)
        own = {name: np.array(value) for name, value in start._asdict().items()}
        rows = ends[:, None] + np.arange(-options.delays, 1)
        self.plain = PlainCrbm(
            windows=series[rows].reshape(len(ends), -1),
            num_visible=series.shape[1],
            weights=own["weights"],
            dynamic=np.concatenate([own["autoregression"], own["conditioning"]], axis=1),
            bias=np.concatenate([own["visible_bias"], own["hidden_bias"]]),
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
        return float(self.crbm.forecast_error(parameters, self.series, self.held).mean())

    def _plain_loss(self) -> float:
        return self._loss(self.crbm.CrbmParameters(**self.plain.fields()))

    def batched(self, progress: Progress) -> Timing:
        """Take turns: some epochs by the kernel, as many in NumPy."""
        options, rng = self.options, np.random.default_rng(self.seed)
        rates = (options.learning_rate, float(self.rates.momentum), float(self.rates.decay))

        def in_numpy() -> None:
            for _ in range(options.epochs):
                self.plain.epoch(rng, options.batch, *rates)

        compile_s, *_ = _timed(lambda: self._train(options.epochs))
        in_numpy()
        turns = []
        progress.start("epochs in turns", options.repeats)
        for turn in range(options.repeats):
            turns.append((*_timed(lambda: self._train(options.epochs)), *_timed(in_numpy)))
            progress.update(turn + 1, {"ms": 1e3 * turns[-1][0] / options.epochs})
        progress.finish()
        ms, cpu_ms, numpy_ms, numpy_cpu_ms = 1e3 / options.epochs * np.median(turns, axis=0)
        figures = {
            "ms": ms,
            "cpu_ms": cpu_ms,
            "numpy_ms": numpy_ms,
            "numpy_cpu_ms": numpy_cpu_ms,
            "speedup": numpy_ms / ms,
            "cpu_speedup": numpy_cpu_ms / cpu_ms,
            "us_a_window": 1e3 * ms / options.windows,
            "loss": self._loss(self.state.parameters),
            "numpy_loss": self._plain_loss(),
        }
        return figures, {"compile": compile_s, "solve": float(np.sum(turns, axis=0)[0])}

    def one_by_one(self, progress: Progress) -> Timing:
        """Step after each window."""
        del progress
        rows = np.random.default_rng(self.seed).permutation(self.options.windows)[: self.options.alone]
        wall, cpu = _timed(lambda: self.plain.one_by_one(rows, 1e-3))
        each = self.options.windows / len(rows)
        figures = {"ms": 1e3 * wall * each, "cpu_ms": 1e3 * cpu * each, "us_a_window": 1e6 * wall / len(rows)}
        return {**figures, "loss": self._plain_loss()}, {"compile": 0.0, "solve": wall}

    def many_epochs(self, progress: Progress) -> Timing:
        """Train as long as a paper does, with the error on unseen containers every so often."""
        calls = max(1, self.options.many // 50)
        share = -(-self.options.many // calls)
        compile_s, *_ = _timed(lambda: self._train(share))
        progress.start("epochs", calls * share)

        def train() -> None:
            for call in range(calls):
                self._train(share)
                progress.update((call + 1) * share, {"loss": self._loss(self.state.parameters)})

        wall, cpu = _timed(train)
        progress.finish()
        each = 1e3 / (calls * share)
        figures = {"ms": each * wall, "cpu_ms": each * cpu, "us_a_window": 1e3 * each * wall / self.options.windows}
        return {**figures, "loss": self._loss(self.state.parameters)}, {"compile": compile_s, "solve": wall}

    def sweep(self, progress: Progress) -> Timing:
        """Train many machines at once, with learning rates from a tenth of the study's up to it."""
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
        held = [self.crbm.initial_state(states)]

        def train() -> None:
            held[0], errors = self.crbm.sweep(
                *(held[0], self.series, self.ends, rates, keys, masks), num_epochs=1, batch_size=options.batch
            )
            errors.block_until_ready()

        compile_s, *_ = _timed(train)
        turns = []
        progress.start("epochs of all machines", LEAST_TURNS)
        for turn in range(LEAST_TURNS):
            turns.append(_timed(train))
            progress.update(turn + 1, {"ms": 1e3 * turns[-1][0] / machines})
        progress.finish()
        ms, cpu_ms = 1e3 / machines * np.median(turns, axis=0)
        last = jax.tree.map(lambda leaf: leaf[-1], held[0].parameters)
        figures = {"ms": ms, "cpu_ms": cpu_ms, "us_a_window": 1e3 * ms / options.windows, "loss": self._loss(last)}
        return figures, {"compile": compile_s, "solve": float(np.sum(turns, axis=0)[0])}


def _timed(call: Callable[[], None]) -> tuple[float, float]:
    """Return wall and processor seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu
