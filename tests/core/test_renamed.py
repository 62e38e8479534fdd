"""The error for a former name gives the current name, which exists."""

from dataclasses import fields

import pytest

import optim
from optim.core.errors import InvalidOptionError, did_you_mean
from optim.core.policies import WORLDS, policies_of
from optim.core.renamed import RENAMED, present_name
from optim.models.catalogue import problem_named, problem_names
from optim.profiling.job_profile import ProfileOptions
from optim.simulation.cluster.options import EngineOptions
from optim.solvers.solve import solvers_of
from optim.workloads.instances import generator_names, generator_of


def public_names() -> set[str]:
    """Return all names of solvers and policies, and of their options."""
    solvers = [solver for problem in problem_names() for solver in solvers_of(problem)]
    policies = [entry for world in WORLDS for entry in policies_of(world).values()]
    tables = [
        *(each.options_type for each in (*solvers, *policies)),
        *(generator_of(problem).GeneratorOptions for problem in generator_names()),
        *(problem.instance_type for problem in (problem_named(each) for each in problem_names())),
        ProfileOptions,
        EngineOptions,
    ]
    return {each.name for each in (*solvers, *policies)} | {field.name for table in tables for field in fields(table)}


def test_every_present_name_exists_and_no_former_one_does():
    names = public_names()
    elsewhere = {"max_gpus", "max_shift"}  # a column of jobs, and an option of a study
    assert set(RENAMED.values()) - names <= elsewhere
    assert not set(RENAMED) & names


def test_a_former_name_gets_its_present_one_only_where_that_is_known():
    assert present_name("most_jobs", ["max_jobs"]) == "max_jobs"
    assert present_name("most_jobs", ["min_gpus"]) is None
    assert did_you_mean("ewma-5", ["forest", "holt"]) == "take holt; "
    with pytest.raises(InvalidOptionError, match="unknown option 'start_heat'; take start_temperature; there are:"):
        optim.solve(optim.reference_instance("tiny-0"), "search", options={"start_heat": 0.1})
