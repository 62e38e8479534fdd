"""Series from responses of Prometheus' HTTP API to range queries."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from optim.core.arrays import FloatArray
from optim.core.documents import decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.models.containers.series import AT_LIMIT, MEMORY, ContainerSeries, Resource
from optim.workloads.containers.series_rows import (
    GIB,
    LIMIT_METRICS,
    MAX_PLAUSIBLE,
    OOM_METRIC,
    RESTART_METRIC,
    Reading,
    ResourceOverrides,
    reading_of,
    series_of_rows,
)

LABELS = ("namespace", "pod", "container")
"""Labels from which a container's name is formed; a series may lack some of them."""

OLD_LABELS = {"pod_name": "pod", "container_name": "container"}
"""Old names of `LABELS`, from kubelets before 1.16."""

PAUSE_CONTAINER = "POD"
"""Name of the pause container, which holds a pod's network."""

STEP_TOL = 0.01
"""Maximum relative difference of two query steps that count as equal."""

HALF_DIGITS = 6
"""Times, in steps, are rounded to this many digits, so that half-way points are recognised despite float errors."""

OTHER_LABELS = ("id", "instance", "job")
"""Labels that name a series if it has none of `LABELS`."""

SUM_ROOTS = ("system.slice", "user.slice", "init.scope", "machine.slice")
"""Top-level control groups of a machine besides those of pods, whose path contains ``kubepods``."""

SCRAPE_LABELS = frozenset(
    {"job", "instance", "endpoint", "service", "metrics_path", "prometheus", "prometheus_replica", "replica"}
    | {"receive", "receive_cluster", "tenant_id", "monitor"}
)
"""Labels that describe the scraper or the storage, not the scraped container."""

PART_LABELS = ("cpu", "interface", "device", "mode", "failure_type", "scope")
"""Labels that distinguish parts of one container's usage."""

STALE_S = 300.0
"""Time for which Prometheus repeats the last sample of an ended series."""

MIN_MEMORY_GIB = 1 / 1024
"""Memory in GiB below which a warning asks for the unit; only pause containers use less."""

FEW_STEPS = 5
"""Minimum number of steps from which an unnamed counter can be recognised."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 - the field's name in the API
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""
    errorType: str = ""  # noqa: N815 - the field's name in the API
    warnings: list[str] | None = None
    isPartial: bool = False  # noqa: N815 - the field's name in VictoriaMetrics' API


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Samples of one series in the resource's unit, or running totals of a counter, whose rate has this unit."""

    path: str | Path
    labels: Mapping[str, str]
    reading: Reading
    times: FloatArray
    values: FloatArray
    gaps: FloatArray
    """Seconds between neighbouring samples, including those whose values aren't numbers."""

    @property
    def is_counter(self) -> bool:
        return self.reading.is_counter


