"""Sizes of the kernels' studies."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError
from optim.core.options import options_as_dict
from optim.core.ranges import check_in


def _check_positive(options: "KernelOptions | TrapOptions") -> None:
    for name, value in options_as_dict(options).items():
        if name != "skew" and not isinstance(value, bool) and value < 1:
            raise InvalidOptionError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions:
    """Sizes of the study.

    Parameters
    ----------
    parameters, small_parameters
        Length of dense pushes, and the length that is measured beside it and for the kernels on one vector.
    pushed, width, rows
        Rows of a sparse push, their width, and rows of the table.
    rounds
        Rounds of which the median is taken.
    is_brief
        Whether two rules each stand for all of them, on dense pushes and on tables.
    skew
        Exponent of Zipf's law by which rows are drawn, so that few are pushed again and again; 0 draws evenly.
    """

    parameters: int = 1 << 24
    small_parameters: int = 1 << 22
    pushed: int = 262_144
    width: int = 64
    rows: int = 1_000_000
    rounds: int = 30
    is_brief: bool = False
    skew: float = 0.0

    def __post_init__(self) -> None:
        _check_positive(self)
        check_in("[0, 10]", self, "skew")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrapOptions:
    """Sizes of the study.

    Parameters
    ----------
    parameters, workers
        Length of dense pushes, and how many come together.
    leaves
        Arrays that a model's parameters come in.
    pushed, width, rows
        Rows of a sparse push, their width, and rows of the table.
    carried_pushes, carried_rows
        Rows of a push and of a table where a loop carries two arrays.
    rounds
        Rounds of which the median is taken.
    """

    parameters: int = 1 << 22
    workers: int = 16
    leaves: int = 200
    pushed: int = 262_144
    width: int = 64
    rows: int = 1_000_000
    carried_pushes: int = 512
    carried_rows: int = 2_000
    rounds: int = 15

    def __post_init__(self) -> None:
        _check_positive(self)
        if self.carried_pushes > self.carried_rows:
            raise InvalidOptionError(
                f"carried_pushes must be at most carried_rows {self.carried_rows}, got {self.carried_pushes}: each row "
                "is pushed once"
            )
