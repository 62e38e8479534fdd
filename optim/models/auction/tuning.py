"""Remaining work of hyper-parameter tuning: successive halving, early stopping by class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from optim.core.errors import InvalidOptionError


def rung_sizes(num_trials: int, eta: int) -> tuple[int, ...]:
    """Return the number of trials in each rung of successive halving: ceil(n / eta^k) for k = 0, 1, ..., down to one.

    Examples
    --------
    >>> rung_sizes(9, 3)
    (9, 3, 1)
    """
    if num_trials < 1 or eta < 2:
        raise InvalidOptionError(f"halving needs at least 1 trial and eta of at least 2, got {num_trials} and {eta}")
    sizes = [num_trials]
    while sizes[-1] > 1:
        sizes.append(-(-num_trials // eta ** len(sizes)))
    return tuple(sizes)


def expected_trial_work(num_trials: int, eta: int, epochs: float, rung: int) -> float:
    """Return the expected remaining epochs of a trial in `rung` if all sets of survivors are equally likely.

    The work of a later rung is weighted by the share of trials that reach it.
    """
    sizes = rung_sizes(num_trials, eta)
    if not 0 <= rung < len(sizes):
        raise InvalidOptionError(f"rung must be in [0, {len(sizes) - 1}], got {rung}")
    return math.fsum(
        sizes[k] / sizes[rung] * epochs * (eta**k - (eta ** (k - 1) if k else 0)) for k in range(rung, len(sizes))
    )


class TrialClass(StrEnum):
    """Class of a trial at a check: `GOOD` trials run in full, `PROMISING` trials count half, `POOR` trials end."""

    GOOD = "good"
    PROMISING = "promising"
    POOR = "poor"

    @property
    def share(self) -> float:
        """Share of a trial's work that it is expected to do; the trial receives the same share of its parallelism."""
        return 1.0 if self is TrialClass.GOOD else 0.5 if self is TrialClass.PROMISING else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFit:
    """Fitted curve of the loss after t epochs: loss(t) = limit + scale * t^-power."""

    limit: float
    scale: float
    power: float

    def at(self, epoch: float) -> float:
        """Return the loss after `epoch` epochs."""
        return float(self.limit + self.scale * epoch**-self.power)


def fit_loss_curve(losses: Sequence[float]) -> CurveFit:
    """Fit a power law to the losses after epochs 1, 2, ...; at least three are needed.

    The exponent is searched on a grid; limit and scale follow by least squares, with the scale at least 0.
    """
    if len(losses) < 3 or not all(math.isfinite(loss) for loss in losses):
        raise InvalidOptionError(f"a loss curve needs at least 3 finite losses, got {list(losses)}")
    y = np.asarray(losses, dtype=np.float64)
    epoch = np.arange(1, len(y) + 1, dtype=np.float64)
    best: tuple[float, CurveFit] | None = None
    for power in np.geomspace(0.05, 3.0, 60):
        x = epoch**-power
        scale = max(0.0, float(np.cov(x, y, bias=True)[0, 1] / x.var()))
        limit = float(y.mean() - scale * x.mean())
        error = float(((limit + scale * x - y) ** 2).sum())
        if best is None or error < best[0]:
            best = error, CurveFit(limit=limit, scale=scale, power=float(power))
    assert best is not None
    return best[1]


def classify_trials(
    curves: Sequence[Sequence[float]], last_epoch: float, *, good: float = 0.05, poor: float = 0.25
) -> tuple[TrialClass, ...]:
    """Classify trials by their predicted final loss relative to the best predicted loss.

    The excess of a trial is (loss - best) / |best|. A trial is good if its excess is at most `good`, poor if it
    is more than `poor`, and promising otherwise.
    """
    if not 0 <= good <= poor:
        raise InvalidOptionError(f"good and poor must satisfy 0 <= good <= poor, got {good} and {poor}")
    final = [fit_loss_curve(curve).at(last_epoch) for curve in curves]
    best = min(final, default=0.0)
    excess = [(loss - best) / max(abs(best), 1e-12) for loss in final]
    return tuple(
        TrialClass.GOOD if e <= good else TrialClass.POOR if e > poor else TrialClass.PROMISING for e in excess
    )
