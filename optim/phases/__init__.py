"""Phases from container metrics: encode windows, cluster embeddings, describe phases, forecast, and detect drift."""

from optim.phases.clustering import adjusted_rand_index as adjusted_rand_index
from optim.phases.encoders import ENCODERS as ENCODERS
from optim.phases.model import PhasedSeries as PhasedSeries
from optim.phases.model import PhaseModel as PhaseModel
