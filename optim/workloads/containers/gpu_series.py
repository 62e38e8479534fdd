"""GPU utilisation by holder, from Prometheus responses with DCGM metrics or from a table, read in pieces.

The exporter names a GPU's pod in `exported_pod` and `exported_namespace` if Prometheus writes its target labels into
`pod` and `namespace` (`honor_labels: false`), else in `pod` and `namespace`; `hpc_job` is Slurm's job.

References
----------
NVIDIA, DCGM exporter: README, `--kubernetes`, `--hpc-job-mapping-dir`; Prometheus, configuration: `honor_labels`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.core.files import Source, cant_be_read, is_json
from optim.core.optional import import_extra
from optim.core.progress import Progress, SilentProgress
from optim.models.containers.gpu_use import SECONDS_PER_HOUR, GpuUse, Holder, IdleOptions, joined
from optim.workloads.containers.prometheus import answer_of
from optim.workloads.csv_columns import CodedColumn, coded_blocks, header_of, refuse
from optim.workloads.traces.job_table import EPOCH, times_of

METRICS: Mapping[str, float] = {
    "DCGM_FI_DEV_GPU_UTIL": 1.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 100.0,
    "DCGM_FI_PROF_SM_ACTIVE": 100.0,
}
"""Factor by which the samples of each metric become per cent."""

MOST_PERCENT = 100.0 + 1e-6

REMARKABLE_GAPS = 0.01
"""A remark reports gaps that add up to more than this share of the counted GPU-hours."""

READ_BYTES = 2**22

_BEGIN = re.compile(rb'\{\s*"metric"\s*:')
"""Beginning of a series in JSON. It can't match within a JSON string, in which quotation marks are escaped."""

_REPLICA = re.compile(r"-(?:master|chief|launcher|ps|worker|head)-\d+$")
"""Suffix of a pod's name under Kubeflow's training operator, <job>-<replica type>-<index>; such pods belong to one job."""

_EXPORTER = re.compile(r"dcgm|gpu-operator")
"""Part of the names of the DCGM exporter's pods. A GPU is free if its only pod is the exporter."""

TIMES, UTILISATIONS = (
    ("time_s", "time", "timestamp"),
    ("utilisation", "utilization", "gpu_util", "DCGM_FI_DEV_GPU_UTIL"),
)
HOLDERS = ("namespace", "user", "job", "pod")

