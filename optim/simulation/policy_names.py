"""Which policies there are, world by world: names alone, so that a shell that completes them loads no policy."""

from collections.abc import Mapping

from optim.core.errors import InvalidOptionError
from optim.core.optional import installed_names
from optim.models.cluster.policy_names import SHIPPED

CLUSTER_PLUGINS = "optim.policies"
"""Entry points that other packages name policies of `simulate cluster` in."""

NAMES: Mapping[str, str] = {
    "cluster": " ".join(sorted(SHIPPED)),
    "containers": """
        analogs analogs-phases autopilot autopilot-ml autopilot-serving boosted-quantiles boosted-quantiles-phases clairvoyant
        clairvoyant-harmless current-step-max current-step-rules ewma-10 ewma-2 ewma-5 forest forest-phases holt level-price oracle-static phase-markov
        phase-max phase-price phase-rule phase-rule-limit phase-rule-scaled phase-semi-markov phase-shift prev-step-max
        prev-step-rules quantile-90 quantile-95 quantile-99 running-max static vpa vpa-no-floor vpa-warm""",
    "spot": """
        bidbrain-checkpoint on-demand oracle oracle-paid proteus standard standard-agile standard-checkpoint""",
    "zones": """
        adaptive-zones cheapest-zone greedy-spot on-demand optimum skynomad uniform-progress
        uniform-progress-zones""",
}
"""By the world's name: a cluster of GPUs, containers, spot machines by bids, and till a deadline in one zone or several.

A test holds them to the catalogues, whose policies take seconds to load.
"""


def policy_names(world: str) -> tuple[str, ...]:
    """Return the names of the policies that can be played in a world, clairvoyant references too, sorted.

    Parameters
    ----------
    world
        ``"cluster"``, ``"containers"``, ``"spot"`` (bids on prices) or ``"zones"``
        (availability and a deadline, in one zone or several).

    Raises
    ------
    InvalidOptionError
        If there is no such world.

    Examples
    --------
    >>> import optim
    >>> "srtf" in optim.policy_names("cluster"), "proteus" in optim.policy_names("spot")
    (True, True)
    """
    if world not in NAMES:
        raise InvalidOptionError(f"unknown world {world!r}; there are: {', '.join(NAMES)}")
    others = installed_names(CLUSTER_PLUGINS) if world == "cluster" else ()
    return tuple(sorted({*NAMES[world].split(), *others}))
