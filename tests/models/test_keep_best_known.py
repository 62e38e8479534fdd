"""Storing the best known solutions: plan and bound separately, no worse values, and only verified solutions."""

from dataclasses import replace

import pytest

import optim
from optim.core.errors import InvalidProblemError
from optim.models.reference import solved_reference_names
from tests.models import keep_best_known
from tests.models.keep_best_known import best_of, keep, main


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    (tmp_path / "models" / "admission" / "solutions").mkdir(parents=True)
    return tmp_path


def written(folder, solution, name="found.json"):
    optim.save_solution(solution, optim.reference_instance(solution.instance), folder / name)
    return folder / name


def kept(folder, name):
    return optim.load_solution(
        folder / "models/admission/solutions" / f"{name}.json.gz", optim.reference_instance(name)
    )


def test_the_better_plan_goes_with_the_better_bound():
    instance = optim.reference_instance("tiny-1")
    proven, poor = optim.reference_solution("tiny-1"), optim.solve(instance, "online")
    assert poor.objective < proven.objective < poor.bound
    loose = replace(proven, bound=poor.bound, dual=poor.dual, certificate=poor.certificate)
    bounded = replace(poor, bound=proven.bound, dual=proven.dual, certificate=proven.certificate)
    for one, other in ((loose, bounded), (bounded, loose)):
        best = best_of(one, other)
        assert (best.objective, best.bound, best.certificate) == (proven.objective, proven.bound, proven.certificate)
    assert best_of(proven, poor) is proven
    assert best_of(poor, proven) is proven


def test_a_first_solution_ships_as_it_is_and_a_worse_one_changes_nothing(folder):
    poor = optim.solve(optim.reference_instance("tiny-0"), "online")
    assert "nothing better" in keep(written(folder, poor), folder / "models")
    assert not list((folder / "models").rglob("*.gz"))
    name = next(name for name in optim.reference_names("admission") if name not in solved_reference_names())
    first = optim.solve(optim.reference_instance(name), "fifo")
    assert keep(written(folder, first), folder / "models").endswith("shipped before: nothing")
    stored = kept(folder, name)
    assert (stored.objective, stored.bound) == (first.objective, first.bound)
    assert optim.verify(optim.reference_instance(name), stored).is_ok


def test_what_is_better_takes_the_place_of_what_ships(folder, monkeypatch):
    instance = optim.reference_instance("tiny-1")
    poor, best = optim.solve(instance, "online"), optim.reference_solution("tiny-1")
    monkeypatch.setattr(keep_best_known, "reference_solution", lambda name: poor)
    text = keep(written(folder, best), folder / "models")
    assert text.startswith("tiny-1: 168.345")
    assert f"{poor.objective:.10g}" in text
    assert kept(folder, "tiny-1").objective == best.objective


def test_plan_and_bound_of_two_files_are_kept_together(folder, monkeypatch):
    instance, proven = optim.reference_instance("tiny-1"), optim.reference_solution("tiny-1")
    poor = optim.solve(instance, "online")
    loose = replace(
        proven, termination=poor.termination, bound=poor.bound, dual=poor.dual, certificate=poor.certificate, stated={}
    )
    shipped = optim.load_solution(written(folder, poor, "shipped.json"), instance)
    monkeypatch.setattr(keep_best_known, "reference_solution", lambda name: shipped)
    keep(written(folder, loose), folder / "models")
    stored = kept(folder, "tiny-1")
    assert (stored.objective, stored.bound) == (proven.objective, poor.bound)
    searched = optim.solve(instance, "search", options={"num_moves": 0})
    assert searched.bound < poor.bound
    monkeypatch.setattr(keep_best_known, "reference_solution", lambda name: stored)
    keep(written(folder, searched), folder / "models")
    stored = kept(folder, "tiny-1")
    assert (stored.objective, stored.bound) == (proven.objective, searched.bound)
    assert optim.verify(instance, stored).is_ok


@pytest.mark.parametrize("fields", [{"objective": 1e4}, {"bound": 64.0}])
def test_what_does_not_verify_is_refused(folder, fields, capsys):
    wrong = replace(optim.solve(optim.reference_instance("tiny-0"), "fifo"), **fields)
    path = written(folder, wrong)
    with pytest.raises(InvalidProblemError, match="doesn't verify"):
        keep(path, folder / "models")
    assert main([str(path)]) == 1
    assert "doesn't verify" in capsys.readouterr().err


def test_a_bound_without_a_plan_is_refused(folder):
    bound = optim.solve(optim.reference_instance("tiny-0"), "column-generation")
    with pytest.raises(InvalidProblemError, match="has no plan"):
        keep(written(folder, bound), folder / "models")
