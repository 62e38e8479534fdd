"""Decisions without bids: what is drawn, what it costs, how its losses go together."""

import numpy as np
import pytest

from optim import verify
from optim.core.errors import InvalidOptionError
from optim.solvers.solve import solve
from optim.workloads.bidding.generator import CapacityOptions, GeneratorOptions, draw_capacity, generate

OPTIONS = CapacityOptions(zone_types=9, num_zones=4, num_regions=2, windows=4000, zone_share=0.5, region_share=0.3)


def test_windows_are_lost_as_often_and_as_jointly_as_the_shocks_say():
    draw = draw_capacity(OPTIONS, 3)
    is_lost = draw.instance.outlook.evicted_s >= 0
    survival = draw.shocks.survival()
    assert 1 - is_lost.mean(axis=1) == pytest.approx(survival, abs=4 * 0.5 / np.sqrt(4000))
    # Kinds 0 and 4 share zone 0: both last only if neither their own causes nor the shared ones strike.
    both = np.exp(-(draw.shocks.own[[0, 4]].sum() + draw.shocks.by_zone[0] + draw.shocks.by_region[0]))
    assert (~is_lost[0] & ~is_lost[4]).mean() == pytest.approx(both, abs=0.032)
    assert both > survival[0] * survival[4]


def test_machines_are_paid_by_the_second_and_limited_by_zone_and_region():
    draw = draw_capacity(CapacityOptions(zone_types=8, num_zones=4, num_regions=2, windows=50), 1)
    instance = draw.instance
    outlook = instance.outlook
    hours = np.where(outlook.evicted_s < 0, 3600, outlook.evicted_s) / 3600
    usd = outlook.charge_micro / 1e6 / hours
    assert usd.std(axis=1).max() < 1e-3
    assert instance.caps.names == ("zone 0", "zone 1", "zone 2", "zone 3", "region 0", "region 1")
    assert (instance.caps.weight.sum(axis=0) == 2 * draw.capacity).all()
    assert instance.caps.limit.tolist() == [32.0] * 4 + [48.0] * 2
    assert (
        draw_capacity(CapacityOptions(zone_types=8, num_zones=4, num_regions=2, windows=50), 1).instance.name
        == instance.name
    )


@pytest.mark.prove
def test_the_generator_of_instances_draws_them_too_and_every_solver_certifies_its_answer():
    instance = generate(GeneratorOptions(zone_types=6, windows=8), 0)
    assert instance.name == "capacity-6-8-0"
    found = {name: solve(instance, name) for name in ("greedy", "exchange", "frontier", "dinkelbach")}
    for solution in found.values():
        assert verify(instance, solution).is_ok
        assert solution.objective >= found["dinkelbach"].bound * (1 - 1e-9)
    assert found["dinkelbach"].gap <= 1e-6
    with pytest.raises(InvalidOptionError, match="preemptions go with zone_types"):
        GeneratorOptions(preemptions="x.csv")


def test_hazards_of_a_file_stand_in_for_drawn_ones(tmp_path):
    path = tmp_path / "series.csv"
    rows = [f"preemption,1,c,a,t,600,{tick},{int(tick % 20 > 0)}" for tick in range(400)]
    path.write_text("kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n" + "\n".join(rows) + "\n")
    draw = draw_capacity(CapacityOptions(zone_types=6, windows=40, preemptions=str(path)), 0)
    assert (draw.shocks.survival() == 1.0).all()  # nobody was ever lost within three hours
    other = draw_capacity(CapacityOptions(zone_types=6, windows=40), 0)
    assert not np.allclose(other.shocks.survival(), draw.shocks.survival())


def test_kinds_of_one_series_are_lost_at_rates_that_scatter_by_three_tenths(tmp_path):
    path = tmp_path / "series.csv"
    rows = [f"preemption,1,c,a,t,600,{tick},{int(tick % 4 > 0)}" for tick in range(900)]
    path.write_text("kind,nodes,campaign,zone,resource,gap_seconds,tick,value\n" + "\n".join(rows) + "\n")
    draw = draw_capacity(CapacityOptions(zone_types=300, windows=10, preemptions=str(path)), 0)
    scatter = np.log(-np.log(draw.shocks.survival()))
    assert scatter.std() == pytest.approx(0.3, abs=4 * 0.3 / np.sqrt(600))
