"""Training jobs on generated data of the shapes that AgileML was measured on, to be made as small as one likes."""

from optim.training.applications.logistic_regression import LogisticRegression as LogisticRegression
from optim.training.applications.matrix_factorisation import MatrixFactorisation as MatrixFactorisation
from optim.training.applications.topic_model import TopicModel as TopicModel