def read_prometheus(
    files: Mapping[str, str | Path],
    *,
    units: Mapping[str, str] = MappingProxyType({}),
    counters: Collection[str] = (),
    drop_incomplete: bool = False,
) -> ContainerSeries:
    """Read responses to range queries (`/api/v1/query_range`), one or more files.

    A metric whose name ends in ``_total`` is a counter: it becomes a rate, and a fall is a restart from zero. Bytes
    become GiB for gauges and MB/s for rates. A response without metric names, as from ``rate(...)`` or ``sum by``,
    shows neither type nor unit, so that `units` and `counters` are required.

    Of cAdvisor's series for a pod, each container counts once. The function drops the pod's pause container
    (``container="POD"``), the sums of control groups, and the pod's sum (no label ``container``) if the pod's
    containers are present. A container that restarted within its pod has several series, which are joined in time. A
    container that two jobs scrape counts once. The containers of a pod stay together if data are split. Queries need
    the same step but may begin at different times: each sample is moved to the nearest time of the earliest query; if
    two are equally near, to the later one. The last of several samples with one time stamp counts. Memory limits of
    cAdvisor or kube-state-metrics become limits. `container_oom_events_total` counts kills; without it for a container,
    a rise of `kube_pod_container_status_restarts_total` is a kill if memory was at its limit before.

    Parameters
    ----------
    files
        Files by resource. If the resource's name starts with ``#``, the names of the file's metrics, of which it may
        have several, determine the resources. A container's sample counts only if it has all resources.
    units
        Unit by resource, for metrics whose name doesn't show the unit: cores, millicores, bytes, MiB, bytes/s, ...
    counters
        Resources measured by counters whose name doesn't show that they are counters.
    drop_incomplete
        Whether to continue if more than half of the containers lack a resource.

    Returns
    -------
    ContainerSeries
        One container per combination of the labels namespace, pod and container.

    Raises
    ------
    InvalidProblemError
        If a file isn't a response to a range query, has no container or no known unit, or has two simultaneous series
        for one container and resource; or if the files' steps differ.
    InvalidOptionError
        If a unit or counter is given for a missing resource, or a unit isn't one of the resource's.
    """
    overrides = ResourceOverrides(units=units, counters=counters)
    answers = {name: (path, answer_of(path)) for name, path in files.items()}
    remarks = [text for path, answer in answers.values() for text in _answer_remarks(path, answer)]
    all_series = [
        (name, path, _labels(series.metric), series)
        for name, (path, answer) in answers.items()
        for series in _series(answer)
    ]
    places, left_out = _containers_only([labels for _, _, labels, _ in all_series])
    parts: dict[tuple[str, Resource], list[_Part]] = {}
    seen = set()
    pods: dict[str, str] = {}
    limits: dict[str, float] = {}
    events: dict[str, dict[str, list[_Part]]] = {}
    for place in places:
        name, path, labels, series = all_series[place]
        if labels.get("__name__") in LIMIT_METRICS:
            limits |= _limit(path, labels, series)
            seen.add(name)
            continue
        if (metric := labels.get("__name__", "")) in (OOM_METRIC, RESTART_METRIC):
            part = _part(path, labels, _COUNTED, series)
            events.setdefault(_container(labels), {}).setdefault(metric, []).append(part)
            seen.add(name)
            continue
        reading = reading_of(path, name, labels.get("__name__", ""), overrides)
        container = _container(labels)
        parts.setdefault((container, reading.resource), []).append(_part(path, labels, reading, series))
        seen.add(name)
        if labels.get("pod"):
            pods[container] = f"{labels.get('namespace', '')}/{labels['pod']}"
    what = f" ({left_out})" if left_out else ""
    for name, path in files.items():
        if name not in seen:
            raise InvalidProblemError(f"{path}: no series of a container{what}; check the query, or leave the file out")
    if not parts:
        raise InvalidProblemError(
            f"{', '.join(map(str, files.values()))}: limits or kills only; give the containers' usage as well"
        )
    columns = {resource.name: resource for _, resource in parts}
    overrides.require_resources(columns)
    remarks += [left_out] if left_out else []
    usage = {(who, resource.name): _joined(who, resource, lives, remarks) for (who, resource), lives in parts.items()}
    remarks += _unit_warnings(usage, parts)
    where = ", ".join(map(str, files.values()))
    gaps = {
        name: [part.gaps for (_, resource), lives in parts.items() if resource.name == name for part in lives]
        for name in columns
    }
    samples = _matched(where, usage, gaps)
    return _series_of(
        where,
        samples,
        tuple(columns.values()),
        limits,
        _kills(samples, events, limits) if events and MEMORY.name in columns else None,
        units=pods,
        remarks=tuple(remarks),
        drop_incomplete=drop_incomplete,
    )


