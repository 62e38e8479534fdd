"""Training jobs on generated data: the three applications of AgileML's published experiments, and a neural network."""

from collections.abc import Mapping
from types import MappingProxyType

from optim.training.applications.logistic_regression import LogisticRegression as LogisticRegression
from optim.training.applications.matrix_factorisation import MatrixFactorisation as MatrixFactorisation
from optim.training.applications.neural_network import NeuralNetwork as NeuralNetwork
from optim.training.applications.topic_model import TopicModel as TopicModel

APPLICATIONS: Mapping[str, "type[LogisticRegression | MatrixFactorisation | NeuralNetwork | TopicModel]"] = (
    MappingProxyType(
        {
            "matrix-factorisation": MatrixFactorisation,
            "logistic-regression": LogisticRegression,
            "topic-model": TopicModel,
            "neural-network": NeuralNetwork,
        }
    )
)
"""Applications by name."""
