"""One call draws an instance of any problem."""

import pytest

import optim
from optim.core.errors import InvalidOptionError
from optim.models.catalogue import problem_names, problem_of
from optim.workloads.instances import generator_names


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
    with pytest.raises(InvalidOptionError, match="'cluster' has no generator; those with one: admission"):
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
        ({"num_jobs": "5"}, "option 'num_jobs' must be a whole number, got '5', a text; write 5"),
    ],
)
def test_a_text_is_no_number(given, said):
    with pytest.raises(InvalidOptionError) as error:
        optim.generate("admission", **given)
    assert str(error.value) == said
