"""Every changed array of a logged run is rejected in a line that names it, or is known to contain no checked claim."""

import json
from dataclasses import MISSING, fields, make_dataclass, replace

import msgspec
import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster import run_file
from optim.models.cluster.check import check_runs
from optim.models.cluster.columns import LATER, columns_of
from optim.models.cluster.metrics import NOT_TOLD, Metrics
from optim.models.cluster.run_file import FIRST_SCHEMA, SCHEMA, STAGES, load_run, save_run
from optim.models.cluster.workload import US, Workload
from tests.support.changed_runs import arrays_of, of_the_first_schema, verdict, with_header

HARMLESS = {
    ("jobs.priority", "negative"),
    ("jobs.loss", "negative"),
    ("jobs.loss", "huge"),
    ("jobs.loss", "narrow"),
    ("worth1.price", "short"),
    ("worth1.price", "emptied"),
    ("divisible.weight", "huge"),
}
"""Columns that only policies may have used, without a rule, prices that are always 0, and weights that stay equal."""


CAME_LATER = {f"jobs.{name}" for name, column in columns_of(Workload).items() if column.since == LATER}
"""Columns that earlier files lack; they are read with their default."""


def _filled(values, number):
    return np.full_like(values, number)


def _most(values):
    return np.iinfo(values.dtype).max if values.dtype.kind == "i" else 1e308


CHANGES = {
    "not a number": lambda values: values.astype(float) * np.nan,
    "huge": lambda values: _filled(values, _most(values)),
    "first huge": lambda values: np.concatenate([_filled(values[:1], _most(values)), values[1:]]),
    "negative": lambda values: _filled(values, -9),
    "least": lambda values: _filled(values, np.iinfo(values.dtype).min if values.dtype.kind == "i" else -1e308),
    "beyond 64 bits": lambda values: np.full(values.shape, 2**64 - 1, np.uint64),
    "text": lambda values: values.astype("S4"),
    "complex": lambda values: values.astype(complex),
    "truths": lambda values: values.astype(bool),
    "wider": lambda values: values.astype(np.longdouble),
    "of another form": lambda values: values[None],
    "one number": lambda values: np.array(values.sum()),
    "narrow": lambda values: values[:, :-1] if values.ndim == 2 else values,
    "short": lambda values: values[:-1],
    "emptied": lambda values: values[:0],
}
ALSO = {"least": "negative", "first huge": "huge", "beyond 64 bits": "huge"}
LIKE_OTHERS = {*ALSO, "wider", "one number"}


@pytest.mark.parametrize(
    "change", [pytest.param(change, marks=[pytest.mark.prove] * (change in LIKE_OTHERS)) for change in CHANGES]
)
def test_an_array_that_is_changed_is_refused_unless_nobody_goes_by_it(logged, tmp_path, change):
    arrays, _ = arrays_of(logged)
    for name, values in arrays.items():
        other = CHANGES[change](values) if name != "header" else CHANGES[change](values.view(np.int8))
        if np.array_equal(other, values) and other.dtype.kind == values.dtype.kind:
            continue
        said = verdict(tmp_path / "run.npz", {**arrays, name: other})
        assert said or (name, ALSO.get(change, change)) in HARMLESS or not values.size, f"{name} {change}"


def test_an_array_that_is_missing_is_named(logged, tmp_path):
    arrays, _ = arrays_of(logged)
    for name in arrays:
        said = verdict(tmp_path / "run.npz", {key: values for key, values in arrays.items() if key != name})
        assert f"{name} is missing" in said or (name in CAME_LATER and not said)


@pytest.mark.parametrize("name", ["zzz", "jobs.zzz", "log2.time_us", "worth0.theta", "price "])
def test_an_array_that_nobody_knows_is_refused(logged, tmp_path, name):
    arrays, _ = arrays_of(logged)
    assert f"unknown array {name!r}" in verdict(tmp_path / "run.npz", {**arrays, name: np.zeros(3)})


@pytest.mark.parametrize("slots", [[-9], [0], [-2]])
def test_places_name_gpus_all_or_none(logged, tmp_path, slots):
    arrays, _ = arrays_of(logged)
    changed = arrays["log0.slot"].copy()
    changed[:1] = slots
    said = verdict(tmp_path / "run.npz", {**arrays, "log0.slot": changed})
    assert "log0.slot must name a GPU for every entry of log0.gpus, or be -1 everywhere" in said


