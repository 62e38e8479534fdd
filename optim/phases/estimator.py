"""Parameters by name, with names as in scikit-learn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from optim.core.errors import InvalidOptionError

DEFAULT_ENCODER = "hmm"


@dataclass(kw_only=True, eq=False)
class PhaseParameters:
    """The parameters of `PhaseModel`, kept as they are given; whatever uses them checks them."""

    encoder: str = DEFAULT_ENCODER
    encoder_options: Mapping[str, Any] | None = None
    num_phases: int | None = None
    resources: Sequence[str] | None = None
    interval_s: float = 15.0
    max_gap_s: float = 60.0
    has_logarithm: bool = True
    is_padded: bool = False
    smoothing: int = 1
    min_dwell: int = 2
    order: int | None = None
    anomaly_rate: float = 0.01
    seed: int = 0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; none of them has parameters of its own, so that `deep` changes nothing."""
        del deep
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        InvalidOptionError
            If there is no such parameter.
        """
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise InvalidOptionError(f"unknown parameter {name!r}; {type(self).__name__} knows: {', '.join(known)}")
            setattr(self, name, value)
        return self
