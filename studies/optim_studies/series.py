"""Series for the studies of containers: generated, or read from a file."""

from pathlib import Path

from optim.models.containers.series import ContainerSeries
from optim.workloads.containers import ContainerOptions, generate_containers, read_containers

GENERATED = "generated"


def given_series(series: str, containers: int, seed: int) -> ContainerSeries:
    """Return `containers` generated containers if `series` is ``generated``, otherwise the containers of the file `series`."""
    if series == GENERATED:
        return generate_containers(ContainerOptions(num_containers=containers), seed)
    return read_containers(series)


def series_name(series: str, containers: int) -> str:
    """Return the name of the series in records."""
    return f"{GENERATED}-{containers}" if series == GENERATED else Path(series).name
