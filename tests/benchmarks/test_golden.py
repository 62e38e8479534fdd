"""The shipped golden results are of the instances that ship: a file that is written otherwise is another instance."""

import pytest

from optim.benchmarks.golden import golden_names, read_golden
from optim.benchmarks.work import Subject
from optim.models.reference import reference_instance, reference_names


@pytest.mark.parametrize("name", golden_names())
def test_golden_rows_of_reference_instances_are_of_these_very_instances(name):
    golden = {record.instance: record.instance_digest for record in read_golden(name)}
    shipped = set(golden) & set(reference_names())
    assert shipped or name == "phases"
    assert {known: Subject(reference_instance(known)).digest for known in shipped} == {
        known: golden[known] for known in shipped
    }
