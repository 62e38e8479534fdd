"""How much a placement slows training down, by the smallest subtree that holds it; measured tables as presets."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from optim.core.errors import InvalidProblemError
from optim.models.auction.instance import Locality


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """S >= 1: time of a step over its time in the best placement.

    Parameters
    ----------
    slot, machine, rack, cluster
        S where all GPUs share a slot, a machine, a rack, or only the cluster.

    Raises
    ------
    InvalidProblemError
        If one is below 1 or not finite.
    """

    slot: float = 1.0
    machine: float = 1.0
    rack: float = 1.0
    cluster: float = 1.0

    def __post_init__(self) -> None:
        for name in ("slot", "machine", "rack", "cluster"):
            if not 1 <= getattr(self, name) < float("inf"):
                raise InvalidProblemError(f"slowdown.{name} must be at least 1 and finite, got {getattr(self, name)}")

    def at(self, locality: int) -> float:
        """Return S of a locality."""
        return (self.slot, self.machine, self.rack, self.cluster)[locality]

    def within(self, locality: int) -> float:
        """Return the worst S of a placement anywhere within a subtree: what a bid for it can count on."""
        return max((self.slot, self.machine, self.rack, self.cluster)[: locality + 1])

    @property
    def best(self) -> float:
        """S of the best locality."""
        return min(self.slot, self.machine, self.rack, self.cluster)


NETWORK_BOUND = Slowdown(slot=1.0, machine=1.05, rack=1.3, cluster=1.8)
COMPUTE_BOUND = Slowdown(slot=1.0, machine=1.0, rack=1.02, cluster=1.1)
"""The two kinds of apps that the generator mixes."""


def _spread(ratio: float) -> Slowdown:
    """Return the slowdown of a model measured on one machine and spread over several."""
    return Slowdown(rack=max(1.0, ratio), cluster=max(1.0, ratio))


PRESETS: Mapping[str, Slowdown] = MappingProxyType(
    {
        "network-bound": NETWORK_BOUND,
        "compute-bound": COMPUTE_BOUND,
        # Mahajan et al. (Themis), NSDI 2020, table 1: images/s of 4 P100 on one server, and on two of two.
        "vgg16-themis": _spread(103.6 / 80.4),
        "inception3-themis": _spread(242.0 / 243.0),
        # Gu et al. (Tiresias), NSDI 2019, figure 3: throughput of 8 workers placed at random over consolidated.
        "vgg19": _spread(1 / 0.72),
        "vgg16": _spread(1 / 0.73),
        "vgg11": _spread(1 / 0.77),
        "alexnet": _spread(1 / 0.80),
        "resnet152": _spread(1 / 1.04),
        "resnet101": _spread(1 / 1.06),
        "resnet50": _spread(1 / 1.08),
        "inception4": _spread(1 / 1.02),
        "inception3": _spread(1 / 1.06),
        "googlenet": _spread(1 / 1.07),
        # Jeon et al. (Philly), ATC 2019, table 4: images/s of ResNet-50 on 2 GPUs of one server, of two servers.
        "resnet50-philly": _spread(114.8 / 98.0),
        # Qiao et al. (Pollux), OSDI 2021, published placement profiles, 4 GPUs: the median over batch sizes of the
        # step time on two nodes of two (rack) and on four nodes of one (cluster) over that on one node.
        "bert-pollux": Slowdown(rack=2.83, cluster=1.77),
        "yolov3-pollux": Slowdown(rack=2.19, cluster=1.39),
        "ncf-pollux": Slowdown(rack=2.19, cluster=1.64),
        "imagenet-pollux": Slowdown(rack=1.32, cluster=1.03),
        "cifar10-pollux": Slowdown(rack=1.29, cluster=1.19),
        "deepspeech2-pollux": Slowdown(rack=1.23, cluster=1.07),
    }
)
"""Measured slowdowns by name. Those of Pollux aren't monotone: fewer GPUs a node share its network card less."""

SCORES: Mapping[int, float] = MappingProxyType(
    {Locality.SLOT: 1.0, Locality.MACHINE: 0.75, Locality.RACK: 0.5, Locality.CLUSTER: 0.25}
)
"""Placement score of a locality: 1 for the best."""
