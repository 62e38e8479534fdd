"""The study `crbm`: training the phase encoder's machine, beside batches in NumPy and beside one window at a time.

A row `batched` trains two machines from the same start on the same windows, one by the kernel and one in NumPy, taking
turns; both are then judged by the same error on containers that neither has seen. A row `one-by-one` is the public code's
way, and a row `many-epochs` the whole training of a paper. Compile time is apart.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from optim.benchmarks.plain_crbm import PlainCrbm
from optim.benchmarks.record import Record, plain, provenance
from optim.benchmarks.registry import register_suite
from optim.benchmarks.spec import SMALL, BenchRequest, BenchSpec, Skipped
from optim.benchmarks.work import AbstractWork, Subject, describe_error
from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict
from optim.core.progress import Progress
from optim.core.status import PointStatus, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.containers.series import FloatArray
from optim.solvers.solve import package_versions
from optim.workloads.containers.generator import ContainerOptions, generate_containers

PROBLEM = "phases"
FULL = "full"
BATCHED, ONE_BY_ONE, MANY_EPOCHS = "batched", "one-by-one", "many-epochs"
WAYS = (BATCHED, ONE_BY_ONE, MANY_EPOCHS)

AGREEMENT = 0.01
"""Largest relative difference of the two machines' errors on unseen containers."""

