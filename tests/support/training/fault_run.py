"""A training run as a separate program with an injected fault: it prints a digest of the result, or one line with the cause."""

import hashlib
import json
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from optim.core.errors import OptimError
from optim.training.applications import LogisticRegression
from optim.training.messages import NonFinite
from optim.training.processes import Processes
from optim.training.stages import ClusterOptions, Fixed, Stage
from optim.training.trainer import Action, Event, Trainer, TrainingRecord, resumable

CLOCKS, PARTITIONS = 12, 4
JOB = {"num_observations": 80, "num_features": 6, "num_classes": 3, "num_partitions": PARTITIONS}
KINDS = ("stop", "kill", "nan", "exception", "memory", "controller")
SMALL_BYTES = 512
SILENCE_S = 10.0
"""Longer than the time for which loading JAX delays a machine's heartbeats if four machines share a busy core."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault and its time.

    Attributes
    ----------
    kind
        One of `KINDS`.
    clock, partition, victim
        Clock, gradient or worker of the fault.
    is_lasting
        Whether a gradient is damaged each time it is computed, not only the first.
    non_finite
        The policy.
    options
        Randomly drawn options of the cluster.
    """

    kind: str
    clock: int
    partition: int = 0
    victim: int = 0
    is_lasting: bool = False
    non_finite: str = "stop"
    options: dict = field(default_factory=dict, hash=False)  # applications are hashed


@dataclass(frozen=True, kw_only=True)
class Spoilt(LogisticRegression):
    """Logistic regression in which one gradient fails; a marker in a folder records an earlier failure."""

    fault: Fault = field(default_factory=lambda: Fault(kind="none", clock=-1))
    folder: str = ""

    def gradient(self, parameters, partition, clock):
        gradient, loss = super().gradient(parameters, partition, clock)
        if (clock, partition) == (self.fault.clock, self.fault.partition) and self._goes_wrong():
            if self.fault.kind == "exception":
                raise ArithmeticError("bad data")
            return np.full_like(gradient, np.nan), loss
        return gradient, loss

    def _goes_wrong(self):
        if self.fault.kind not in ("nan", "exception"):
            return False
        marker = Path(self.folder) / "wrong"
        if marker.exists():
            return self.fault.is_lasting
        marker.touch()
        return True


def draw(seed: int) -> Fault:
    """Draw a fault."""
    rng = np.random.default_rng([15, seed])
    fault = Fault(
        kind=str(rng.choice(KINDS)),
        clock=int(rng.integers(1, CLOCKS - 2)),
        partition=int(rng.integers(PARTITIONS)),
        victim=int(rng.integers(3)),
        is_lasting=bool(rng.integers(2)),
        non_finite=str(rng.choice(["stop", "refuse"])),
    )
    return replace(fault, options=drawn_options(rng))


def drawn_options(rng: np.random.Generator) -> dict:
    """Draw the number of shards, the time between checkpoints, and the number of stored pushes."""
    return {
        "num_shards": int(rng.choice([1, 3])),
        "checkpoint_every": int(rng.choice([2, 5])),
        "replay_mb": float(rng.choice([0.0, 0.0005, 1.0])),  # the second has capacity for about one clock
    }


def undisturbed(fault: Fault) -> TrainingRecord:
    """Return the run without faults, on one machine in this process."""
    from optim.kernels.parameter_server import Sgd

    options = ClusterOptions(num_shards=fault.options.get("num_shards", 4))
    alone = Event(clock=0, action=Action.ADD_RELIABLE, machines=("alone",))
    return Trainer(LogisticRegression(**JOB), Sgd(learning_rate=0.5), options).run(CLOCKS, [alone])


def digest(record: TrainingRecord) -> str:
    """Return a digest of losses and parameters that distinguishes two runs bit by bit."""
    return hashlib.sha256(np.array(record.losses).tobytes() + record.parameters.tobytes()).hexdigest()


def train(fault: Fault, folder: str) -> TrainingRecord:
    """Train with three workers, and have the fault happen."""
    from optim.kernels.parameter_server import Sgd  # workers import this module as well, and need no JAX

    application = Spoilt(**JOB, fault=fault, folder=folder)
    options = ClusterOptions(
        **{"num_shards": 1, "checkpoint_every": 2, **fault.options},
        silence_s=SILENCE_S,
        policy=Fixed(fixed=Stage.TRADITIONAL),
        non_finite=NonFinite(fault.non_finite),
    )
    if fault.kind == "memory":
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, SMALL_BYTES))
    start = [Event(clock=0, action=Action.ADD_RELIABLE, machines=("w0", "w1", "w2"))]
    rule = Sgd(learning_rate=0.5)
    with Processes(application, options, max_machines=4) as processes:
        if fault.kind != "controller":
            trainer = Trainer(application, rule, options, processes)
        else:
            trainer = resumable(application, rule, options, processes, Path(folder) / "checkpoints")
        trainer.run(max(fault.clock, trainer.clock), start)
        if fault.kind in ("stop", "kill"):
            signals = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}
            os.kill(processes.process_ids[f"w{fault.victim}"], signals[fault.kind])
        if fault.kind == "controller":
            print("running", flush=True)  # the listener now kills the run, or lets it continue
        return trainer.run(CLOCKS)


def main() -> None:
    """Run the fault given as JSON in a folder."""
    fault, folder = Fault(**json.loads(sys.argv[1])), sys.argv[2]
    try:
        record = train(fault, folder)
        print(record.losses[0], record.losses[-1], digest(record), flush=True)
    except OptimError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def words(fault: Fault, folder: str) -> list[str]:
    """Return the arguments of `main`."""
    return [json.dumps(asdict(fault)), folder]


if __name__ == "__main__":
    main()
