"""Series from answers of Prometheus' HTTP API to range queries."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from optim.core.documents import decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.models.containers.series import CPU, MEMORY, NETWORK, ContainerSeries, FloatArray, Resource
from optim.workloads.containers.csv_files import GIB
from optim.workloads.containers.rows import series_of_rows

LABELS = ("namespace", "pod", "container")
"""Labels that name a container; those that a series lacks are left out."""

PAUSE_CONTAINER = "POD"
"""The container that only holds a pod's network."""

STEP_TOL = 0.01
"""Relative difference of steps that counts as none."""

HALF_DIGITS = 6
"""Digits of a step to which a half is told from what lies beside it: time stamps are floats."""

OTHER_LABELS = ("id", "instance", "job")
"""Labels that name a series which has none of `LABELS`."""

KNOWN_METRICS: Mapping[str, Resource] = {
    "container_cpu_usage_seconds_total": CPU,
    "container_memory_working_set_bytes": MEMORY,
    "container_memory_usage_bytes": MEMORY,
    "container_network_receive_bytes_total": NETWORK,
}
MB = 1e6


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the field's name in the API
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data


def read_prometheus(files: Mapping[str, str | Path]) -> ContainerSeries:
    """Read answers to range queries (`/api/v1/query_range`), one or more files.

    A metric whose name ends in ``_total`` is a counter: it becomes a rate, and a fall is a restart from zero. Bytes
    become GiB if they are a level and MB if they are a rate. The answer to ``rate(...)`` has no name: give it one.

    Of what cAdvisor tells of a pod, each container counts once: its pause container (``container="POD"``) is left out, and so
    is the pod's own sum (no label ``container``) where its containers are there too. Containers of a pod are one unit, which
    splits keep together. Queries need the same step; that they begin at different moments does no harm, as samples are matched
    to the nearest of the earliest query's, those half-way to the later one.

    Parameters
    ----------
    files
        Files by the resource that they hold. A name that starts with ``#`` stands for none: the resource is then known
        by the metric's own name, and a file may hold several metrics. Each resource must be there for a container's
        sample to count.

    Returns
    -------
    ContainerSeries
        A container a combination of the labels namespace, pod and container.

    Raises
    ------
    InvalidProblemError
        If a file is no such answer, two series have the same container and resource, or steps differ.
    """
    answers = [(name, path, series) for name, path in files.items() for series in _answer(path).data.result]
    split_pods = {_pod(series.metric) for *_, series in answers if _is_container(series.metric)}
    columns: dict[str, Resource] = {}
    found: dict[tuple[str, str], tuple[FloatArray, FloatArray]] = {}
    units: dict[str, str] = {}
    for name, path, series in answers:
        pod = _pod(series.metric)
        is_pods_sum = pod in split_pods and not series.metric.get("container")
        if series.metric.get("container") == PAUSE_CONTAINER or is_pods_sum:
            continue
        resource, times, values = _resource(path, name, series)
        container = _container(series.metric)
        if (container, resource.name) in found:
            raise InvalidProblemError(
                f"{path}: two series of {resource.name} for container {container!r}; sum them in the query"
            )
        found[container, resource.name] = times, values
        columns.setdefault(resource.name, resource)
        if pod is not None:
            units[container] = "/".join(pod)
    where = ", ".join(map(str, files.values()))
    if not found:
        raise InvalidProblemError(f"{where}: no series of a container in it; check the query")
    samples = _matched(where, found)
    keys = np.array([container for container, _ in samples], dtype=object)
    table = np.array([[values.get(name, np.nan) for name in columns] for values in samples.values()])
    times = np.array([time for _, time in samples])
    return series_of_rows(where, keys, times, table, tuple(columns.values()), units=units)


