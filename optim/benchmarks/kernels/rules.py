"""The optimisers that the kernels' rows are measured with, all at the contest's rate."""

from collections.abc import Mapping
from types import MappingProxyType

from optim.benchmarks.kernels.contest import RATE
from optim.kernels.parameter_server import AbstractOptimiser, Adagrad, Adam, Momentum, Sgd

RULES: Mapping[str, AbstractOptimiser] = MappingProxyType(
    {
        "sgd": Sgd(learning_rate=RATE),
        "momentum": Momentum(learning_rate=RATE),
        "adagrad": Adagrad(learning_rate=RATE),
        "adam": Adam(learning_rate=RATE),
    }
)
