"""Ways of training the phase encoder's machine on one set of windows, each timed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.benchmarks.racing import medians, race, timed
from optim.benchmarks.studies.plain_crbm import PlainCrbm
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.stopping import StoppingCriterion

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

    def _figures(self, ms: float, cpu_ms: float) -> dict[str, float]:
        """Return what every way tells of its epochs, in milliseconds of one."""
        return {"ms": ms, "cpu_ms": cpu_ms, "us_a_window": 1e3 * ms / self.options.windows}

    def _plain_loss(self) -> float:
        return self._loss(self.crbm.CrbmParameters(**self.plain.fields()))

    def batched(self, stop: StoppingCriterion, progress: Progress) -> Timing:
        """Take turns: some epochs by the kernel, as many in NumPy."""
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
        """Step after each window."""
        del stop, progress
        rows = np.random.default_rng(self.seed).permutation(self.options.windows)[: self.options.alone]
        wall, cpu = timed(lambda: self.plain.one_by_one(rows, 1e-3))
        each = 1e3 * self.options.windows / len(rows)
        return {**self._figures(each * wall, each * cpu), "loss": self._plain_loss()}, {"solve": wall}

    def many_epochs(self, stop: StoppingCriterion, progress: Progress) -> Timing:
        """Train as long as a paper does, with the error on unseen containers every so often."""
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

        compile_s, _ = timed(train)
        turns = race({"machines": train}, LEAST_TURNS, stop, progress, always=("machines",))
        wall, cpu = (1e3 / machines * medians(turns, which)["machines"] for which in (0, 1))
        last = jax.tree.map(lambda leaf: leaf[-1], held[0].parameters)
        figures = {**self._figures(wall, cpu), "loss": self._loss(last)}
        return figures, {"compile": compile_s, "solve": sum(each for each, _ in turns["machines"])}


def scaled(times: dict[str, float], factor: float) -> dict[str, float]:
    """Return times in another unit."""
    return {name: factor * seconds for name, seconds in times.items()}
