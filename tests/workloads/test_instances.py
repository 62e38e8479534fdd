"""Instances of any problem: generated in one call, or found by name and compared with a digest."""

from dataclasses import replace

import pytest

import optim
from optim.cli.messages import MAX_CHARACTERS
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.catalogue import problem_names, problem_of
from optim.workloads import instances
from optim.workloads.admission.generator import GeneratorOptions
from optim.workloads.instances import GENERATED, Recipe, drawn, find_instance, generator_names


def test_every_problem_has_a_generator():
    assert set(generator_names()) == set(problem_names())
    for problem in ("admission", "auction"):
        assert problem_of(optim.generate(problem)).name == problem


def test_options_are_the_generators_own():
    assert optim.generate("auction", seed=2, num_apps=3, num_gpus=8, num_machines=2).num_apps == 3
    with pytest.raises(
        InvalidOptionError, match=r"unknown option 'jobs'; did you mean num_jobs\? there are: .*num_jobs"
    ):
        optim.generate("admission", jobs=3)
    with pytest.raises(InvalidOptionError, match="'cluster' has no generator; choose one of admission"):
        optim.generate("cluster")


def test_the_seed_decides():
    first, same, other = (
        optim.generate("admission", seed=seed, num_jobs=4).jobs.arrival.tolist() for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": "3"}, "seed must be a whole number of at least 0, got '3'"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"num_jobs": "5"}, "option 'num_jobs' must be a whole number, got '5', a string; write 5"),
    ],
)
def test_a_text_is_no_number(given, said):
    with pytest.raises(InvalidOptionError) as error:
        optim.generate("admission", **given)
    assert str(error.value) == said


SMALL = Recipe(
    options=GeneratorOptions(num_jobs=8, num_slots=6, num_worker_servers=2, num_ps_servers=2),
    seed=1,
    digest="134dabddfce197e6",
)


def test_what_is_drawn_has_the_digest_that_was_pinned():
    assert drawn("small", SMALL).name == "small"


@pytest.mark.parametrize("change", [{"seed": 2}, {"options": replace(SMALL.options, num_slots=7)}])
def test_another_instance_is_refused_with_both_digests(change):
    with pytest.raises(InvalidProblemError, match=rf"small: the generator gives another .* pinned {SMALL.digest}"):
        drawn("small", replace(SMALL, **change))


def test_is_found_by_name_as_those_that_ship_are(monkeypatch):
    named = replace(SMALL, digest="224ad0033d91867a")  # the name is part of the document
    monkeypatch.setattr(instances, "GENERATED", {**GENERATED, "xl-0": named})
    for name in ("xl-0", "tiny-0"):
        assert optim.reference_instance(name).name == find_instance(name).name == name


@pytest.mark.parametrize("wrong", ["nothing", "s", "spo"])
@pytest.mark.parametrize("find", [optim.reference_instance, find_instance])
def test_an_unknown_name_is_answered_with_every_whole_name(find, wrong):
    with pytest.raises(InvalidProblemError, match=r"there are: .*auction-tiny-0, .*heavy-0 to heavy-2, .*xl-0") as told:
        find(wrong)
    assert len(f"optim: error: {told.value}") < MAX_CHARACTERS


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("light", "light-0 to light-2"),
        ("spot-hour-", "spot-hour-0 to spot-hour-2"),
        ("xl", "xl-0"),
        ("tinny-0", "tiny-0"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_a_hint_alone(wrong, hint):
    with pytest.raises(InvalidProblemError, match=rf"; did you mean {hint}( or [a-z0-9-]+)?\?$"):
        find_instance(wrong)


@pytest.mark.prove
def test_xl_0_has_the_sizes_it_is_known_for():
    instance = optim.reference_instance("xl-0")
    assert (instance.num_jobs, instance.horizon) == (10_000, 1_000)
    assert (instance.worker_servers.num_servers, instance.ps_servers.num_servers) == (500, 500)