BLOCK_ROWS = 8_000_000
"""Rows of a table per block."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, float]]


def read_gpu_use(
    path: str | Path, options: IdleOptions, progress: Progress | None = None
) -> tuple[list[tuple[Holder, GpuUse]], tuple[str, ...]]:
    """Read GPU utilisation from a file, plain or gzip, without reading all of it into memory at once.

    - A response of `/api/v1/query_range` for `DCGM_FI_DEV_GPU_UTIL` (per cent), `DCGM_FI_PROF_GR_ENGINE_ACTIVE` or `..._SM_ACTIVE`
      (shares). Series without a metric's name count as per cent.
    - A table with a header: `time_s` (or `time`, also dates), `gpu`, `utilisation` in per cent, and some of `namespace`, `user`, `job`,
      `pod`; rows of each GPU in the order of time. A row with none of these four belongs to a free GPU.

    Repeated samples of one GPU and holder, as when two jobs scrape one exporter, count once.

    Returns
    -------
    uses, remarks
        Usage by GPU and holder, and remarks on dropped samples.

    Raises
    ------
    InvalidProblemError
        If the file is neither, a utilisation is outside 0 to 100 %, or times don't rise.
    """
    progress = progress or SilentProgress()
    is_answer = is_json(path)
    progress.start("series" if is_answer else "rows", None)
    reader = _Reader(path, options)
    seen = 0
    for part in _answer_parts(path) if is_answer else _table_parts(path):
        reader.add(*part, is_whole=is_answer)
        seen += 1 if is_answer else len(part[1])
        progress.update(seen)
    progress.finish()
    return reader.finished()


class _Reader:
    """Accumulates usage by GPU and holder; the step is the smallest gap in the first series with two samples."""

    def __init__(self, path: str | Path, options: IdleOptions) -> None:
        self._path, self._options = path, options
        self._uses: dict[Holder, GpuUse] = {}
        self._again: list[Part] = []
        self._step_s = 0.0
        self._doubled = 0

    def add(self, holder: Holder, time_s: FloatArray, percent: FloatArray, *, is_whole: bool) -> None:
        """Add a holder's samples in order of time; with `is_whole`, its series may come in any order."""
        is_known = np.isfinite(percent)
        time_s, percent = time_s[is_known], percent[is_known]
        bad = percent[(percent < 0) | (percent > MOST_PERCENT)]
        if len(bad):
            raise InvalidProblemError(
                f"{self._path}: utilisation of GPU {holder.gpu[:60]!r} must lie in 0..100 per cent, got {bad[0]:g}; query "
                "DCGM_FI_DEV_GPU_UTIL itself"
            )
        if not len(time_s):
            return
        if self._step_s <= 0 and len(time_s) > 1:
            self._step_s = float(np.diff(time_s).min())
        use = self._uses.get(holder)
        if use is None:
            use = self._uses[holder] = GpuUse(options=self._options, step_s=self._step_s)
        elif is_whole and time_s[0] <= use.last_s:
            self._again.append((holder, time_s, percent))
            return
        use.step_s = self._step_s
        is_new = time_s > use.last_s
        self._doubled += int((~is_new).sum())
        use.add(time_s[is_new], percent[is_new])

    def finished(self) -> tuple[list[tuple[Holder, GpuUse]], tuple[str, ...]]:
        """Return the usage by GPU and holder, and remarks on dropped samples."""
        if not self._uses:
            raise InvalidProblemError(f"{self._path}: the file has no GPU samples; check the query, or the columns")
        for use in self._uses.values():
            use.step_s = self._step_s
            use.finish()
        uses = list(self._uses.items())
        known = {holder: self._uses[holder].runs for holder, _, _ in self._again}
        for holder, time_s, percent in sorted(self._again, key=lambda part: float(part[1][0])):
            more = list(self._rest(known[holder], time_s, percent))
            known[holder] = joined(np.concatenate([known[holder], *(use.runs for use in more)]))
            uses += [(holder, use) for use in more]
        remarks = []
        if self._doubled:
            remarks.append(f"{self._doubled} samples are left out: their GPU and holder already have one at that time")
        gaps, held = (
            sum(getattr(use, name) for _, use in uses) / SECONDS_PER_HOUR for name in ("left_out_s", "held_s")
        )
        if gaps > REMARKABLE_GAPS * held:
            remarks.append(
                f"{gaps:.3g} GPU-hours lie in gaps of more than {self._options.gap_s(self._step_s):g} s between samples and are "
                f"left out ({held:.3g} are counted); set --max-gap to the longest time between two samples"
            )
        return uses, tuple(remarks)

    def _rest(self, known: FloatArray, time_s: FloatArray, percent: FloatArray) -> Iterator[GpuUse]:
        """Yield the usage in the parts of a series that lie outside the time intervals `known` (begin, end), shape (n, 2)."""
        place = np.searchsorted(known[:, 0], time_s, side="right") - 1
        is_known = (place >= 0) & (time_s < known[np.maximum(place, 0), 1])
        self._doubled += int(is_known.sum())
        for rows in np.split(np.arange(len(time_s)), np.flatnonzero(np.diff(is_known)) + 1):
            if not is_known[rows[0]]:
                use = GpuUse(options=self._options, step_s=self._step_s)
                use.add(time_s[rows], percent[rows])
                use.finish()
                yield use


Part = tuple[Holder, FloatArray, FloatArray]


