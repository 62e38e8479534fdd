"""Common fixtures of the tests of the kernels' study."""

import numpy as np
import pytest


class ServerHere:
    """Replaces the server's process, which takes a second to start; one test uses the real process."""

    def __init__(self, start, pushes, rate):
        self.held, self.pushes, self.rate = start.copy(), pushes, np.float32(rate)

    def update(self):
        self.held -= self.rate * np.mean(self.pushes, axis=0)

    def parameters(self):
        return self.held

    def close(self):
        pass


@pytest.fixture
def server_here(monkeypatch):
    """Replace the server's process by an object in this process."""
    monkeypatch.setattr("optim_studies.kernels.cases.ServerProcess", ServerHere)
