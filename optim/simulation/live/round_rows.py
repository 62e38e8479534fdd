"""What rounds of leases are asked for, and what they tell: a row for each lease, and one for each app."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optim.core.ranges import check_in


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """How many rounds there are, and how their auctions are held.

    Parameters
    ----------
    rounds
        At most; they end when all apps are done.
    fairness
        f of the arbiter: in later rounds the 1 - f of the apps with the worst rho may bid, 0 for all.
    """

    rounds: int = 2
    fairness: float = 0.8

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, "rounds")
        check_in("[0, 1]", self, "fairness")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turnout:
    """What came of a lease.

    Parameters
    ----------
    done_min
        Serial GPU minutes.
    finished_min
        Minutes from its beginning after which the app was done; None if it isn't.
    clocks, start_s
        Clocks of training, and seconds that the processes took to be up.
    """

    done_min: float
    finished_min: float | None = None
    clocks: int = 0
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """An app's lease of a round.

    Attributes
    ----------
    round, app, gpus, placement
        Which, how many GPUs, and the smallest subtree that holds them.
    left_min
        Serial GPU minutes of the app's work at its beginning, from its last checkpoint.
    planned_min, realised_min, error
        Those that the lease does by the app's own speed, those done here, and the latter over the former, less 1.
    clocks, start_s
        As in `Turnout`.
    """

    round: int
    app: str
    gpus: int
    placement: str
    left_min: float
    planned_min: float
    realised_min: float
    error: float
    clocks: int
    start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRow:
    """An app over all rounds: as foreseen from the beginning, and as it went.

    Attributes
    ----------
    app
        Its name.
    planned_leases, realised_leases
        Rounds in which it had GPUs.
    planned_min, realised_min
        Serial GPU minutes done.
    planned_finish_min, realised_finish_min
        Minutes from the first lease until it was done; None if it wasn't.
    planned_rho, realised_rho
        Finish-time fairness of apps that are done.
    is_exact
        Whether training through all checkpoints is that of a run that nobody stopped, bit for bit.
    """

    app: str
    planned_leases: int
    realised_leases: int
    planned_min: float
    realised_min: float
    planned_finish_min: float | None
    realised_finish_min: float | None
    planned_rho: float | None
    realised_rho: float | None
    is_exact: bool | None = None


def total_error(rows: Sequence[RoundRow]) -> float | None:
    """Return how far the work done in all leases is from what they planned; None without any."""
    planned = math.fsum(row.planned_min for row in rows)
    return math.fsum(row.realised_min for row in rows) / planned - 1.0 if planned else None
