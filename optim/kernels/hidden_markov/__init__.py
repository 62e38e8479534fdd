"""Hidden Markov models with Gaussian emissions, plain or autoregressive: filtering, smoothing and fitting by EM.

Series are padded to one length and processed together; every pass is one scan over time, on probabilities that are
normalised at each sample.
"""

from optim.kernels.hidden_markov.fitting import Fit as Fit
from optim.kernels.hidden_markov.fitting import fit as fit
from optim.kernels.hidden_markov.inference import advance as advance
from optim.kernels.hidden_markov.inference import filter as filter
from optim.kernels.hidden_markov.inference import negative_log_likelihood as negative_log_likelihood
from optim.kernels.hidden_markov.inference import smooth as smooth
from optim.kernels.hidden_markov.model import HmmParameters as HmmParameters
from optim.kernels.hidden_markov.model import pad_series as pad_series
