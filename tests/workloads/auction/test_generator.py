"""Generated auctions: sizes, contention, occupied GPUs, and rejected options."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.models.auction.data import Locality
from optim.models.auction.problem import PROBLEM
from optim.models.auction.summary import describe
from optim.workloads.auction.generator import GeneratorOptions, draw_profiles, generate


def test_the_same_seed_gives_the_same_auction():
    first, again, other = (PROBLEM.write_instance(generate(GeneratorOptions(num_apps=8), seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("apps", [6, 16, 64])
def test_by_default_three_times_the_gpus_on_offer_are_wanted(apps):
    figures = describe(generate(GeneratorOptions(num_apps=apps), seed=0))
    assert figures["contention"] >= 3.0
    assert figures["horizon"] == "hold"
    assert set(figures["gangs"]) <= {"1", "2", "4", "8"}


def test_trials_an_app_are_bimodal_as_published():
    options = GeneratorOptions(
        num_apps=600, gangs="elastic", contention=1000.0
    )  # every demand has capacity for 100 trials
    cluster = generate(GeneratorOptions(num_apps=1), seed=0).cluster
    trials = np.array([len(app.trials) for app in draw_profiles(options, cluster, np.random.default_rng(0))])
    shares = [(trials <= most).mean() for most in (5, 20, 80, 100)]
    assert shares == pytest.approx([0.2, 0.35, 0.5, 1.0], abs=4 * np.sqrt(0.25 / 600))
    assert trials.min() >= 1


def test_a_share_of_the_gpus_is_held():
    cluster = generate(GeneratorOptions(allocated_share=0.3), seed=0).cluster
    assert cluster.num_free == 256 - round(0.3 * 256)
    assert len(np.unique(cluster.machine_free)) > 2


def test_dividing_sizes_are_powers_of_two():
    bids = generate(GeneratorOptions(sizes="dividing", gangs="elastic"), seed=0).bids
    assert {size.bit_count() for size in bids.gpus.tolist()} == {1}


def test_named_bids_name_one_machine_each():
    instance = generate(GeneratorOptions(num_apps=4, bids="named"), seed=0)
    assert (instance.bids.locality == Locality.NAMED).all()
    assert len(instance.bids.named_row) == len(instance.bids)


def test_bids_are_better_in_tighter_placements_and_with_more_gpus():
    instance = generate(GeneratorOptions(num_apps=12, num_gpus=64, num_machines=8, slots_per_machine=2), seed=4)
    bids = instance.bids
    rows = list(zip(bids.app.tolist(), bids.gpus.tolist(), bids.locality.tolist(), bids.rho.tolist(), strict=True))
    for app, k, level, rho in rows:
        for other, more, wider, worse in rows:
            if other == app and level == wider and more > k:
                assert worse < rho
            if other == app and more == k and wider > level:
                assert worse > rho


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_apps": -1}, "num_apps must be at least 0"),
        ({"num_gpus": 3, "num_machines": 4}, "at least one per slot"),
        ({"allocated_share": 1.5}, r"allocated_share must be in \[0, 1\]"),
        ({"contention": -1.0}, r"contention must be in \[0, 1e6\]"),
        ({"contention": 1e100}, r"contention must be in \[0, 1e6\]"),
        ({"gangs": "odd"}, "gangs must be one of"),
        ({"horizon": "never"}, "horizon must be one of"),
    ],
)
def test_refuses_options_out_of_range(options, text):
    with pytest.raises(InvalidOptionError, match=text):
        GeneratorOptions(**options)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (
            {"num_apps": 10**6},
            "num_apps: at most 100000 are generated, got 1000000; generate fewer, or raise .*--limit count=N",
        ),
        ({"num_gpus": 10**6}, "num_gpus: at most 100000"),
        ({"num_apps": 10**5, "num_gpus": 10**5}, "num_apps times num_gpus: at most 50000000"),
    ],
)
def test_refuses_to_draw_more_than_a_reader_takes_before_anything_is_made(sizes, text):
    with pytest.raises(InvalidOptionError, match=text):
        generate(GeneratorOptions(**sizes), seed=0)
