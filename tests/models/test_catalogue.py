"""A problem is registered by its folder; files of earlier schemas are read in their present form."""

import json
from typing import Any

import pytest

import optim
from optim.core.errors import InvalidOptionError, InvalidProblemError, UnsupportedProblemError
from optim.core.registry import AbstractProblem
from optim.models.bidding.problem import PROBLEM, BiddingProblem
from optim.models.catalogue import problem_named, problem_names, problem_of_schema


class Renamed(BiddingProblem):
    """The bidding problem with an earlier file format in which `bids` was called `offers`."""

    earlier_schemas = ("optim/bidding/0",)

    def upgraded(self, document: dict[str, Any]) -> dict[str, Any]:
        bids = document.pop("offers")
        return document | {"schema": self.schema, "bids": bids}


def earlier(instance: optim.BiddingInstance) -> bytes:
    document = json.loads(PROBLEM.write_instance(instance))
    document["offers"], document["schema"] = document.pop("bids"), "optim/bidding/0"
    return json.dumps(document).encode()


def test_there_is_a_problem_for_each_folder_and_each_declares_its_own_name_and_schema():
    assert problem_names() == ("admission", "auction", "bidding")
    for name in problem_names():
        problem = problem_named(name)
        assert problem.name == name
        assert problem_of_schema(problem.schema) is problem


@pytest.mark.parametrize("schema", ["optim/bidding/99", "optim/nothing/1", "bidding", "", "optim/"])
def test_a_schema_of_nobody_is_refused_with_those_there_are(schema):
    with pytest.raises(InvalidProblemError, match=r"schema: must be one of optim/admission/\d, optim/auction/\d"):
        problem_of_schema(schema)


def test_a_file_of_an_earlier_schema_is_the_same_instance():
    instance = optim.reference_instance("spot-tiny-windows", optim.BiddingInstance)
    assert Renamed().read_instance(earlier(instance)) == instance
    assert Renamed().read_instance(PROBLEM.write_instance(instance)) == instance


def test_an_error_in_a_file_of_an_earlier_schema_names_the_field():
    instance = optim.reference_instance("spot-tiny-windows", optim.BiddingInstance)
    data = earlier(instance).replace(b'"max_count": ', b'"max_count": -')
    with pytest.raises(InvalidProblemError, match="max_count"):
        Renamed().read_instance(data)


def test_a_problem_has_no_programme_and_no_ratio_unless_it_declares_one():
    class Bare(Renamed):
        programme = AbstractProblem.programme
        parametric_programme = AbstractProblem.parametric_programme

    with pytest.raises(UnsupportedProblemError, match="no formal programme"):
        Bare().programme(optim.reference_instance("spot-tiny-own"))
    with pytest.raises(InvalidOptionError, match="omit it"):
        Bare().parametric_programme(optim.reference_instance("spot-tiny-own"), 0.5)