SAMPLES_A_CONTAINER = 180
HELD_SHARE = 0.1


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
    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        for name in ("windows", "delays", "hidden", "batch", "epochs", "repeats", "alone", "many"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise InvalidOptionError(f"learning_rate must be positive, got {self.learning_rate}")


SIZES: Mapping[str, CrbmOptions] = MappingProxyType(
    {SMALL: CrbmOptions(), FULL: CrbmOptions(windows=200_000, alone=20_000, many=2_000)}
)


class WindowSet(Subject):
    """Standardised series of generated containers, with the windows to train on and those held out."""

    def __init__(self, options: CrbmOptions, seed: int) -> None:
        self.options, self.seed = options, seed
        self.name = f"containers-{options.windows}-{seed}"
        self.problem = SimpleNamespace(name=PROBLEM)  # type: ignore[assignment]

    @cached_property
    def digest(self) -> str:
        """Digest of what the series are drawn from."""
        return hashlib.sha256(f"{self.name}-{self.options.delays}".encode()).hexdigest()[:16]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Sizes."""
        options = self.options
        return {"windows": options.windows, "visible": 2, "delays": options.delays, "hidden": options.hidden}

    @cached_property
    def arrays(self) -> tuple[FloatArray, np.ndarray, np.ndarray]:
        """Series (T, 2), ends of the windows to train on, and ends of those held out."""
        from optim.kernels.crbm import window_ends

        number = int(self.options.windows / SAMPLES_A_CONTAINER / (1 - HELD_SHARE) * 1.2) + 20
        series = generate_containers(ContainerOptions(num_containers=number), self.seed)
        values = np.log(series.values + 0.01 * series.values.mean(axis=0))
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        ends = window_ends(series.lengths, self.options.delays)
        if ends.size <= self.options.windows:
            raise InvalidOptionError(
                f"{number} containers gave {ends.size} windows, too few for {self.options.windows}"
            )
        held = ends[self.options.windows :]
        return values.astype(np.float32), ends[: self.options.windows], held


@dataclass(frozen=True, kw_only=True)
class CrbmWork(AbstractWork):
    """Train in one way; `solver` names it."""

    def resolved_options(self) -> dict[str, Any]:
        """Return the study's complete options."""
        return plain(options_as_dict(build_options(CrbmOptions, self.options)))

    def run(self, stop: StoppingCriterion, progress: Progress) -> Record:
        """Train, time, and compare on unseen containers."""
        del stop
        try:
            options = build_options(CrbmOptions, self.options)
            begun = time.perf_counter()
            bench = _Bench(self.subject.arrays, options, self.seed)  # type: ignore[attr-defined]
            build_s = time.perf_counter() - begun
            ways = {BATCHED: bench.batched, ONE_BY_ONE: bench.one_by_one, MANY_EPOCHS: bench.many_epochs}
            figures, seconds = ways[self.solver](progress)
        except Exception as error:  # one way that fails must not end the others
            return self.failed(describe_error(error))
        apart = abs(figures["loss"] / figures.get("numpy_loss", figures["loss"]) - 1.0)
        problems = [] if apart <= AGREEMENT else [f"the two machines' errors differ by {100 * apart:.2f} %"]
        problems += [] if np.isfinite(figures["loss"]) else ["training diverged"]
        return Record(
            **self.identity() | {"parameters": {**self.subject.parameters, **plain(figures)}},
            **provenance(),
            versions=dict(package_versions()),
            termination=Termination.COMPLETED.value,
            primal=PointStatus.FEASIBLE.value,
            objective=figures["loss"],
            seconds={"build": build_s, "verify": 0.0, **seconds},
            verified=not problems,
            violations=problems,
        )


class _Bench:
    """The machines of one set of windows."""

    def __init__(self, arrays: tuple[FloatArray, np.ndarray, np.ndarray], options: CrbmOptions, seed: int) -> None:
        import jax
        import jax.numpy as jnp

        from optim.kernels import crbm

        self.options, self.crbm, self.seed = options, crbm, seed
        series, ends, held = arrays
        self.series, self.ends, self.held = (jnp.asarray(array) for array in (series, ends, held))
        self.key = jax.random.key(seed)
        self.rates = crbm.Rates(learning_rate=options.learning_rate, early_epochs=0)
        start = crbm.initial_parameters(
            jax.random.fold_in(self.key, 1), series.shape[1], options.delays, options.hidden
        )
        self.state = crbm.initial_state(start)
        own = {name: np.array(value) for name, value in start._asdict().items()}
        rows = ends[:, None] + np.arange(-options.delays, 1)
        self.plain = PlainCrbm(
            windows=series[rows].reshape(len(ends), -1),  # type: ignore[arg-type]
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

    def batched(self, progress: Progress) -> tuple[dict[str, float], dict[str, float]]:
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

    def one_by_one(self, progress: Progress) -> tuple[dict[str, float], dict[str, float]]:
        """Step after each window."""
        del progress
        rows = np.random.default_rng(self.seed).permutation(self.options.windows)[: self.options.alone]
        wall, cpu = _timed(lambda: self.plain.one_by_one(rows, 1e-3))
        each = self.options.windows / len(rows)
        figures = {"ms": 1e3 * wall * each, "cpu_ms": 1e3 * cpu * each, "us_a_window": 1e6 * wall / len(rows)}
        return {**figures, "loss": self._plain_loss()}, {"compile": 0.0, "solve": wall}

    def many_epochs(self, progress: Progress) -> tuple[dict[str, float], dict[str, float]]:
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


def _timed(call: Any) -> tuple[float, float]:
    """Return wall and processor seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def build(request: BenchRequest) -> Iterator[AbstractWork | Skipped]:
    """Yield each way for each seed.

    Raises
    ------
    InvalidOptionError
        If there is no such way or option.
    """
    options = build_options(CrbmOptions, {**options_as_dict(SIZES[request.size]), **request.options})
    for name in request.solvers or ():
        if name not in WAYS:
            raise InvalidOptionError(f"unknown way of training {name!r}; there are: {', '.join(WAYS)}")
    for seed in request.seeds:
        subject = WindowSet(options, seed)
        for way in request.solvers or WAYS:
            yield CrbmWork(suite=SPEC.name, subject=subject, solver=way, seed=seed, options=options_as_dict(options))


SPEC = register_suite(
    BenchSpec(
        name="crbm",
        problem=PROBLEM,
        summary="training the phase encoder's machine: the kernel beside NumPy, and one window at a time",
        build=build,
        sizes=(SMALL, FULL),
        columns=("ms", "numpy_ms", "speedup", "cpu_ms", "cpu_speedup", "us_a_window", "loss", "numpy_loss"),
    )
)
