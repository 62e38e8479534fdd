"""Recommendations: guarantees hold on fresh containers, blocks have no effect, and files state the results."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom, binom

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import MEMORY, NETWORK
from optim.rightsizing.recommendation import (
    Amount,
    Recommendation,
    Recommender,
    RecommendOptions,
    as_json,
    as_yaml,
    recommend_blocks,
)
from optim.rightsizing.tuning import Slo
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import series_of

SERIES = generate_containers(ContainerOptions(num_containers=160), seed=3)
OPTIONS = RecommendOptions(cycle_s=600.0, requirement=Slo(kills=0.1, throttled=0.1))


@pytest.fixture(scope="module")
def recommender():
    """Learned and tuned on 120 containers."""
    return Recommender(SERIES.select(np.arange(120)), OPTIONS, seed=0)


def cut(series, shares, rng):
    """The series up to the start of a random cycle, and the need of that cycle."""
    pasts, nexts = [], []
    for rows in series.segments():
        values = series.values[rows]
        end = 40 * int(rng.integers(1, max(len(values) // 40, 2)))
        pasts.append(values[:end])
        nexts.append(values[end : end + 40])
    return series_of(pasts), nexts


def test_what_is_promised_comes_out_on_fresh_containers(recommender):
    fresh = generate_containers(ContainerOptions(num_containers=150), seed=77)
    past, after = cut(fresh, None, np.random.default_rng(1))
    found = list(recommender.recommend(past))
    killed = np.mean([own[:, 1].max() > r.amounts["memory"].request for own, r in zip(after, found, strict=True)])
    short = np.mean([(own[:, 0] > r.amounts["cpu"].request).mean() for own, r in zip(after, found, strict=True)])
    # Means over 150 containers and 60 draws stray by three hundredths each.
    assert 0.0 < killed < 0.22
    assert 0.02 < short < 0.22
    total = np.sum([r.amounts["memory"].request for r in found])
    # Less than the sufficient allocation for all containers, by their maximum so far.
    assert total < 1.3 * np.sum([past.values[rows][:, 1].max() for rows in past.segments()])


def test_blocks_and_what_else_is_in_them_change_nothing(recommender):
    rest = SERIES.select(np.arange(120, 160))
    whole = list(recommender.recommend(rest))
    parts = [rest.select(np.arange(begin, min(begin + 7, 40))) for begin in range(0, 40, 7)]
    assert list(recommend_blocks(recommender, parts)) == whole
    assert [own.container for own in whole] == list(rest.containers)


def test_less_harm_asks_for_more_and_figures_agree_with_each_other(recommender):
    strict = Recommender(SERIES.select(np.arange(120)), RecommendOptions(cycle_s=600.0), seed=0)
    rest = SERIES.select(np.arange(120, 160))
    pairs = list(zip(recommender.recommend(rest), strict.recommend(rest), strict=True))
    for name in ("cpu", "memory"):
        totals = [sum(own.amounts[name].request for own in side) for side in zip(*pairs, strict=True)]
        assert totals[0] < totals[1]
    for segment, (own, _) in enumerate(pairs):
        for column, name in enumerate(("cpu", "memory")):
            amount, limit = own.amounts[name], rest.limit[segment, column]
            assert 0 <= amount.request <= limit
            assert amount.request <= amount.limit <= limit
            assert amount.compared_with == "limit"
            assert amount.saving == pytest.approx(1 - amount.request / limit)
        assert own.amounts["memory"].expected_kills_per_day == pytest.approx(144 * (1 - own.amounts["memory"].quantile))
        assert own.amounts["cpu"].expected_throttled == pytest.approx(1 - own.amounts["cpu"].quantile)


def test_without_limits_the_peak_so_far_is_what_is_compared_with(recommender):
    (own,) = recommender.recommend(series_of([np.full((80, 2), 2.0)]))
    assert {amount.compared_with for amount in own.amounts.values()} == {"peak so far"}
    assert own.amounts["memory"].saving == pytest.approx(1 - own.amounts["memory"].request / 2.0)


def raw_peaks(series, column):
    """The largest sample of each container, by its name."""
    found = {}
    for segment, rows in enumerate(series.segments()):
        name = series.containers[segment]
        found[name] = max(found.get(name, 0.0), series.values[rows, column].max())
    return found


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    number=st.integers(2, 40),
    kills=st.sampled_from([0.001, 0.01, 0.02]),
    interval_s=st.sampled_from([15.0, 60.0]),
)
@example(seed=0, number=8, kills=0.01, interval_s=60.0)
@example(seed=832615, number=28, kills=0.001, interval_s=60.0)  # no multiplier meets the requirement of memory
def test_too_few_containers_for_the_share_say_so_and_nobody_falls_below_its_own_peak(seed, number, kills, interval_s):
    series = replace(
        generate_containers(ContainerOptions(num_containers=number, phase_length=8.0), seed=seed), limit=None
    )
    # A container that was not seen for an hour: its peak of before counts still.
    late = series.time_s + 3600.0 * (np.arange(len(series.time_s)) % 200 >= 120).cumsum().clip(max=1)
    series = replace(series, time_s=np.where(series.segment == 0, late, series.time_s), interval_s=None)
    options = RecommendOptions(cycle_s=600.0, interval_s=interval_s, requirement=Slo(kills=kills, throttled=0.02))
    try:
        own = Recommender(series, options, seed=seed)
    except InvalidProblemError:
        return  # too short
    found, peak = list(own.recommend(series)), raw_peaks(series, 1)
    assert all(each.amounts["memory"].request >= peak[each.container] for each in found)
    for each in found:
        assert each.amounts["memory"].expected_kills_per_day <= 144 * kills * (1 + 1e-9)
        assert each.amounts["cpu"].expected_throttled <= 0.02 * (1 + 1e-9)
    asked = [told for told in own.warnings(found) if "cannot be guaranteed" in told]
    assert len(asked) == 2
    assert f"needs {round(1 / kills) - 1} calibration containers" in asked[0]
    assert f"got {own.num_tuned} for calibration" in asked[0]
    assert "needs 49 calibration containers" in asked[1]
    for column, what in enumerate(("samples throttled", "cycles killed")):
        told = f"{100 / (own.num_tuned + 1):.3g} % of {what}" in own.promise()
        assert told == own.tuned.is_reached[column]


def test_enough_containers_keep_the_share_and_may_give_less_than_the_peak(recommender):
    assert recommender.num_tuned >= 9
    rest = replace(SERIES.select(np.arange(120, 160)), limit=None)
    found, peak = list(recommender.recommend(rest)), raw_peaks(rest, 1)
    assert any(own.amounts["memory"].request < peak[own.container] for own in found)
    assert not [told for told in recommender.warnings(found) if "cannot be guaranteed" in told]
    assert "at most 10 % of cycles killed and 10 % of samples throttled" in recommender.promise()
    assert not any("raised" in own.amounts["memory"].reason for own in found)


def test_a_strict_share_is_tuned_on_as_many_containers_as_it_needs():
    series = series_of([np.full((12, 2), 1.0 + k % 7) for k in range(1300)])
    options = RecommendOptions(cycle_s=60.0, requirement=Slo(kills=0.002, throttled=0.1))
    own = Recommender(series, options, seed=0)
    assert own.num_tuned >= 499
    assert "at most 0.2 % of cycles killed" in own.promise()
    assert not own.warnings([])
    usual = Recommender(series, RecommendOptions(cycle_s=60.0), seed=0)
    assert usual.num_tuned == 200


def test_of_whom_more_harm_is_expected_than_was_asked_for_is_said(recommender):
    amount = named("quiet", "gpu").amounts["cpu"]
    shares = {"quiet": 0.01, "loud": 0.3, "middle": 0.2, "exact": 0.1}
    found = [
        Recommendation(
            container=name,
            unit=None,
            amounts={"cpu": replace(amount, quantile=1.0), "memory": replace(amount, quantile=1.0 - share)},
        )
        for name, share in shares.items()
    ]
    (told,) = recommender.warnings(found)
    for part in ("memory: for 2 of 4 containers", "10 % of cycles killed", "maximum 30 % (loud)", "mean 15.2 %"):
        assert part in told
    assert not recommender.warnings(found[:1])


def test_only_what_there_is_is_promised():
    one = series_of([np.full((80, 1), 1.0 + k) for k in range(6)], resources=(MEMORY,))
    assert "throttled" not in Recommender(one, OPTIONS, seed=0).promise()
    rate = series_of([np.full((80, 1), 1.0 + k) for k in range(6)], resources=(NETWORK,))
    assert "killed" not in Recommender(rate, OPTIONS, seed=0).promise()


@pytest.mark.parametrize("kills", [0.1, 0.05, 0.01])
def test_kills_in_the_next_cycles_stay_within_the_promise(kills):
    """Kills of 40 fresh containers, after tuning on 40 others, are at most as frequent as a beta-binomial law allows.

    An allocation covers n drawn needs, of which k may be uncovered. A fresh container exceeds it with a probability of
    law Beta(k + 1, n - k) at most.
    """
    killed, law, promises = 0, np.ones(1), 0
    for seed in range(8):
        drawn = generate_containers(ContainerOptions(num_containers=80), seed=1000 + seed)
        drawn = replace(drawn, limit=None)
        long = np.flatnonzero(drawn.lengths >= 80)
        known, fresh = (drawn.select(long[part]) for part in (slice(0, 40), slice(40, None)))
        options = RecommendOptions(cycle_s=600.0, requirement=Slo(kills=kills))
        own = Recommender(known, options, seed=seed)
        past, after = cut(fresh, None, np.random.default_rng(seed))
        found = list(own.recommend(past))
        if not own.tuned.is_reached[1]:
            assert "killed" not in own.promise()
            assert any("no multiplier meets the requirement of memory" in told for told in own.warnings(found))
            continue
        promises += 1
        killed += sum(each[:, 1].max() > r.amounts["memory"].request for each, r in zip(after, found, strict=True))
        spared = int(np.floor((own.num_tuned + 1) * kills + 1e-9))
        uncovered = max(spared - 1, 0)
        promised = max(kills, 1 / (own.num_tuned + 1))
        assert f"at most {100 * promised:.3g} % of cycles killed" in own.promise()
        number = len(after)
        law = np.convolve(law, betabinom(number, uncovered + 1, own.num_tuned - uncovered).pmf(np.arange(number + 1)))
    most = int(np.searchsorted(law.cumsum(), 1 - 1e-4))
    assert killed <= most
    assert promises >= 4


def test_peaks_between_points_of_a_coarse_grid_count_in_learning_and_tuning():
    """Every ten minutes each container uses 2 GB for a single sample of 15 s; most such samples are between points of 60 s."""
    rng = np.random.default_rng(5)
    values = []
    for _ in range(60):
        memory = rng.uniform(0.9, 1.1, 240)
        memory[40 * np.arange(6) + rng.integers(4, 34, 6)] = 2.0
        values.append(np.column_stack([rng.uniform(0.5, 1.0, 240), memory]))
    series = series_of(values)
    options = RecommendOptions(cycle_s=600.0, interval_s=60.0, requirement=Slo(kills=0.05, throttled=0.1))
    own = Recommender(series, options, seed=0)
    assert (own._draws.need[:, 1] == 2.0).all()
    found = list(own.recommend(series))
    assert own._is_guaranteed[1]
    assert np.mean([each.amounts["memory"].request >= 2.0 for each in found]) > 0.8


def test_few_containers_are_killed_in_their_own_next_cycle_no_more_often_than_promised():
    """The same containers serve for training, tuning and testing: kills are at most those of a binomial law."""
    killed = number = 0
    least = 1.0
    for seed in range(10):
        drawn = replace(generate_containers(ContainerOptions(num_containers=30), seed=2000 + seed), limit=None)
        drawn = drawn.select(np.flatnonzero(drawn.lengths >= 160)[:24])
        pasts, nexts = [], []
        for rows in drawn.segments():
            end = 40 * int(np.random.default_rng(seed).integers(3, (rows.stop - rows.start) // 40))
            pasts.append(drawn.values[rows][:end])
            nexts.append(drawn.values[rows][end : end + 40, 1].max())
        past = series_of(pasts)
        own = Recommender(past, RecommendOptions(cycle_s=600.0), seed=seed)
        found = list(own.recommend(past))
        expected = np.mean([each.amounts["memory"].expected_kills_per_day for each in found]) / 144
        assert expected <= 0.01 * (1 + 1e-9)
        killed += sum(need > each.amounts["memory"].limit for need, each in zip(nexts, found, strict=True))
        number += len(found)
        least = min(least, 1 / (own.num_tuned + 1))
    assert killed <= binom(number, least).isf(1e-4)


def test_patches_and_json_tell_what_is_expected_and_warn():
    few = SERIES.select(np.arange(12))
    own = Recommender(few, RecommendOptions(cycle_s=600.0), seed=0)
    found = list(own.recommend(few))
    document = json.loads(as_json(found, own))
    assert document["warnings"] == list(own.warnings(found))
    assert any("99 calibration containers" in told for told in document["warnings"])
    lines = as_yaml(found, own).splitlines()
    for told in own.warnings(found):
        assert f"# warning: {told}" in lines
    for each in found:
        memory, cpu = each.amounts["memory"], each.amounts["cpu"]
        assert any(
            line.startswith(f"  # memory: forecast: {memory.expected_kills_per_day:.3g} kills per day")
            and line.endswith("required on average: at most 1.44")
            for line in lines
        )
        assert any(
            line.startswith(f"  # cpu: forecast: {100 * cpu.expected_throttled:.3g} % of samples")
            and line.endswith("required on average: at most 5 %")
            for line in lines
        )


def test_json_and_patches_say_the_same(recommender):
    import yaml

    rest = SERIES.select(np.arange(120, 123))
    names = ("shop/web-1/app", 'shop/web-1/side "car"', "lone: one")
    rest = type(rest)(**{name: getattr(rest, name) for name in rest.__slots__} | {"containers": names})
    found = list(recommender.recommend(rest))
    document = json.loads(as_json(found, recommender))
    assert [own["container"] for own in document["containers"]] == list(names)
    assert document["units"] == {"cpu": "cores", "memory": "GiB"}
    pods = list(yaml.safe_load_all(as_yaml(found, recommender)))
    assert [pod["metadata"] for pod in pods] == [{"name": "web-1", "namespace": "shop"}, {"name": "lone: one"}]
    asked = [own for pod in pods for own in pod["spec"]["containers"]]
    assert [own["name"] for own in asked] == ["app", 'side "car"', "lone: one"]
    for own, told in zip(asked, document["containers"], strict=True):
        requests, limits = own["resources"]["requests"], own["resources"]["limits"]
        cpu, memory = told["amounts"]["cpu"], told["amounts"]["memory"]
        assert 0 <= int(requests["cpu"].removesuffix("m")) / 1000 - cpu["request"] <= 0.001
        assert 0 <= int(limits["cpu"].removesuffix("m")) / 1000 - cpu["limit"] <= 0.001
        assert 0 <= int(requests["memory"].removesuffix("Mi")) / 1024 - memory["request"] <= 1 / 1024
        assert limits["memory"] == requests["memory"]


def test_what_cannot_be_learned_from_is_refused(recommender):
    with pytest.raises(InvalidProblemError, match="at least two containers"):
        Recommender(SERIES.select([0]), OPTIONS, seed=0)
    with pytest.raises(InvalidProblemError, match="no container has two complete cycles of 1e"):
        Recommender(SERIES, RecommendOptions(cycle_s=1e6), seed=0)
    with pytest.raises(InvalidProblemError, match="but the training series have"):
        list(recommender.recommend(series_of([np.ones((50, 1))], resources=(NETWORK,))))


EVIL = 'gpu\n  - name: evil\n    image: "x"'


class Told:
    """Written content of files, with any names."""

    options, resources = OPTIONS, ()

    def __init__(self, promise):
        self.promise = lambda: promise
        self.warnings = lambda found: [promise, "plain"]


def named(container, resource):
    figures = dict.fromkeys(
        ("quantile", "saving", "expected_kills_per_day", "past_kills_per_day", "expected_throttled"), 0.5
    )
    amount = Amount(request=1.0, limit=2.0, reason=resource, compared_with="its peak", **figures)
    amounts = dict.fromkeys(("cpu", "memory", resource), amount)
    return Recommendation(container=container, unit=None, amounts=amounts)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=4, unique=True), st.text(max_size=12))
@example(["a"], EVIL)
@example(["a", "b/c", "d/e/f"], "\u2028- x\u0085- y\r- z")
@example([EVIL], "gpu")
@example(["a/b/c/d"], "gpu")
@example(["1", "2010-01-01", "null", "- a", "x: y", "# z", '"', "\\"], "gpu")
def test_whatever_names_are_patches_hold_them_and_nothing_else_or_are_refused(containers, resource):
    import yaml

    found, told = [named(container, resource) for container in containers], Told(resource)
    document = json.loads(as_json(found, told))
    assert [own["container"] for own in document["containers"]] == containers
    assert all(resource in own["amounts"] for own in document["containers"])
    is_plain = all(
        container.count("/") <= 2
        and all(part and part.isascii() and part.isprintable() for part in container.split("/"))
        for container in containers
    )
    if not is_plain:
        with pytest.raises(InvalidProblemError, match="can't be used in a patch"):
            as_yaml(found, told)
        return
    read = []
    for pod in yaml.safe_load_all(as_yaml(found, told)):
        assert set(pod) == {"apiVersion", "kind", "metadata", "spec"}
        assert set(pod["spec"]) == {"containers"}
        for own in pod["spec"]["containers"]:
            assert set(own) == {"name", "resources"}
            assert own["resources"] == {
                "requests": {"cpu": "1000m", "memory": "1024Mi"},
                "limits": {"cpu": "2000m", "memory": "2048Mi"},
            }
            read.append((pod["metadata"].get("namespace"), pod["metadata"]["name"], own["name"]))
    parts = [container.split("/") for container in containers]
    assert sorted(read, key=repr) == sorted(
        [(one[0] if len(one) == 3 else None, one[-2] if len(one) > 1 else one[0], one[-1]) for one in parts], key=repr
    )
