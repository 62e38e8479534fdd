"""Every changed field of a logged run's header is rejected in a line that names it, or is known to contain no checked claim."""

import json
import re

import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.run_file import RunRecord, load_run, save_run
from optim.simulation.cluster.comparison import Comparison, PolicyRequest
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.changed_runs import (
    NOWHERE,
    arrays_of,
    changed,
    given_twice,
    leaves,
    of_the_first_schema,
    verdict,
    with_header,
)
from tests.support.small_clusters import workload

CHANGES = {
    "null": None,
    "text": "other",
    "list": [1],
    "low": -1e308,
    "whole": 10**30,
    "huge": 10**400,
    "true": True,
    "gone": NOWHERE,
}
HARMLESS = {
    r"settings\.seed": CHANGES.keys(),
    r"settings\.keys": {"gone"},
    r"names\.\w+\.\d+|kinds\.\d+": {"text"},
    r"rules\.0\.(may_spread|knows_quotas)": {"true"},
    r"rules\.1\.(is_elastic|is_shared|may_refuse|may_spread|knows_quotas)": {"true"},
    r"rules\.0\.knows_quotas|rules\.\d+\.kills_at_limit": {"true"},
    r"figures\.1\.\w+": {"low", "whole", "gone"},
    r"worth\.0": {"null"},
    r"worth\.1\.bound": {"whole"},
    r"bounds\.\w+": {"gone"},
    r"price_bound_limit_h": {"whole", "gone"},
    r"rules\.\d+\.(preempt_checkpoint_us|may_spread|knows_quotas|kills_at_limit|quotas|reservation_depth|startup_us)": {
        "gone"
    },
    r"metrics\.\d+\.(wait_order_share|wait_max_\w+_h|rho_static_max)": {"gone"},
}
"""Allowed changes: records and names, rules that a log never needed, the policy's additional figures, weaker claims."""


def test_the_file_holds_as_it_was_written(logged, tmp_path):
    arrays, header = arrays_of(logged)
    assert verdict(tmp_path / "same.npz", arrays) == ""
    assert len(list(leaves(header))) > 100


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_field_that_is_changed_is_refused_unless_it_is_no_claim(logged, tmp_path, change, step):
    """Each type of change is applied to every sixth field; with `make prove` to all fields."""
    arrays, header = arrays_of(logged)
    for where in list(leaves(header))[list(CHANGES).index(change) % step :: step]:
        said = verdict(tmp_path / "run.npz", with_header(arrays, json.dumps(changed(header, where, CHANGES[change]))))
        name = ".".join(map(str, where))
        may_pass = any(re.fullmatch(pattern, name) and change in ways for pattern, ways in HARMLESS.items())
        assert said or may_pass, f"{name} {change}"


def test_a_field_of_another_type_is_named_beside_the_file(logged, tmp_path):
    arrays, header = arrays_of(logged)
    for where in (("interval", "slowdown"), ("interval", "to_us"), ("load", "from_us"), ("overhead_us",)):
        for value in ("1", [1], {}, True):
            said = verdict(tmp_path / "run.npz", with_header(arrays, json.dumps(changed(header, where, value))))
            assert said.startswith(f"{tmp_path / 'run.npz'}: not a run of optim simulate cluster ({'.'.join(where)}: ")
            assert said.endswith("write one with --log FILE")


def test_a_number_of_400_digits_is_named_where_it_stands(logged, tmp_path):
    arrays, header = arrays_of(logged)
    for name, where in (("jct_mean_h", "metrics[0].jct_mean_h"), ("preemptions", "preemptions")):
        text = json.dumps(changed(header, ("metrics", 0, name), 10**400))
        assert where in verdict(tmp_path / "run.npz", with_header(arrays, text))


def test_a_field_that_is_given_twice_is_refused(logged, tmp_path):
    arrays, header = arrays_of(logged)
    for where in leaves(header):
        if isinstance(where[-1], str):
            said = verdict(tmp_path / "run.npz", with_header(arrays, given_twice(header, where)))
            assert f"the field {where[-1]!r} is given twice" in said


@pytest.mark.parametrize(
    "where", [(), ("names",), ("metrics", 0), ("rules", 1), ("worth", 1), ("bounds",), ("load",), ("interval",)]
)
def test_a_field_that_nobody_knows_is_refused(logged, tmp_path, where):
    arrays, header = arrays_of(logged)
    said = verdict(tmp_path / "run.npz", with_header(arrays, json.dumps(changed(header, (*where, "zzz"), 1))))
    assert re.search(r"field ['`]zzz['`]", said)


