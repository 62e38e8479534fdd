"""Zones that fail together: machines of a zone and type are lost by a cause of their own, their zone's, or their region's.

Each cause comes at a time of its own, independent of the others, and takes all that it concerns (Marshall and Olkin's
shocks): docs/mathematics/bidding.md, (B.14).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import ComparesByValue, freeze_arrays
from optim.core.errors import InvalidProblemError
from optim.models.bidding.instance import FloatArray, IntArray

RESOLUTION = 1e-6
"""Capacities that differ by less are the same."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CommonShocks(ComparesByValue):
    """Expected shocks within the time that is looked at.

    Parameters
    ----------
    zone, region
        Shape (kinds,) and (zones,): the zone of each kind of machines, and the region of each zone.
    own, by_zone, by_region
        Shape (kinds,), (zones,), (regions,): expected shocks, at least 0; nothing happens with probability exp(-shocks).

    References
    ----------
    Marshall, Olkin, "A Multivariate Exponential Distribution", JASA 62 (1967), DOI 10.1080/01621459.1967.10482885.
    """

    zone: IntArray
    region: IntArray
    own: FloatArray
    by_zone: FloatArray
    by_region: FloatArray

    def __post_init__(self) -> None:
        freeze_arrays(self)
        shocks = np.concatenate([self.own, self.by_zone, self.by_region])
        if not ((shocks >= 0) & np.isfinite(shocks)).all():
            raise InvalidProblemError("expected shocks must be finite and at least 0")
        if len(self.own) != len(self.zone) or len(self.by_zone) != len(self.region):
            raise InvalidProblemError("each kind needs a zone, and each zone a region")
        for places, shocks_there, word in ((self.zone, self.by_zone, "zone"), (self.region, self.by_region, "region")):
            if len(places) and not 0 <= places.min() <= places.max() < len(shocks_there):
                raise InvalidProblemError(
                    f"a {word} must be between 0 and {len(shocks_there) - 1}, got {places.tolist()}"
                )

    def survival(self) -> FloatArray:
        """Return each kind's probability to last, shape (kinds,)."""
        return np.asarray(np.exp(-(self.own + self.by_zone[self.zone] + self.by_region[self.region[self.zone]])))

    def probability(self, capacity: Sequence[float] | FloatArray, least: float) -> float:
        """Return the exact probability that what lasts has a capacity of at least `least`.

        Capacities of kinds are added up as distributions: of a zone's kinds without its shock, mixed with nothing; of a
        region's zones alike; then of all regions.

        Parameters
        ----------
        capacity
            Shape (kinds,): what all machines of a kind do together, 0 for those that aren't held.
        least
            How much is needed.
        """
        most = round(least / RESOLUTION)
        total = {0: 1.0}
        for region, shock in enumerate(self.by_region.tolist()):
            inside = {0: 1.0}
            for zone in np.flatnonzero(self.region == region).tolist():
                kinds = {0: 1.0}
                for kind in np.flatnonzero(self.zone == zone).tolist():
                    size = round(capacity[kind] / RESOLUTION)
                    if size:
                        kinds = _add(kinds, _either({size: 1.0}, float(self.own[kind])), most)
                inside = _add(inside, _either(kinds, float(self.by_zone[zone])), most)
            total = _add(total, _either(inside, shock), most)
        return sum(chance for size, chance in total.items() if size >= most)


def _either(chances: dict[int, float], shocks: float) -> dict[int, float]:
    """Return a distribution, or nothing with the probability of a shock."""
    stays = float(np.exp(-shocks))
    found = {size: chance * stays for size, chance in chances.items()}
    found[0] = found.get(0, 0.0) + 1.0 - stays
    return found


def _add(one: dict[int, float], other: dict[int, float], most: int) -> dict[int, float]:
    """Return the distribution of the sum of two independent ones; sums above `most` count as that."""
    found: dict[int, float] = {}
    for size, chance in one.items():
        for more, share in other.items():
            both = min(size + more, most)
            found[both] = found.get(both, 0.0) + chance * share
    return found