@pytest.mark.parametrize("lost", range(len(STAGES) + 1))
def test_files_of_earlier_versions_are_read(logged, tmp_path, lost):
    arrays, header = of_the_first_schema(*arrays_of(logged))
    gone = {name.replace("log.", "log0.") for stage in STAGES[len(STAGES) - lost :] for name in stage}
    kept = {name: values for name, values in arrays.items() if name not in gone}
    said = {name: value for name, value in header.items() if f"header.{name}" not in gone}
    assert verdict(tmp_path / "run.npz", with_header(kept, json.dumps(said))) == ""
    record = load_run(tmp_path / "run.npz")
    assert record.prices.end_us.tolist() == [50 * US * slot for slot in range(1, 21)]
    save_run(record, tmp_path / "again.npz")
    assert load_run(tmp_path / "again.npz").schema == SCHEMA
    assert not any(found.violations for _, found in check_runs(load_run(tmp_path / "again.npz")))


@pytest.mark.parametrize("schema", [SCHEMA, FIRST_SCHEMA])
def test_a_figure_that_came_later_is_not_missed_in_earlier_files(logged, tmp_path, monkeypatch, schema):
    """As if `jain` were new: files without it are read, and the checker doesn't ask."""
    arrays, header = of_the_first_schema(*arrays_of(logged)) if schema == FIRST_SCHEMA else arrays_of(logged)
    for entry in header["metrics"]:
        del entry["jain"]
    lacking = with_header(arrays, json.dumps(header))
    assert "jain" in verdict(tmp_path / "run.npz", lacking)
    _of_later(monkeypatch, "jain")
    assert verdict(tmp_path / "run.npz", lacking) == ""
    assert load_run(tmp_path / "run.npz").runs[0].metrics.jain == NOT_TOLD


def _of_later(monkeypatch, name):
    """Make a figure one that was added after the second schema."""
    rest = [(each.name, each.type) for each in fields(Metrics) if each.name != name and each.default is MISSING]
    had = [(each.name, each.type, each.default) for each in fields(Metrics) if each.default is not MISSING]
    later = make_dataclass(
        "Metrics", [*rest, *had, (name, float, NOT_TOLD)], frozen=True, slots=True, kw_only=True,
        namespace={"__post_init__": Metrics.__post_init__},
    )  # fmt: skip
    document = msgspec.defstruct(
        "Header",
        [("metrics", list[later])],
        bases=(run_file.HeaderDocument,),
        forbid_unknown_fields=True,
        kw_only=True,
    )
    monkeypatch.setattr(run_file, "HeaderDocument", document)
    monkeypatch.setattr(run_file, "RECORDS", {**run_file.RECORDS, "metrics": later})
    monkeypatch.setitem(run_file.LATER_FIELDS, "metrics", run_file.LATER_FIELDS["metrics"] | {name})


@pytest.mark.parametrize("schema", [SCHEMA, FIRST_SCHEMA])
def test_the_length_of_slots_belongs_into_files_of_the_first_schema(logged, tmp_path, schema):
    arrays, header = of_the_first_schema(*arrays_of(logged)) if schema == FIRST_SCHEMA else arrays_of(logged)
    other = {**header, "slot_us": US}
    if schema == FIRST_SCHEMA:
        del other["slot_us"]
    assert "slot_us must be present in files of" in verdict(
        tmp_path / "run.npz", with_header(arrays, json.dumps(other))
    )


def test_a_table_of_types_tells_of_every_type_there_is(logged):
    record = load_run(logged)
    jobs = replace(record.jobs, gpu_type_slowdown_ppm=np.full((len(record.jobs), 1), 1_000_000))
    typed = replace(record.cluster, kind=np.array([0, 1]), kinds=("a", "b"))
    assert all(found.is_ok for _, found in check_runs(replace(record, jobs=jobs, settings={})))
    with pytest.raises(InvalidProblemError, match="1 columns for 2 types"):
        replace(record, jobs=jobs, cluster=typed)


def test_files_of_earlier_versions_have_no_more_names_than_are_read(logged, tmp_path):
    arrays, header = of_the_first_schema(*arrays_of(logged))
    gone = {name.replace("log.", "log0.") for stage in STAGES[1:] for name in stage}
    said = {name: value for name, value in header.items() if f"header.{name}" not in gone}
    kept = {name: values for name, values in arrays.items() if name not in gone and not name.startswith("worth")}
    said = verdict(
        tmp_path / "run.npz",
        with_header({**kept, "jobs.group": _filled(arrays["jobs.group"], 2**62)}, json.dumps(said)),
    )
    assert "numbers in jobs.group" in said
