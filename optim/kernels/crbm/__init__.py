"""Conditional restricted Boltzmann machine (CRBM): Gaussian visible units given their past, binary hidden units.

Series of any lengths are concatenated along time; `window_ends` lists the samples that have enough history. Every function
builds a window's history from the series itself, in one order: the oldest frame (sample) first, and by feature in a frame.
"""

from optim.kernels.crbm.divergence import Sampling as Sampling
from optim.kernels.crbm.encoding import encode as encode
from optim.kernels.crbm.encoding import hidden_logits as hidden_logits
from optim.kernels.crbm.energy import free_energy as free_energy
from optim.kernels.crbm.forecasting import forecast as forecast
from optim.kernels.crbm.forecasting import forecast_error as forecast_error
from optim.kernels.crbm.forecasting import roll_out as roll_out
from optim.kernels.crbm.forecasting import spectral_radius as spectral_radius
from optim.kernels.crbm.parameters import CrbmParameters as CrbmParameters
from optim.kernels.crbm.parameters import initial_parameters as initial_parameters
from optim.kernels.crbm.parameters import pad_parameters as pad_parameters
from optim.kernels.crbm.parameters import parameter_mask as parameter_mask
from optim.kernels.crbm.parameters import trim_parameters as trim_parameters
from optim.kernels.crbm.training import Rates as Rates
from optim.kernels.crbm.training import TrainingState as TrainingState
from optim.kernels.crbm.training import initial_state as initial_state
from optim.kernels.crbm.training import sweep as sweep
from optim.kernels.crbm.training import train as train
from optim.kernels.crbm.windows import gather_windows as gather_windows
from optim.kernels.crbm.windows import window_ends as window_ends
