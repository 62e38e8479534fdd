"""The shipped golden results belong to the shipped instances, compared by digest."""

import pytest
from typer.testing import CliRunner

import optim
from optim.benchmarks.compare import golden_names, read_golden
from optim.benchmarks.suite import Subject
from optim.cli.main import app
from optim.models.reference import reference_instance, reference_names

LARGER = ("small", "medium")
ALIKE = "spot-windows-1"
"""One of two slow instances that differ only in their seed: it is solved only before a release."""


@pytest.mark.parametrize("name", golden_names())
def test_golden_rows_of_reference_instances_are_of_these_very_instances(name):
    golden = {record.instance: record.instance_digest for record in read_golden(name)}
    shipped = set(golden) & set(reference_names())
    assert shipped or name == "phases"
    assert {known: Subject(reference_instance(known)).digest for known in shipped} == {
        known: golden[known] for known in shipped
    }


def quick_rows():
    """Yield the golden rows of small instances by one fast solver of each problem."""
    for name, solver in (("auction", "exact"), ("bidding", "greedy"), ("admission", "online")):
        for row in read_golden(name):
            if row.solver == solver and row.instance in reference_names() and not row.instance.startswith(LARGER):
                marks = pytest.mark.prove if row.instance == ALIKE else ()
                yield pytest.param(row, id=f"{row.instance}-{solver}", marks=marks)


@pytest.mark.parametrize("row", list(quick_rows()))
def test_golden_values_of_small_reference_instances_come_out_again(row):
    solution = optim.solve(reference_instance(row.instance), row.solver, seed=row.seed, options=dict(row.options))
    assert solution.objective == pytest.approx(row.objective, rel=1e-9)
    assert solution.bound is None or solution.bound == pytest.approx(row.bound, rel=1e-9)


@pytest.mark.prove
@pytest.mark.parametrize("name", golden_names())
def test_whole_suites_come_out_as_their_golden_rows_say(name, tmp_path):
    result = CliRunner().invoke(app, ["bench", name, "--results", str(tmp_path / "rows.jsonl"), "--compare", name])
    assert result.exit_code == 0, result.output[-2000:]
