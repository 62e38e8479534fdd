"""Traces that are one table with a row a job: one's own, and those of Tiresias' and Muri's simulators."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from optim.workloads.csv_columns import header_of, read_columns, require, require_whole
from optim.workloads.traces.job_table import (
    ELSEWHERE,
    NO_WORK,
    JobTable,
    ReadOptions,
    TextArray,
    is_elsewhere,
    leave_out,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainForm:
    """Which columns hold what.

    Parameters
    ----------
    submit, gpus, duration
        Columns of numbers; times in units of `second`.
    second
        How many of the file's units of time a second has.
    ids, virtual_cluster, user, model, status
        Columns of texts that may be absent.
    """

    submit: str = "submit"
    gpus: str = "gpus"
    duration: str = "duration"
    second: float = 1.0
    ids: str = "id"
    virtual_cluster: str = "vc"
    user: str = "user"
    model: str = "model"
    status: str = "status"


OWN = PlainForm()
TIRESIAS = PlainForm(submit="submit_time", gpus="num_gpu", ids="job_id", model="model_name")
MURI = PlainForm(submit="submit_time", gpus="num_gpu", ids="job_id", model="model_name", second=1000.0)
"""Muri's times are milliseconds."""


def read_plain(path: str | Path, options: ReadOptions, form: PlainForm = OWN) -> JobTable:
    """Read a table of jobs.

    One's own has columns `submit` (s, any origin), `gpus` and `duration` (s), and may have `id`, `vc`, `user`, `model` and
    `status`.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field is no number, negative, or no whole number of GPUs.
    """
    header = header_of(path)
    texts = [name for name in (form.ids, form.virtual_cluster, form.user, form.model, form.status) if name in header]
    columns = read_columns(path, (form.submit, form.gpus, form.duration), texts)
    for column, least in ((form.submit, 0.0), (form.duration, 0.0), (form.gpus, 1.0)):
        require(path, columns, column, least=least)
    submit, duration = columns[form.submit] / form.second, columns[form.duration] / form.second
    gpus = require_whole(path, form.gpus, columns[form.gpus])
    clusters = columns.get(form.virtual_cluster, np.full(len(submit), "", dtype=object))
    kept, dropped = leave_out({ELSEWHERE: is_elsewhere(clusters, options), NO_WORK: duration <= 0})
    names = columns.get(form.ids)

    def shown(column: str) -> TextArray | None:
        return columns[column][kept] if column in columns else None

    return JobTable(
        ids=tuple(f"{names[row]}" if names is not None else f"row-{row}" for row in kept.tolist()),
        submit_s=submit[kept],
        workers=gpus[kept],
        duration_s=duration[kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        rows_read=len(submit),
        dropped=dropped,
        virtual_cluster=shown(form.virtual_cluster),
        user=shown(form.user),
        model=shown(form.model),
        status=shown(form.status),
    )