@pytest.mark.parametrize(
    ("policies", "cause"),
    [
        (["oasis", "srtf"], "has the key of a run of 'srtf'"),
        (["srtf", "optimal"], "has the key of a run of 'oasis'"),
        (["srtf", ""], r"policies\[1\]: "),
        (["srtf", " "], "is not a valid policy name"),
        (["srtf", "a\x1b[31m"], "is not a valid policy name"),
        (["srtf", "srtf"], "name of two runs"),
        (["srtf", None], r"policies\[1\]: expected `str`"),
        (["srtf", 7], r"policies\[1\]: expected `str`"),
        (["srtf"], "for 1 policies"),
    ],
)
def test_names_of_policies_agree_with_their_keys(logged, tmp_path, policies, cause):
    arrays, header = arrays_of(logged)
    assert re.search(
        cause, verdict(tmp_path / "run.npz", with_header(arrays, json.dumps({**header, "policies": policies})))
    )


@pytest.mark.parametrize(
    "keys",
    [
        None,
        "srtf",
        [],
        ["srtf", "oasis"],
        [1, 2],
        ["srtf:" + "0" * 32],
        ["srtf:" + "0" * 32] * 2,
        ["srtf:" + "0" * 32, "oasis:" + "0" * 32 + "\n"],
    ],
)
def test_keys_are_one_a_policy(logged, tmp_path, keys):
    arrays, header = arrays_of(logged)
    text = json.dumps(changed(header, ("settings", "keys"), keys))
    assert "settings.keys" in verdict(tmp_path / "run.npz", with_header(arrays, text))


def test_times_that_are_all_doubled_with_the_figures_are_refused_by_the_keys(tmp_path):
    """Times and figures are doubled consistently, but the key contains the digest of the original jobs."""
    cluster, rows = Cluster.grid("2x2"), [(0, 1, 300), (5, 2, 200), (9, 1, 50), (20, 2, 900)]
    files = []
    for times in (1, 2):
        jobs = workload([(times * submit, width, times * work) for submit, width, work in rows])
        task, request = Comparison(jobs, cluster, EngineOptions(overhead_s=0), 0), PolicyRequest(name="srtf")
        logged = task.measured("", simulate(jobs, cluster, request.build(jobs), task.options, 0)).logged
        settings = {"keys": [task.key(request)]}
        record = RunRecord(jobs=jobs, cluster=cluster, overhead_us=0, settings=settings, runs=(logged,))
        save_run(record, tmp_path / f"{times}.npz")
        files.append(arrays_of(tmp_path / f"{times}.npz"))
    (_, header), (arrays, doubled) = files
    assert verdict(tmp_path / "own.npz", arrays) == ""
    kept = {**doubled, "settings": header["settings"]}
    said = verdict(tmp_path / "kept.npz", with_header(arrays, json.dumps(kept)))
    assert "jobs or cluster differ from the digest in the run's key" in said


def test_without_keys_the_name_is_the_writers_word(logged, tmp_path):
    arrays, header = arrays_of(logged)
    text = json.dumps({**header, "settings": {}, "policies": ["mine", "other"]})
    assert verdict(tmp_path / "run.npz", with_header(arrays, text)) == ""
    assert [run.policy for run in load_run(tmp_path / "run.npz").runs] == ["mine", "other"]


def test_a_log_of_an_earlier_version_tells_the_wait_to_the_first_start_by_its_old_name(logged, tmp_path):
    arrays, header = of_the_first_schema(*arrays_of(logged))
    for metrics in header["metrics"]:
        metrics["queue_mean_h"] = metrics.pop("first_start_mean_h")
        del metrics["wait_mean_h"]
    text = json.dumps(header)
    assert verdict(tmp_path / "old.npz", with_header(arrays, text)) == ""
    assert load_run(tmp_path / "old.npz").runs[0].metrics.wait_mean_h == -1
    name = '"queue_mean_h": '
    twice = text.replace(name, f"{name}0.0, {name}", 1)
    assert verdict(tmp_path / "twice.npz", with_header(arrays, twice))


def test_a_wait_that_is_told_is_held_against_the_log(logged, tmp_path):
    arrays, header = arrays_of(logged)
    header["metrics"][0]["wait_mean_h"] += 1.0
    assert "wait_mean_h is" in verdict(tmp_path / "run.npz", with_header(arrays, json.dumps(header)))


def test_a_log_of_the_version_before_tells_waiting_by_other_causes_and_is_not_held_to_ours(logged, tmp_path):
    arrays, header = arrays_of(logged)
    header["metrics"][0]["wait_fragmented_share"], header["metrics"][0]["wait_fair_share"] = 0.75, 0.25
    assert "wait_fragmented_share is" in verdict(tmp_path / "run.npz", with_header(arrays, json.dumps(header)))
    del header["metrics"][0]["wait_order_share"]
    assert verdict(tmp_path / "run.npz", with_header(arrays, json.dumps(header))) == ""