def _series_of(
    where: str,
    samples: Mapping[tuple[str, float], Mapping[str, float]],
    resources: tuple[Resource, ...],
    limits: Mapping[str, float],
    kills: FloatArray | None,
    **more: Any,
) -> ContainerSeries:
    """Return the series built from values by container and time, with memory limits and kills per sample if any are known."""
    shape = (-1, len(resources))
    rows = [[values.get(resource.name, np.nan) for resource in resources] for values in samples.values()]
    bounds = [
        [limits.get(who, np.nan) if resource == MEMORY else np.nan for resource in resources] for who, _ in samples
    ]
    return series_of_rows(
        where,
        np.array([container for container, _ in samples], dtype=object),
        np.array([time for _, time in samples]),
        np.array(rows).reshape(shape),
        resources,
        np.array(bounds).reshape(shape) if limits else None,
        kills=None
        if kills is None
        else np.stack([kills if resource == MEMORY else np.full(len(kills), np.nan) for resource in resources], axis=1),
        **more,
    )


def _matched(
    where: str, usage: Mapping[tuple[str, str], tuple[FloatArray, FloatArray]], gaps: Mapping[str, Sequence[FloatArray]]
) -> dict[tuple[str, float], dict[str, float]]:
    """Return the values of each container and time by resource, with times moved to those of the earliest query."""
    # The median; of an even number of gaps the smaller middle one, so that the step is a gap that occurs.
    steps = {
        resource: float(np.quantile(part_gaps, 0.5, method="lower"))
        for resource, parts in gaps.items()
        if len(part_gaps := np.concatenate(parts))
    }
    if steps and max(steps.values()) > (1 + STEP_TOL) * min(steps.values()):
        step_texts = ", ".join(f"{resource} {step:g} s" for resource, step in steps.items())
        raise InvalidProblemError(f"{where}: queries have different steps ({step_texts}); use one step for all")
    begin = min((float(times[0]) for times, _ in usage.values() if len(times)), default=0.0)
    step = min(steps.values(), default=0.0)
    samples: dict[tuple[str, float], dict[str, float]] = {}
    for (container, resource), (times, values) in usage.items():
        moments = begin + step * _round_half_up((times - begin) / step) if step > 0 else times
        for time, value in zip(np.round(moments, 3).tolist(), values.tolist(), strict=True):
            samples.setdefault((container, time), {})[resource] = value
    return samples


_COUNTED = Reading(resource=Resource(name="events"), factor=1.0, is_counter=True)


def _kills(
    samples: Mapping[tuple[str, float], Mapping[str, float]],
    events: Mapping[str, Mapping[str, list[_Part]]],
    limits: Mapping[str, float],
) -> FloatArray:
    """Return the kills for lack of memory since each container's previous sample, NaN without a counter; shape (samples,)."""
    kills = np.full(len(samples), np.nan)
    rows: dict[str, list[int]] = {}
    for row, (container, _) in enumerate(samples):
        rows.setdefault(container, []).append(row)
    keys = list(samples)
    for container, counters in events.items():
        own = sorted(rows.get(container, ()), key=lambda row: keys[row][1])
        if not own:
            continue
        times = np.array([keys[row][1] for row in own])
        is_told = OOM_METRIC in counters
        moments, numbers = _rises(counters[OOM_METRIC if is_told else RESTART_METRIC])
        place = np.searchsorted(times, moments, side="left")
        if not is_told:
            memory = np.array([samples[keys[row]].get(MEMORY.name, np.nan) for row in own])
            limit = limits.get(container, np.inf)
            # A restart with memory below the limit had another reason.
            was_at = memory[np.clip(place - 1, 0, len(own) - 1)] >= AT_LIMIT * limit
            place, numbers = place[was_at], numbers[was_at]
        kills[own] = np.bincount(np.minimum(place, len(own) - 1), numbers, len(own))
    return kills


