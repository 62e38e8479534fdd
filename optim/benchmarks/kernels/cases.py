"""What is measured of the parameter-server kernels: each case with the same work done by other means beside it."""

import numpy as np

from optim.benchmarks.kernels.contest import Contest
from optim.benchmarks.kernels.dense_cases import DenseCase, dense_contest
from optim.benchmarks.kernels.sparse_cases import SparseCase, sparse_contest
from optim.benchmarks.kernels.stream_cases import StreamCase, stream_contest

Case = DenseCase | SparseCase | StreamCase


def contest_of(case: Case, seed: int) -> Contest:
    """Draw a case's data and make its sides."""
    rng = np.random.default_rng(seed)
    match case:
        case DenseCase():
            return dense_contest(case, rng)
        case SparseCase():
            return sparse_contest(case, rng)
        case StreamCase():
            return stream_contest(case, rng)
