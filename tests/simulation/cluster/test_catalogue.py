"""User policies from a file or another package, and the messages for unavailable ones."""

import pytest

from optim.core.errors import InvalidOptionError
from optim.core.policies import find_policy
from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import Comparison, PolicyRequest
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.policies import CLUSTER_POLICIES
from tests.support.small_clusters import workload

JOBS = workload([(0, 1, 2), (0, 1, 1)])
HEAD = """
from dataclasses import dataclass
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
"""
MINE = (
    HEAD
    + """
class MyPolicy(PlanningPolicy):
    @dataclass(frozen=True, kw_only=True)
    class Options:
        last_first: bool = False

    def __init__(self, options):
        self.options = options

    def plan(self, view):
        gpus, room = dict(view.running), view.room()
        for job in sorted(view.waiting.tolist(), reverse=self.options.last_first):
            taken = room.place(job)
            if taken:
                gpus[job] = taken
        return Plan(gpus=gpus)
"""
)


@pytest.fixture
def file(tmp_path):
    """A user's file."""
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


@pytest.mark.parametrize(("last_first", "ends"), [(False, [2, 3]), (True, [3, 1])])
def test_a_policy_of_ones_own_is_played_with_its_options(file, last_first, ends):
    policy = make_policy(f"{file}:MyPolicy", JOBS, {"last_first": last_first})
    run = simulate(JOBS, Cluster.grid("1x1"), policy)
    assert (run.end_us // 10**6).tolist() == ends
    assert run.policy == "MyPolicy"


@pytest.mark.parametrize(
    ("content", "name", "cause"),
    [
        (None, "MyPolicy", "there is no file"),
        (MINE, "Other", "other.py has no class Other; it has MyPolicy"),
        ("MyPolicy = 3", "MyPolicy", "is not a policy"),
        ("1 / 0", "MyPolicy", "fails in line 1 with ZeroDivisionError"),
        ("def", "MyPolicy", "fails in line 1 with SyntaxError"),
        (HEAD + "class MyPolicy(PlanningPolicy):\n    pass", "MyPolicy", "cannot construct .*TypeError"),
    ],
)
def test_a_file_without_a_policy_is_refused_in_one_line(tmp_path, content, name, cause):
    path = tmp_path / "other.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidOptionError, match=cause) as caught:
        make_policy(f"{path}:{name}", JOBS)
    assert "\n" not in str(caught.value)


def test_an_unknown_option_of_ones_own_is_refused(file):
    with pytest.raises(InvalidOptionError, match="unknown option 'nonsense'"):
        make_policy(f"{file}:MyPolicy", JOBS, {"nonsense": "1"})


def test_policies_of_other_packages_are_found_by_their_entry_point(monkeypatch):
    from importlib.metadata import EntryPoint

    from optim.core import optional

    mine = EntryPoint("theirs", "optim.simulation.cluster.policies.drf:Drf", "optim.policies")
    broken = EntryPoint("broken", "optim.nowhere:Nothing", "optim.policies")
    monkeypatch.setattr(
        optional,
        "entry_points",
        lambda **wanted: [each for each in (mine, broken) if wanted.get("name") in (None, each.name)],
    )
    with pytest.raises(InvalidOptionError, match="repair or uninstall"):
        make_policy("broken", JOBS)
    with pytest.raises(InvalidOptionError, match=r"broken, .*theirs, .*yarn-cs"):
        make_policy("nonsense", JOBS)
    with pytest.raises(InvalidOptionError, match="cannot construct"):
        make_policy("theirs", JOBS)  # it has options that are never set


def test_names_of_policies_are_those_of_the_catalogue():
    for name in CLUSTER_POLICIES:
        policy = make_policy(name, JOBS)
        assert policy.name == name
        assert find_policy("cluster", name).source


def test_wrappers_are_named_before_the_policy_and_take_options_of_their_name():
    policy = make_policy("isolate+patience+fifo", JOBS, {"backfill": True, "patience.wait_s": 7, "isolate.wide": 3})
    assert policy.name == "isolate+patience+fifo"
    assert policy.options.wide == 3
    assert policy.inner.options.wait_s == 7
    assert policy.inner.inner.policy.backfill
    with pytest.raises(InvalidOptionError, match="unknown wrapper 'fifo'"):
        make_policy("fifo+fifo", JOBS)


def test_two_policies_of_one_name_are_refused_before_they_are_played(file, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(MINE)
    task = Comparison(JOBS, Cluster.grid("1x1"), EngineOptions(), 0)
    requests = [PolicyRequest(name=f"{path}:MyPolicy") for path in (file, other)]
    task.check(requests[:1])
    with pytest.raises(InvalidOptionError, match=r"'MyPolicy' is the name of two runs.*another .name. in its class"):
        task.check(requests)


@pytest.mark.parametrize(("name", "hint"), [("backfill", "easy, conservative"), ("Slurm", "multifactor"), ("nope", "")])
def test_the_name_of_a_rule_is_answered_with_its_policies(name, hint):
    with pytest.raises(InvalidOptionError) as caught:
        make_policy(name, workload([(0, 1, 1)]))
    last = str(caught.value).partition("./mine.py:MyPolicy")[2]
    assert (hint in last, bool(last)) == (True, bool(hint))