def _answer_parts(path: str | Path) -> Iterator[Part]:
    """Yield the series of a response."""
    decoder = msgspec.json.Decoder(_Series, strict=False)  # Prometheus writes samples as strings
    for piece in _pieces(path):
        try:
            series = decoder.decode(piece)
        except msgspec.DecodeError as error:
            raise InvalidProblemError(f"{path}: not a Prometheus series ({error}); save the full response") from error
        holder, factor = _holder(series.metric), _factor(path, series.metric)
        numbers = np.fromiter(chain.from_iterable(series.values), np.float64, 2 * len(series.values)).reshape(-1, 2)
        if not (np.diff(numbers[:, 0]) > 0).all() or not np.isfinite(numbers[:, 0]).all():
            raise InvalidProblemError(
                f"{path}: times of GPU {holder.gpu[:60]!r} don't rise; save the response unchanged"
            )
        yield holder, numbers[:, 0].copy(), factor * numbers[:, 1]


def _pieces(path: str | Path) -> Iterator[bytes]:
    """Yield the JSON of each series of a response, and read only as much of the file as needed."""
    held = bytearray()
    is_begun = False
    try:
        with Source(path, "table_bytes") as source:
            while part := source.read(READ_BYTES):
                held += part
                starts = [match.start() for match in _BEGIN.finditer(held)]
                if not is_begun and starts:
                    _check_head(path, bytes(held[: starts[0]]))
                    is_begun = True
                for first, second in pairwise(starts):
                    yield bytes(held[first:second]).rstrip().removesuffix(b",")
                if starts:
                    del held[: starts[-1]]
    except OSError as error:
        raise cant_be_read(path, error) from error
    if not is_begun:
        answer_of(path)  # raises the precise error if it isn't a response
        raise InvalidProblemError(f"{path}: the response has no series; check the query and its times")
    try:
        text = bytes(held).decode()
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidProblemError(f"{path}: the response ends within a series ({error}); fetch it again") from error
    if not text[end:].lstrip().startswith("]"):
        raise InvalidProblemError(f"{path}: the response ends within its list of series; fetch it again")
    yield text[:end].encode()


def _check_head(path: str | Path, head: bytes) -> None:
    if b'"error"' in head.split(b'"result"')[0] or b'"matrix"' not in head:
        answer_of(path)
        raise InvalidProblemError(f"{path}: not a response to a range query; save the response of /api/v1/query_range")


def _factor(path: str | Path, metric: Mapping[str, str]) -> float:
    name = metric.get("__name__", "")
    if name and name not in METRICS:
        raise InvalidProblemError(f"{path}: {name[:60]} isn't a GPU utilisation; query one of {', '.join(METRICS)}")
    return METRICS.get(name, 1.0)


def _holder(metric: Mapping[str, str]) -> Holder:
    """Return the GPU and its holder, as the labels of a series name them."""
    pod, namespace = metric.get("exported_pod", ""), metric.get("exported_namespace", "")
    if not pod and not _EXPORTER.search(metric.get("pod", "")):
        pod, namespace = metric.get("pod", ""), metric.get("namespace", "") if metric.get("pod") else ""
    job = metric.get("hpc_job", "") or job_of_pod(pod)
    user = next((metric[name] for name in ("exported_user", "user", "label_user") if metric.get(name)), "")
    machine = metric.get("Hostname") or metric.get("node") or metric.get("instance", "")
    gpu = metric.get("UUID") or f"{machine}/{metric.get('gpu') or metric.get('device', '')}"
    part = metric.get("GPU_I_ID", "")
    return Holder(namespace if job else "", user if job else "", job, f"{gpu}/{part}" if part else gpu)


def job_of_pod(pod: str) -> str:
    """Return the job of a pod: its name without replica type and index, if it has them.

    Examples
    --------
    >>> job_of_pod("bert-worker-3"), job_of_pod("notebook-0")
    ('bert', 'notebook-0')
    """
    return _REPLICA.sub("", pod)


