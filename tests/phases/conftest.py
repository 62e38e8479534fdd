"""Models for several files: fitted once per process, and never changed."""

import pytest

from optim.phases import PhaseModel
from optim.workloads.containers import ContainerOptions, generate_containers


@pytest.fixture(scope="session")
def hundred() -> PhaseModel:
    """A model of a hundred containers, twenty of which define normal behaviour."""
    series = generate_containers(ContainerOptions(num_containers=100), 0)
    return PhaseModel(encoder="window-statistics", num_phases=4).fit(series)
