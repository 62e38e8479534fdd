"""From container metrics to phases: encode windows, cluster embeddings, and describe, forecast and watch what follows."""

from optim.phases.clustering import adjusted_rand_index as adjusted_rand_index
from optim.phases.encoders import ENCODERS as ENCODERS
from optim.phases.model import PhasedSeries as PhasedSeries
from optim.phases.model import PhaseModel as PhaseModel
