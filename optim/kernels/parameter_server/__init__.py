"""Parameter-server kernels: push, aggregate, apply, pull.

Pure functions on arrays: no I/O, no processes, no terms of a particular problem. Only NumPy, JAX and optax are needed. Some
functions overwrite the arrays of their *donated* arguments: don't use these arrays after the call.
"""

from optim.kernels.parameter_server.dense import apply_pushes as apply_pushes
from optim.kernels.parameter_server.dense import copy_arrays as copy_arrays
from optim.kernels.parameter_server.optimisers import AbstractOptimiser as AbstractOptimiser
from optim.kernels.parameter_server.optimisers import Adagrad as Adagrad
from optim.kernels.parameter_server.optimisers import Adam as Adam
from optim.kernels.parameter_server.optimisers import AdamW as AdamW
from optim.kernels.parameter_server.optimisers import Momentum as Momentum
from optim.kernels.parameter_server.optimisers import Sgd as Sgd
from optim.kernels.parameter_server.optimisers import WarmupCosine as WarmupCosine
from optim.kernels.parameter_server.sparse import RowLayout as RowLayout
from optim.kernels.parameter_server.sparse import Rows as Rows
from optim.kernels.parameter_server.sparse import initial_rows as initial_rows
from optim.kernels.parameter_server.sparse import pull_rows as pull_rows
from optim.kernels.parameter_server.sparse import push_sparse as push_sparse
