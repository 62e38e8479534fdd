"""Solvers that do almost no work, each with one trait that a test needs."""

import hashlib
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.registry import SUPPORTED, Support
from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Stats, Termination
from optim.core.stopping import SolveState
from optim.models.admission.decision import AdmissionPlan, PriceProof

STUCK_ON = "DUMMY_STUCK_ON"
"""Environment variable: the instance on which a solve takes a minute."""

STARTED = "DUMMY_STARTED"
"""Environment variable: path of a file that is created when a solve of `LONG_S` begins."""

LONG_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyOptions:
    """Seconds to wait, and a number without effect."""

    wait_s: float = 0.0
    number: int = 1

    def __post_init__(self):
        if self.wait_s < 0:
            raise InvalidOptionError(f"wait_s must be at least 0, got {self.wait_s}")


def tell_started(wait_s):
    """Create the file named by `STARTED` if the solve is a long one."""
    if wait_s >= LONG_S and STARTED in os.environ:
        Path(os.environ[STARTED]).touch()


class Idle:
    """Admit no job (value 0), and prove a bound with prices 0: 1.001 times the sum of the jobs' highest values."""

    summary = "admits nobody"
    options_type = DummyOptions

    def supports(self, instance):
        """Support everything."""
        del instance
        return SUPPORTED

    def solve(self, instance, *, options, stop, seed, progress):
        """Wait for `wait_s` (a minute on the instance `STUCK_ON`), then return the empty plan."""
        is_stuck = os.environ.get(STUCK_ON) == instance.name
        reason = self.wait(LONG_S if is_stuck else options.wait_s, stop, progress)
        payoff = 1.001 * instance.value.max(axis=1, initial=0.0)
        shape = (instance.horizon, instance.num_resources)
        ps_classes = 0 if instance.has_shared_servers else instance.ps_servers.num_classes
        proof = PriceProof(
            worker_price=np.zeros((instance.worker_servers.num_classes, *shape)),
            ps_price=np.zeros((ps_classes, *shape)),
            payoff=payoff,
        )
        return Solution(
            problem="admission",
            instance=instance.name,
            solver=self.name,
            sense=Sense.MAXIMISE,
            termination=reason or Termination.COMPLETED,
            primal=PointStatus.FEASIBLE,
            dual=PointStatus.FEASIBLE,
            decision=AdmissionPlan.from_rows([], []),
            objective=0.0,
            bound=float(payoff.sum()),
            certificate=Certificate(kind=CertificateKind.BOUND, statement="", proof=proof),
            seed=seed,
            options=asdict(options),
            stats=Stats(
                seconds={"build": 0.001, "compile": 0.0, "solve": 0.002},
                decision_ms=tuple(0.1 * (i + 1) for i in range(instance.num_jobs)),
                counts={"rejected": float(instance.num_jobs)},
            ),
        )

    def wait(self, wait_s, stop, progress):
        """Sleep for 10 ms at a time, and check the stopping rule after each."""
        begun = time.perf_counter()
        tell_started(wait_s)
        progress.start("waiting", wait_s)
        while (elapsed := time.perf_counter() - begun) < wait_s:
            reason = stop(SolveState(elapsed_s=elapsed))
            if reason is not None:
                return reason
            progress.update(elapsed, {"objective": 0.0, "bound": None})
            time.sleep(0.01)
        progress.finish()
        return None


class Liar(Idle):
    """Claim an objective above its plan's value."""

    summary = "claims too much"

    def solve(self, instance, **arguments):
        """Return the empty plan with a positive objective."""
        return replace(super().solve(instance, **arguments), objective=1.0)


class Crash(Idle):
    """Raises in the middle of a task."""

    summary = "raises"

    def solve(self, instance, **arguments):
        """Raise."""
        arguments["progress"].start("crashing")
        raise RuntimeError("a fault in a foreign solver\nof two lines")


class Die(Idle):
    """Ends its process without an exception, as a crash in compiled code does."""

    summary = "dies"

    def solve(self, instance, **arguments):
        """End the process."""
        os._exit(9)


class Stubborn(Idle):
    """Spends a minute in compiled code, which checks no stopping rule and handles no signal."""

    summary = "does not listen"

    def solve(self, instance, **arguments):
        """Hash for a long time; the interpreter can't run a signal handler meanwhile."""
        tell_started(LONG_S)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000_000)


class Nothing(Idle):
    """Returns neither plan nor bound."""

    summary = "finds nothing"

    def solve(self, instance, **arguments):
        """Return a solution without a plan, an objective or a bound."""
        return replace(
            super().solve(instance, **arguments),
            termination=Termination.TIME_LIMIT,
            primal=PointStatus.NONE,
            dual=PointStatus.NONE,
            decision=None,
            objective=None,
            bound=None,
            certificate=None,
        )


class TinyOnly(Idle):
    """Supports at most six jobs."""

    summary = "admits nobody of six"

    def supports(self, instance):
        """Refuse instances of more than six jobs."""
        return SUPPORTED if instance.num_jobs <= 6 else Support(False, "more than 6 jobs")


DUMMIES = {
    "idle": Idle,
    "liar": Liar,
    "crash": Crash,
    "die": Die,
    "nothing": Nothing,
    "stubborn": Stubborn,
    "tiny-only": TinyOnly,
}
