"""Suites and cases by name, their omitted pairs, and the sources of their instances."""

import pytest

from optim.benchmarks import cases
from optim.benchmarks.cases import options_for
from optim.benchmarks.suite import SMALL, SUITES, BenchRequest, BenchSpec, SuiteRegistry, choose_suites
from optim.core.errors import InvalidOptionError, InvalidProblemError, NotAllowedError
from optim.models.files import save
from optim.solvers.solve import solver_named
from optim.workloads.bidding.generator import GeneratorOptions
from optim.workloads.instances import InstanceRequest, find_instance


def test_every_suite_has_a_small_size_first():
    assert all(spec.sizes[0] == SMALL for spec in SUITES)


def test_refuses_a_name_twice():
    registry = SuiteRegistry()
    spec = BenchSpec(name="a", problem="admission", summary="", build=lambda request: ())
    registry.register(spec)
    with pytest.raises(NotAllowedError, match="'a' is registered twice"):
        registry.register(spec)


def test_no_name_means_all_suites():
    assert choose_suites(()) == tuple(SUITES)


def test_a_problem_means_its_usual_suite_and_a_name_is_taken_once():
    assert [spec.name for spec in choose_suites(("admission", "admission"))] == ["admission"]
    assert [spec.name for spec in choose_suites(("admission",), ("admission",))] == ["admission"]


@pytest.mark.parametrize(("words", "names"), [(("nonsense",), ()), ((), ("nonsense",)), (("bidding",), ("admission",))])
def test_refuses_suites_that_are_not_there_or_of_another_problem(words, names):
    with pytest.raises(InvalidOptionError, match=r"nonsense|bidding"):
        choose_suites(words, names)


@pytest.mark.parametrize("name", ["tiny-0", "tiny-0.json", "tiny-0.json.gz"])
def test_finds_a_reference_instance_by_any_of_its_names(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_instance(name).name == "tiny-0"


def test_a_file_goes_before_a_reference_instance_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(find_instance("tiny-1"), "tiny-0.json.gz")
    assert find_instance("tiny-0.json.gz").name == "tiny-1"


def test_lists_the_reference_instances_when_there_is_no_such_file():
    with pytest.raises(InvalidProblemError, match=r"nowhere\.json: no such file, .*medium-0"):
        find_instance("nowhere.json")


@pytest.mark.parametrize(
    ("request_", "cause"),
    [
        (InstanceRequest(names=("tiny-0",), jobs=3), "leave out sizes"),
        (InstanceRequest(slot_minutes=5.0), "add --trace"),
        (InstanceRequest(trace_format="philly"), "add --trace"),
    ],
)
def test_refuses_instances_described_in_two_ways(request_, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        request_.sources()


def test_nothing_said_means_the_suites_own_instances():
    assert InstanceRequest().sources() is None


def test_an_option_goes_to_every_solver_that_knows_it(dummies):
    assert options_for("admission", ["idle", "crash"], {"number": "2", "crash.wait_s": "1"}) == {
        "idle": {"number": "2"},
        "crash": {"number": "2", "wait_s": "1"},
    }


@pytest.mark.parametrize(
    ("option", "cause"),
    [
        ("nonsense", "there are: number, wait_s"),
        ("idle.nonsense", "unknown option"),
        ("liar.number", "which is not chosen; add --solver liar"),
    ],
)
def test_refuses_an_option_that_no_chosen_solver_knows(dummies, option, cause):
    with pytest.raises(InvalidOptionError, match=cause):
        options_for("admission", ["idle", "crash"], {option: "1"})


def test_suites_of_other_packages_are_asked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr("optim.core.registry.load_plugins", asked.append)
    registry = SuiteRegistry()
    assert list(registry) == list(registry) == []  # this package's suites are in the table of the process
    assert asked == ["optim.suites"]


@pytest.mark.prove
@pytest.mark.parametrize(
    ("asked", "found"),
    [(None, ["exchange"]), (("exchange", "frontier"), ["exchange", "frontier"]), (("frontier",), ["frontier"])],
)
def test_a_solver_is_left_out_unless_asked_for(monkeypatch, asked, found):
    both = [solver_named("bidding", name) for name in ("exchange", "frontier")]
    monkeypatch.setattr(cases, "solvers_of", lambda problem: both)
    slow = cases.generated_case("bidding", GeneratorOptions(), "slow", 7.0, left_out=frozenset({"frontier"}))
    built = cases.solve_cases("bidding", [slow], BenchRequest(solvers=asked))
    assert [work.solver for work in built] == found
