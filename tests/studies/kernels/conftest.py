"""Common fixtures of the tests of the kernels' study."""

import numpy as np
import pytest


class ServerHere:
    """Stands for the server's process, which takes a second to start: one test has the real one."""

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
    """Let no process be started."""
    monkeypatch.setattr("optim_studies.kernels.cases.ServerProcess", ServerHere)