def _table_parts(path: str | Path) -> Iterator[Part]:
    """Yield the samples of a table by GPU and holder, some millions of rows at a time."""
    header = header_of(path)
    time = _one_of(path, header, TIMES, "of times")
    value = _one_of(path, header, UTILISATIONS, "of utilisation in per cent")
    texts = [name for name in HOLDERS if name in header]
    if not texts:
        raise InvalidProblemError(
            f"{path}: the table has no column for the holder of a GPU; add one of {', '.join(HOLDERS)}"
        )
    before: dict[Holder, float] = {}
    for *columns, said in _large_blocks(path, time, value, ("gpu", *texts)):
        # numpy sorts 16-bit numbers in linear time.
        order = np.argsort(columns[2].astype(np.uint16) if len(said) <= 2**16 else columns[2], kind="stable")
        time_s, percent, key = (column[order] for column in columns)
        is_alike = np.diff(key) == 0
        back = np.flatnonzero(is_alike & (np.diff(time_s) < 0))
        cuts = np.flatnonzero(~is_alike) + 1
        is_last = np.append(~is_alike | (np.diff(time_s) > 0), True)  # the last of equal times counts
        for begin, end in pairwise((0, *cuts.tolist(), len(key))):
            names = said[key[begin]]
            job = names.get("job") or job_of_pod(names.get("pod", ""))
            holder = Holder(names.get("namespace", ""), names.get("user", ""), job, names["gpu"])
            goes_back = len(back) and begin <= back[0] < end
            if goes_back or time_s[begin] < before.get(holder, -np.inf):
                raise InvalidProblemError(f"{path}: rows of GPU {holder.gpu[:60]!r} go back in time; sort them by time")
            before[holder] = float(time_s[end - 1])
            kept = is_last[begin:end]
            yield holder, time_s[begin:end][kept], percent[begin:end][kept]


def _large_blocks(
    path: str | Path, time: str, value: str, names: tuple[str, ...]
) -> Iterator[tuple[FloatArray, FloatArray, IntArray, list[dict[str, str]]]]:
    """Yield large blocks of rows (times, utilisation, index of GPU and holder), and the names of GPU and holder by index."""
    numbers: dict[tuple[str, ...], int] = {}
    said: list[dict[str, str]] = []
    held: list[tuple[FloatArray, FloatArray, IntArray]] = []
    for block in chain(coded_blocks(path, (time, value, *names)), [None]):
        if block is not None:
            percent = block[value].numbers()
            refuse(path, value, np.isnan(percent), "expected a number", percent, block[value].rows_before)
            key, firsts = _combined([block[name].codes for name in names])
            own = np.empty(len(firsts), np.int64)
            for nth, row in enumerate(firsts.tolist()):
                texts = tuple(str(block[name].known[block[name].codes[row]]) for name in names)
                if texts not in numbers:
                    numbers[texts] = len(said)
                    said.append(dict(zip(names, texts, strict=True)))
                own[nth] = numbers[texts]
            held.append((_seconds(path, block[time]), percent, own[key]))
        if held and (block is None or sum(len(each[0]) for each in held) >= BLOCK_ROWS):
            time_s, percent, key = (np.concatenate(parts) for parts in zip(*held, strict=True))
            yield time_s, percent, key, said
            held = []


def _combined(codes: "list[NDArray[np.intp]]") -> tuple[IntArray, IntArray]:
    """Return each row's index among the distinct combinations of codes, and one row number per combination."""
    pd = import_extra("pandas", "reading tables")

    key = np.zeros(len(codes[0]), np.int64)
    for each in codes:
        key = pd.factorize(key * (int(each.max()) + 1) + each)[0].astype(np.int64)
    firsts = np.empty(int(key.max()) + 1, np.int64)
    firsts[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    return key, firsts


def _seconds(path: str | Path, column: CodedColumn) -> FloatArray:
    """Return times in seconds, since 1970 for dates, else on the table's clock; each distinct text is parsed once."""
    try:
        seconds, begin, _ = times_of(path, column.name, column.known)
    except InvalidProblemError:
        seconds, begin, _ = times_of(path, column.name, column.values)
        raise
    offset = 0.0 if begin is None else (begin - EPOCH).total_seconds()
    return np.asarray(seconds[column.codes] + offset)


def _one_of(path: str | Path, header: tuple[str, ...], names: tuple[str, ...], what: str) -> str:
    found = next((name for name in names if name in header), None)
    if found is None:
        shown = ", ".join(header[:12])
        raise InvalidProblemError(f"{path}: no column {what} ({' or '.join(names[:3])}); there are: {shown[:200]}")
    return found