def _rises(parts: Sequence[_Part]) -> tuple[FloatArray, FloatArray]:
    """Return the times and sizes of all rises of a counter, over the successive series of one container; shape (rises,) each.

    The counts in a series' first value are older than the series and don't count, unless the series follows an earlier
    one. Where two scrapes overlap in time, the one that begins first counts.
    """
    moments, numbers = [], []
    until = -np.inf
    for part in sorted(parts, key=lambda part: float(part.times[0]) if len(part.times) else np.inf):
        is_later = part.times > until
        times, values = part.times[is_later], part.values[is_later]
        if not len(times):
            continue
        before = values[:1] if until == -np.inf or not is_later.all() else np.zeros(1)
        steps = np.diff(np.concatenate([before, values]))
        rise = np.where(steps < 0, values, steps)
        moments.append(times[rise > 0])
        numbers.append(rise[rise > 0])
        until = float(times[-1])
    return (np.concatenate(moments), np.concatenate(numbers)) if moments else (np.zeros(0), np.zeros(0))


def _round_half_up(steps: FloatArray) -> FloatArray:
    """Return the nearest integers, rounding halves up: `np.round` would move two neighbours to the same one."""
    return np.asarray(np.floor(np.round(steps, HALF_DIGITS) + 0.5))


def _labels(metric: Mapping[str, str]) -> dict[str, str]:
    """Return a series' labels, with those of old kubelets renamed."""
    return {OLD_LABELS[name]: text for name, text in metric.items() if name in OLD_LABELS} | dict(metric)


def _containers_only(all_labels: Sequence[Mapping[str, str]]) -> tuple[list[int], str]:
    """Return the indices of the series of containers, and a remark on the dropped series."""
    pods = {_pod(labels) for labels in all_labels if labels.get("container") and not _is_pause(labels)} - {None}
    groups = {labels.get("id", "") for labels in all_labels}
    above = {str(parent) for group in groups for parent in Path(group).parents}
    containers, others = [], Counter[str]()
    for place, labels in enumerate(all_labels):
        if _is_pause(labels):
            others["pause containers"] += 1
        elif _pod(labels) in pods and not labels.get("container"):
            others["sums of pods"] += 1
        elif _is_group(labels, above):
            others["sums of control groups"] += 1
        else:
            containers.append(place)
    return containers, "left out: " + ", ".join(f"{count} {what}" for what, count in others.items()) if others else ""


def _is_pause(labels: Mapping[str, str]) -> bool:
    return labels.get("container") == PAUSE_CONTAINER or labels.get("name", "").startswith("k8s_POD_")


def _is_group(labels: Mapping[str, str], above: Collection[str]) -> bool:
    """Return whether a series is the sum of a control group: of the machine, of pods, or with groups below it."""
    group = labels.get("id", "")
    if not group or any(labels.get(name) for name in ("pod", "container", "name", "image")):
        return False
    return (
        group in above or group.split("/")[1:2] in [[root] for root in SUM_ROOTS] or "kubepods" in group or group == "/"
    )


