"""A server in a separate process applies the contents of shared memory on every request."""

import numpy as np
import pytest
from optim_studies.kernels.server import ServerProcess


def test_a_server_in_a_process_of_its_own_applies_what_lies_in_shared_memory():
    rng = np.random.default_rng(0)
    start, pushes = rng.random(5000, dtype=np.float32), [rng.random(5000, dtype=np.float32) for _ in range(3)]
    server = ServerProcess(start, pushes, 0.1)
    for _ in range(2):
        server.update()
    assert server.parameters() == pytest.approx(start - 0.2 * np.mean(pushes, axis=0), abs=1e-6)
    before = server.parameters()
    pushes[1][:] = 0  # each round writes the current values of the workers
    server.update()
    assert server.parameters() == pytest.approx(before - 0.1 * (pushes[0] + pushes[2]) / 3, abs=1e-6)
    server.close()
    with pytest.raises((RuntimeError, ValueError)):
        server.update()
