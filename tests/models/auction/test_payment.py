"""From shares to integral GPUs: the rules, the GPUs that the app keeps, and the conservation of GPUs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.codec import MachineDocument, cluster_from_documents
from optim.models.auction.decision import PaymentRule
from optim.models.auction.payment import grant_size, keep_best, leftover, share_leftover
from optim.solvers.solve import solve
from tests.support.auction.strategies import auctions

FLOOR, NEAREST, CEIL, LOTTERY, NONE = PaymentRule
CLUSTER = cluster_from_documents(
    [MachineDocument(rack=0, slots=[4, 4], count=2), MachineDocument(rack=1, slots=[4, 4], count=1)]
)


@pytest.mark.parametrize(
    ("rule", "share", "bundle", "gang", "kept"),
    [
        (FLOOR, 0.5, 5, 1, 2),
        (FLOOR, 0.3, 2, 1, 1),  # .6 of a GPU: the app keeps one
        (FLOOR, 0.2, 2, 1, 0),  # .4 of a GPU
        (FLOOR, 0.6, 4, 4, 0),  # less than the gang
        (FLOOR, 0.75, 8, 2, 6),
        (FLOOR, 1.0, 7, 1, 7),
        (FLOOR, 0.3 / 0.1 / 3, 3, 1, 3),  # 2.9999999999999996 GPUs are three
        (NEAREST, 0.5, 5, 1, 3),
        (NEAREST, 0.49, 5, 1, 2),
        (NEAREST, 0.5, 4, 4, 4),
        (CEIL, 0.01, 5, 1, 1),
        (CEIL, 0.5, 4, 4, 4),
        (CEIL, 0.5, 4, 1, 2),
        (NONE, 0.1, 5, 1, 5),
    ],
)
def test_rules_by_hand(rule, share, bundle, gang, kept):
    assert grant_size(rule, share, bundle, gang) == kept


def test_a_lottery_gives_all_or_nothing():
    assert grant_size(LOTTERY, 0.4, 5, ticket=0.39) == 5
    assert grant_size(LOTTERY, 0.4, 5, ticket=0.41) == 0
    assert grant_size(LOTTERY, 1.0, 5, ticket=0.999999) == 5
    assert grant_size(LOTTERY, 0.0, 5, ticket=0.0) == 0


@given(st.sampled_from(list(PaymentRule)), st.floats(0, 1), st.integers(1, 40), st.integers(1, 8))
def test_never_more_than_the_bundle_and_always_whole_gangs(rule, share, gangs, gang):
    kept = grant_size(rule, share, gangs * gang, gang, ticket=0.5)
    assert 0 <= kept <= gangs * gang
    assert kept % gang == 0


@given(st.floats(0, 1), st.integers(1, 40))
def test_floor_nearest_and_ceil_are_in_order(share, bundle):
    floor, nearest, ceil = (grant_size(rule, share, bundle) for rule in (FLOOR, NEAREST, CEIL))
    assert floor <= nearest + 1  # floor keeps one GPU for half a GPU, and half a GPU rounds up to one
    assert nearest <= ceil


@pytest.mark.parametrize(
    ("entries", "number", "kept"),
    [
        ([(0, 4), (1, 2)], 4, [(0, 4)]),
        ([(0, 3), (1, 2), (2, 4)], 4, [(2, 4)]),  # one slot of another machine holds all
        ([(0, 3), (1, 2), (2, 1)], 5, [(0, 3), (1, 2)]),  # one machine
        ([(0, 2), (2, 2), (4, 4)], 4, [(4, 4)]),  # one rack, one machine, one slot
        ([(0, 4), (2, 3)], 3, [(2, 3)]),  # of two slots that hold enough the smaller part is broken up
        ([(0, 2), (1, 2), (2, 3), (3, 3)], 4, [(0, 2), (1, 2)]),  # the smaller of two machines of a rack
        ([(0, 3), (2, 3), (4, 2), (5, 3)], 6, [(0, 3), (2, 3)]),  # one rack, though the other's machine holds most
        ([(0, 4), (1, 4), (2, 3), (4, 1)], 9, [(0, 4), (1, 4), (2, 1)]),
        ([(0, 1)], 1, [(0, 1)]),
        ([(0, 1)], 0, []),
    ],
)
def test_the_part_with_the_best_locality_is_kept(entries, number, kept):
    assert keep_best(CLUSTER, entries, number) == kept


def test_leftover_never_exceeds_what_an_app_wants_in_whole_gangs():
    given_away = share_leftover(
        CLUSTER, CLUSTER.slot_free, [5, 1, 0], [2, 1, 1], lambda app: [], np.random.default_rng(0)
    )
    assert np.bincount(given_away[:, 0], given_away[:, 2], 3).tolist() == [4, 1, 0]


@given(st.dictionaries(st.integers(0, 5), st.integers(1, 4), min_size=1), st.data())
def test_a_part_has_its_size_and_lies_within_the_bundle(bundle, data):
    number = data.draw(st.integers(0, sum(bundle.values())))
    kept = dict(keep_best(CLUSTER, sorted(bundle.items()), number))
    assert sum(kept.values()) == number
    assert all(0 < count <= bundle[slot] for slot, count in kept.items())


@given(auctions(), st.sampled_from(list(PaymentRule)))
def test_grants_and_leftover_add_up_to_the_offer(instance, rule):
    plan = solve(instance, "exact", options={"rule": rule.value}, seed=3).decision
    n = instance.num_apps
    assert (plan.granted_gpus(n) <= plan.awarded_gpus(n)).all()
    free = leftover(instance.cluster, plan.grants)
    assert (free >= 0).all()
    assert int(free.sum()) + int(plan.grants[:, 2].sum()) == instance.cluster.num_free


def test_a_lottery_depends_on_the_seed_alone():
    from optim.workloads.auction.generator import GeneratorOptions, generate

    instance = generate(GeneratorOptions(num_apps=12, num_gpus=32, num_machines=4), 0)
    draws = [solve(instance, "exact", options={"rule": "lottery"}, seed=seed).decision.grants for seed in (1, 1, 2)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