def _pod(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return namespace and name of a series' pod, None without a pod."""
    return (labels.get("namespace", ""), labels["pod"]) if labels.get("pod") else None


def answer_of(path: str | Path) -> _Answer:
    """Read a full response, or raise InvalidProblemError with its error."""
    try:
        answer = decode(read_bytes(path), _Answer)
    except InvalidProblemError as error:
        raise InvalidProblemError(
            f"{path}: not Prometheus' response to a range query: {error}; save the full response of /api/v1/query_range"
        ) from error
    if answer.status != "success" and answer.error:
        kind = f" ({answer.errorType})" if answer.errorType else ""
        raise InvalidProblemError(f"{path}: Prometheus answered with an error{kind}: {answer.error}; correct the query")
    if answer.status != "success" or answer.data is None or answer.data.resultType != "matrix":
        result = None if answer.data is None else answer.data.resultType
        raise InvalidProblemError(
            f"{path}: expected status 'success' with a 'matrix', got {answer.status!r} with a {result!r}; "
            "save the response of query_range"
        )
    return answer


def _series(answer: _Answer) -> list[_Series]:
    return [] if answer.data is None else answer.data.result


def _answer_remarks(path: str | Path, answer: _Answer) -> list[str]:
    """Return the warnings within a response."""
    partial = ["the response is partial, so series may be missing"] if answer.isPartial else []
    return [f"{path}: {text}" for text in (*(answer.warnings or ()), *partial)]


def _part(path: str | Path, labels: Mapping[str, str], reading: Reading, series: _Series) -> _Part:
    """Return a series' samples in order of time; the last of equal time stamps counts."""
    try:
        times, values = np.array([(time, float(text)) for time, text in series.values]).reshape(-1, 2).T
    except ValueError as error:
        metric = labels.get("__name__") or reading.resource.name
        raise InvalidProblemError(f"{path}: a sample of {metric} isn't a number ({error})") from error
    is_finite = np.isfinite(values) & np.isfinite(times)
    gaps = np.diff(np.unique(times[np.isfinite(times)]))
    times, values = _in_order(times[is_finite], values[is_finite])
    return _Part(path=path, labels=labels, reading=reading, times=times, values=reading.factor * values, gaps=gaps)


def _limit(path: str | Path, labels: Mapping[str, str], series: _Series) -> dict[str, float]:
    """Return the last memory limit in a series, in GiB by container; empty if there is none."""
    if labels.get("resource", MEMORY.name) != MEMORY.name:
        return {}
    reading = Reading(resource=MEMORY, factor=1.0 / GIB, is_counter=False)
    last = _part(path, labels, reading, series).values[-1:]
    return {_container(labels): float(value) for value in last if 0 < value < MAX_PLAUSIBLE[MEMORY.name]}


def _in_order(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return samples in order of time; of several with equal time stamps only the last."""
    order = np.argsort(times, kind="stable")
    is_last = np.append(np.diff(times[order]) > 0, True)[: len(order)]
    return times[order][is_last], values[order][is_last]


def _joined(
    container: str, resource: Resource, parts: list[_Part], remarks: list[str]
) -> tuple[FloatArray, FloatArray]:
    """Return one series for a container and resource, with counters as rates and the series of restarts joined."""
    lives: list[_Part] = []
    for part in sorted(parts, key=lambda part: -len(part.times)):
        same = next((place for place, other in enumerate(lives) if _is_same(other, part)), None)
        if same is None:
            lives.append(part)
        else:
            lives[same] = _prolonged(lives[same], part)
    lives = sorted((part for part in lives if len(part.times)), key=lambda part: float(part.times[0])) or lives[:1]
    for earlier, later in pairwise(lives):
        _require_restart(container, resource, earlier, later)
    if len(lives) > 1:
        remarks.append(
            f"{resource.name} of {container}: restarted within its pod, {len(lives)} series one after the other"
        )
    times, values = _rates(lives[0]) if lives[0].is_counter else (lives[0].times, lives[0].values)
    for later in lives[1:]:
        begin = later.times[0]
        # A rate with the time stamp of the later series' beginning applies to the time before.
        is_before = times <= begin if later.is_counter else times < begin
        samples = _rates(later) if later.is_counter else (later.times, later.values)
        times, values = np.concatenate([times[is_before], samples[0]]), np.concatenate([values[is_before], samples[1]])
    return times, values


def _is_same(first: _Part, second: _Part) -> bool:
    """Return whether two series are scrapes of one target."""
    _, here, there = np.intersect1d(first.times, second.times, return_indices=True)
    if any(first.labels.get(name) != second.labels.get(name) for name in PART_LABELS):
        return False
    if len(here) and (first.values[here] == second.values[there]).all():
        return True
    one, other = (
        {name: text for name, text in part.labels.items() if name not in SCRAPE_LABELS} for part in (first, second)
    )
    return one == other and (bool(one.get("id")) or not len(here))


def _prolonged(first: _Part, second: _Part) -> _Part:
    """Return a series extended by another scrape's samples before and after it."""
    is_new = (second.times < first.times[:1].min(initial=np.inf)) | (
        second.times > first.times[-1:].max(initial=-np.inf)
    )
    times, values = _in_order(
        np.concatenate([first.times, second.times[is_new]]), np.concatenate([first.values, second.values[is_new]])
    )
    return _Part(
        path=first.path, labels=first.labels, reading=first.reading, times=times, values=values, gaps=first.gaps
    )


def _require_restart(container: str, resource: Resource, earlier: _Part, later: _Part) -> None:
    """Raise InvalidProblemError if two series of a container overlap in time."""
    differing = [
        name
        for name in sorted({*earlier.labels, *later.labels})
        if earlier.labels.get(name, "") != later.labels.get(name, "") and name not in SCRAPE_LABELS
    ]
    where = f"{later.path}: {resource.name} of container {container!r}"
    shown = ", ".join(
        f"{name}={earlier.labels.get(name, '')!r} and {later.labels.get(name, '')!r}" for name in differing[:3]
    )
    if "__name__" in differing:
        raise InvalidProblemError(f"{where} is in two metrics ({shown}); leave one of them out")
    if set(differing) & set(PART_LABELS):
        rate = "rate of each (sum by (...) (rate(...)))" if later.is_counter else "parts (sum by (...))"
        raise InvalidProblemError(
            f"{where} is in several parts ({shown}); add the {rate} in the query, and give --unit {resource.name}=UNIT"
        )
    step = float(np.median(np.diff(later.times))) if len(later.times) > 1 else 0.0
    if earlier.times[-1] - later.times[0] > STALE_S + step:
        because = f"they differ in {shown}" if shown else "their labels are the same"
        raise InvalidProblemError(
            f"{where} has two series at the same time with different samples, and {because}; choose one of them in the query"
        )


def _rates(part: _Part) -> tuple[FloatArray, FloatArray]:
    """Return the rate up to each sample since the previous one; after a restart a counter starts from zero."""
    steps = np.diff(part.values)
    is_fall = steps < 0
    if len(steps) >= FEW_STEPS and 2 * is_fall.sum() > len(steps):
        raise InvalidProblemError(
            f"{part.path}: {part.reading.resource.name} of container {_container(part.labels)!r} falls in {is_fall.sum()} of "
            f"{len(steps)} steps, so that it isn't a counter; leave --counter out, or query the metric with its name"
        )
    return part.times[1:], np.where(is_fall, part.values[1:], steps) / np.diff(part.times)


def _unit_warnings(
    usage: Mapping[tuple[str, str], tuple[FloatArray, FloatArray]], parts: Mapping[tuple[str, Resource], list[_Part]]
) -> list[str]:
    """Return warnings on rates that look like counters, as they never fall, and on memory close to zero."""
    rates = {
        resource.name for (_, resource), lives in parts.items() if not resource.is_level and not lives[0].is_counter
    }
    remarks = []
    for name in sorted(rates):
        resource_values = [values for (_, resource), (_, values) in usage.items() if resource == name]
        grows = [np.diff(values) for values in resource_values if len(values) > FEW_STEPS]
        if grows and all((step >= 0).all() and step.any() for step in grows):
            remarks.append(f"{name} never falls in any container; if it is a counter, give --counter {name}")
    if (
        maximum := max(
            (values.max() for (_, resource), (_, values) in usage.items() if resource == "memory" and len(values)),
            default=1,
        )
    ) < MIN_MEMORY_GIB:
        remarks.append(f"no container has more than {maximum:.3g} GiB of memory; check its unit")
    return remarks


def _container(metric: Mapping[str, str]) -> str:
    """Return a container's name from its labels."""
    chosen = [metric[label] for label in LABELS if metric.get(label)]
    chosen = chosen or [metric[label] for label in OTHER_LABELS if metric.get(label)]
    return "/".join(chosen) or "container"