def _matched(
    where: str, found: Mapping[tuple[str, str], tuple[FloatArray, FloatArray]]
) -> dict[tuple[str, float], dict[str, float]]:
    """Return the values of each container and time by resource, times moved to the earliest query's moments."""
    steps = {
        resource: float(
            np.median(np.concatenate([np.diff(times) for (_, own), (times, _) in found.items() if own == resource]))
        )
        for resource in dict.fromkeys(resource for (_, resource), (times, _) in found.items() if len(times) > 1)
    }
    if steps and max(steps.values()) > (1 + STEP_TOL) * min(steps.values()):
        told = ", ".join(f"{resource} {step:g} s" for resource, step in steps.items())
        raise InvalidProblemError(f"{where}: queries have different steps ({told}); use one step for all")
    begin = min((float(times[0]) for times, _ in found.values() if len(times)), default=0.0)
    step = min(steps.values(), default=0.0)
    samples: dict[tuple[str, float], dict[str, float]] = {}
    for (container, resource), (times, values) in found.items():
        moments = begin + step * _nearest((times - begin) / step) if step > 0 else times
        for time, value in zip(np.round(moments, 3).tolist(), values.tolist(), strict=True):
            samples.setdefault((container, time), {}).setdefault(resource, value)
    return samples


def _nearest(steps: FloatArray) -> FloatArray:
    """Return the nearest whole numbers, of halves the larger one: `np.round` would move two neighbours to the same."""
    return np.asarray(np.floor(np.round(steps, HALF_DIGITS) + 0.5))


def _pod(metric: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return namespace and name of a series' pod, None for a series of no pod."""
    return (metric.get("namespace", ""), metric["pod"]) if metric.get("pod") else None


def _is_container(metric: Mapping[str, str]) -> bool:
    return bool(metric.get("pod")) and metric.get("container", "") not in ("", PAUSE_CONTAINER)


def _answer(path: str | Path) -> _Answer:
    try:
        answer = decode(read_bytes(path), _Answer)
    except InvalidProblemError as error:
        raise InvalidProblemError(
            f"{path}: no answer of Prometheus to a range query: {error}; save the whole answer of /api/v1/query_range"
        ) from error
    if answer.status != "success" or answer.data.resultType != "matrix":
        raise InvalidProblemError(
            f"{path}: status {answer.status!r} with a {answer.data.resultType!r}; save the answer of query_range"
        )
    return answer


def _resource(path: str | Path, name: str, series: _Series) -> tuple[Resource, FloatArray, FloatArray]:
    """Return resource, times and values of a series, counters as rates."""
    metric = series.metric.get("__name__", "")
    if name.startswith("#") and not metric:
        raise InvalidProblemError(f"{path}: the series have no name; say which resource they are: NAME={path}")
    is_counter = metric.endswith("_total")
    is_bytes = "_bytes" in metric
    known = KNOWN_METRICS.get(metric)
    is_level = not is_counter if known is None else known.is_level
    if name.startswith("#"):
        resource = known or Resource(name=metric, unit=("MB/s" if is_counter else "GiB") * is_bytes, is_level=is_level)
    else:
        same = [own for own in (CPU, MEMORY, NETWORK) if own.name == name]
        resource = same[0] if same else Resource(name=name, is_level=is_level and bool(metric))
    try:
        times, values = np.array([(time, float(text)) for time, text in series.values]).reshape(-1, 2).T
    except ValueError as error:
        raise InvalidProblemError(f"{path}: a sample of {metric or name} is no number ({error})") from error
    is_finite = np.isfinite(values)
    # Answers that were put together by hand may overlap: of equal time stamps the first one counts.
    times, place = np.unique(times[is_finite], return_index=True)
    values = values[is_finite][place]
    if is_counter:
        times, values = _rates(times, values)
    if is_bytes:
        values = values / (GIB if resource.is_level else MB)
    return resource, times, values


def _rates(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rates between neighbours, stamped at the later one; after a restart the counter counts from zero."""
    steps = np.diff(values)
    steps = np.where(steps < 0, values[1:], steps)
    return times[1:], steps / np.diff(times)


def _container(metric: Mapping[str, str]) -> str:
    """Return a container's name from its labels."""
    chosen = [metric[label] for label in LABELS if metric.get(label)]
    chosen = chosen or [metric[label] for label in OTHER_LABELS if metric.get(label)]
    return "/".join(chosen) or "container"
