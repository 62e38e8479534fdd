"""Proofs of lower bounds on what a schedule of rigid jobs on equal GPUs can reach. They are data; the checker recomputes them."""

from dataclasses import dataclass

from optim.models.cluster.world import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceProof:
    """Prices of a GPU-second, constant over slots of equal length and 0 after the last.

    They prove ``mean JCT >= (sum_j min_C (C - r_j + w_j x the cheapest d_j seconds of p in [r_j, C]) - G x integral of p) / n``
    (docs/mathematics/cluster.md, (D.1)).

    Parameters
    ----------
    slot_us
        Length of a slot in microseconds.
    price
        Price of a GPU-second in seconds of completion time, at least 0; shape (slots,).
    """

    slot_us: int
    price: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProof:
    """A time: the work of all jobs submitted from then on can't be done earlier than the makespan that it gives (D.2)."""

    from_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalProof:
    """An interval that is overloaded if every job had to end within `slowdown` times its exclusive duration (D.3)."""

    slowdown: float
    from_us: int
    to_us: int
