"""Stopping rules: small objects that decide from a solve's state whether and why to stop."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Protocol

from optim.core.errors import InvalidOptionError
from optim.core.solution import Sense, Termination, relative_gap


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveState:
    """Input of a stopping rule."""

    elapsed_s: float
    iterations: int = 0
    objective: float | None = None
    bound: float | None = None
    sense: Sense = Sense.MAXIMISE


class StoppingCriterion(Protocol):
    """Decide whether to stop; called between iterations."""

    def __call__(self, state: SolveState) -> Termination | None:
        """Return the reason to stop, or None to continue."""
        ...

    def remaining_s(self, elapsed_s: float) -> float:
        """Return the seconds left, infinity if the rule has no time limit."""
        ...


def never() -> bool:
    """Return False: never stop."""
    return False


@dataclass(frozen=True, slots=True)
class Never:
    """Never stop."""

    def __call__(self, state: SolveState) -> Termination | None:
        """Continue."""
        return None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Stop after `limit_s` seconds of wall-clock time.

    Raises
    ------
    InvalidOptionError
        If the limit is negative or not a number.
    """

    limit_s: float

    def __post_init__(self) -> None:
        if not _is_number(self.limit_s) or not self.limit_s >= 0:
            raise InvalidOptionError(f"time limit must be a number of at least 0 seconds, got {self.limit_s!r}")

    def __call__(self, state: SolveState) -> Termination | None:
        """Stop once the time is used up."""
        return Termination.TIME_LIMIT if state.elapsed_s >= self.limit_s else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return the rest of the limit, at least 0."""
        return max(0.0, self.limit_s - elapsed_s)


@dataclass(frozen=True, slots=True)
class TimeReserve:
    """Stop once `rule` leaves at most `reserve_s` seconds."""

    rule: StoppingCriterion
    reserve_s: float

    def __call__(self, state: SolveState) -> Termination | None:
        """Stop once only the reserve is left."""
        return Termination.TIME_LIMIT if self.remaining_s(state.elapsed_s) <= 0 else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return the seconds before the reserve, at least 0."""
        return max(0.0, self.rule.remaining_s(elapsed_s) - self.reserve_s)


@dataclass(frozen=True, slots=True)
class IterationLimit:
    """Stop after `limit` iterations of the solver's main loop; `reason` (iteration or node limit) depends on the solver."""

    limit: int
    reason: Termination = Termination.ITERATION_LIMIT

    def __post_init__(self) -> None:
        if not _is_number(self.limit) or not self.limit >= 0:
            raise InvalidOptionError(f"iteration limit must be a number of at least 0, got {self.limit!r}")

    def __call__(self, state: SolveState) -> Termination | None:
        """Stop once the iterations are used up."""
        return self.reason if state.iterations >= self.limit else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return infinity."""
        return math.inf


@dataclass(frozen=True, slots=True)
class GapLimit:
    """Stop once the relative gap is at most `limit` (0.05 is five per cent).

    For a solver that returns a bound without a plan, this is the gap of its linear programme.
    """

    limit: float

    def __post_init__(self) -> None:
        if not _is_number(self.limit) or not self.limit >= 0:
            raise InvalidOptionError(f"gap limit must be a number of at least 0, got {self.limit!r}")

    def __call__(self, state: SolveState) -> Termination | None:
        """Stop once the gap is small enough."""
        gap = relative_gap(state.objective, state.bound, state.sense)
        return Termination.GAP_LIMIT if gap is not None and gap <= self.limit else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return infinity."""
        return math.inf


@dataclass(slots=True)
class Interruption:
    """Stop after a call of `request`, for example by a signal handler or another thread."""

    is_requested: bool = False

    def request(self) -> None:
        """Stop every solver with this rule at its next check."""
        self.is_requested = True

    def __call__(self, state: SolveState) -> Termination | None:
        """Stop once requested."""
        return Termination.INTERRUPTED if self.is_requested else None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return 0 after a request, infinity before."""
        return 0.0 if self.is_requested else math.inf


class AnyOf:
    """Stop as soon as one of several rules does; the first such rule in order gives the reason."""

    __slots__ = ("rules",)

    def __init__(self, *rules: StoppingCriterion) -> None:
        self.rules = rules

    def __call__(self, state: SolveState) -> Termination | None:
        """Return the reason of the first rule that stops, or None."""
        for rule in self.rules:
            reason = rule(state)
            if reason is not None:
                return reason
        return None

    def remaining_s(self, elapsed_s: float) -> float:
        """Return the smallest remaining time of all rules."""
        return min((rule.remaining_s(elapsed_s) for rule in self.rules), default=math.inf)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
