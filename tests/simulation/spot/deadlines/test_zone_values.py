"""Values over several zones, compared with recursions by hand and the table of one zone, and their invariants."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.billing import Billing
from optim.models.bidding.market.spells import SpellHazards, prior_hazards
from optim.simulation.spot.deadline_zones import PACE_ENDS, DeadlineProgramme, _PacedWatch
from optim.simulation.spot.zones import Offer, facts_of, run_zones
from optim.solvers.bidding.deadline_table import DeadlineJob, solve_table
from optim.solvers.bidding.zone_values import (
    MAX_VALUES,
    ZoneGroup,
    ZoneProblem,
    look,
    solve_zones,
    tick_of,
    worth,
)
from tests.support.spot.zones import zone_job, zone_market

TICK_S, HOURS = 600, 600 / 3600
SURE_MOVE = 0.07
"""Dollars that machines on demand cost more to launch where the state isn't in the first region, or nowhere."""


def hazards(absent, present):
    return SpellHazards(tick_s=TICK_S, hazard=np.array([absent, present], dtype=float))


def problem(groups, *, work, slack, setup_s=0.0, move=0.0, is_whole=False):
    """Return a job over groups of zones, each in its own region; moves are free before the job has a saved state."""
    size = len(groups)
    rows = np.arange(size + 1)
    far = (rows[:, None] != np.arange(1, size + 1)) & (rows[:, None] > 0)
    setups = np.full((size + 1, size), float(setup_s))
    sure_row = np.maximum(rows, 1)
    return ZoneProblem(
        work_s=work * TICK_S,
        deadline_s=(work + slack) * TICK_S,
        groups=tuple(groups),
        row_of=np.arange(1, size + 1),
        setup_s=setups,
        move_usd=move * far,
        sure_usd=np.full(size + 1, 3.0),
        sure_setup_s=np.full(size + 1, float(setup_s)),
        sure_move_usd=np.where(rows > 1, SURE_MOVE, 0.0),
        sure_row=sure_row,
        is_whole=is_whole,
    )


def value(values, name, tick, lost_s, first, second):
    grid = values.grid
    place = (lost_s - grid.lost_s) / grid.unit_s + 1.0
    array = getattr(values.values, name)
    return look(
        array.reshape((*array.shape, 1)) if array.ndim == 3 else array, tick, 0.0, place, grid.last, first, second
    )


@pytest.mark.parametrize("billing", [Billing.PER_SECOND, Billing.WHOLE_TICKS])
@pytest.mark.parametrize(("come", "go"), [(0.3, 0.1), (0.05, 0.5), (0.9, 0.0)])
def test_one_zone_without_memory_or_set_ups_is_that_of_the_exact_table(come, go, billing):
    chain = hazards([come], [go])
    job = DeadlineJob(
        work_s=9 * TICK_S, deadline_s=15 * TICK_S, setup_s=0, spot_usd=1.0, on_demand_usd=3.0, billing=billing
    )
    exact = solve_table(job, chain).mean_usd
    group = ZoneGroup(num_zones=1, price_usd=1.0, hazards=chain)
    found = solve_zones(problem([group], work=9, slack=6, is_whole=billing is Billing.WHOLE_TICKS))
    # The exact table draws the first tick's absence or presence; later ones follow it.
    assert value(found, "idle", 0, 0.0, 0, 0) == pytest.approx(exact[0])
    assert value(found, "held", 0, 0.0, 0, 0) == pytest.approx(exact[1])


def by_hand(groups, *, work, slack, setup, move):
    """Return values of the rules in full ticks, by separate code: set-ups of no tick or one, one region per group, billed by the tick."""
    count, ages = len(groups), groups[0].hazards.num_ages
    rate = [group.price_usd * HOURS for group in groups]
    hazard = [group.hazards.hazard for group in groups]
    share = [group.hazards.share for group in groups]
    met = [group.hazards.ages_met for group in groups]
    turned = [SpellHazards(tick_s=TICK_S, hazard=group.hazards.hazard[::-1]).ages_met for group in groups]
    mean_back = [float(turned[g] @ hazard[g][0]) for g in range(count)]
    sure = 3.0 * HOURS

    def pick(choices, otherwise):
        """Return the expected value of the cheapest available choice; choices are (value, probability of availability)."""
        mean, rest = 0.0, 1.0
        for worth_usd, chance in sorted(choices):
            if worth_usd < otherwise:
                mean, rest = mean + rest * chance * worth_usd, rest * (1 - chance)
        return mean + rest * otherwise

    def left(t, lost):
        return work - t + lost

    def fine(lost):
        return lost + setup <= slack

    @cache
    def after(t, lost, g, k):
        ends = hazard[g][1][k]
        return (1 - ends) * held(t + 1, lost, g, min(k + 1, ages - 1)) + ends * gone(t + 1, lost, g)

    @cache
    def launch(t, lost, row, g, k):
        if left(t, lost) <= 0:
            return 0.0
        paid = (move if row not in (0, g + 1) else 0.0) + rate[g]
        if setup + left(t, lost) <= 1:
            return paid
        if not fine(lost + setup):
            return np.inf
        if k is None:
            return paid + sum(met[g][age] * after(t, lost + setup, g, age) for age in range(ages))
        return paid + after(t, lost + setup, g, k)

    @cache
    def wait(t, lost, row, k):
        if not fine(lost + 1):
            return np.inf
        later = idle(t + 1, lost + 1, row, min(k + 1, ages - 1))
        fresh = [launch(t + 1, lost + 1, row, g, 0) for g in range(count)]
        back = [hazard[g][0][k] for g in range(count)]
        least = min(pick(list(zip(fresh, back, strict=True)), later), take(t, lost, row, k))
        choices = [
            (fresh[g], back[g])
            if launch(t, lost, row, g, 0) < least
            else (launch(t + 1, lost + 1, row, g, None), share[g])
            for g in range(count)
        ]
        return pick(choices, later)

    @cache
    def take(t, lost, row, k):
        paid = SURE_MOVE if row > 1 else 0.0
        to_the_end = paid + sure * (setup + left(t, lost))
        if setup + left(t, lost) <= 1 or not fine(lost + setup):
            return to_the_end
        to = max(row, 1)
        later = on_demand(t + 1, lost + setup, to, min(k + 1, ages - 1))
        choices = [(launch(t + 1, lost + setup, to, g, 0), hazard[g][0][k]) for g in range(count)]
        return min(to_the_end, paid + sure + pick(choices, later))

    @cache
    def idle(t, lost, row, k):
        return 0.0 if left(t, lost) <= 0 else min(wait(t, lost, row, k), take(t, lost, row, k))

    @cache
    def on_demand(t, lost, row, k):
        if left(t, lost) <= 0:
            return 0.0
        keep = sure
        if left(t, lost) > 1:
            choices = [(launch(t + 1, lost, row, g, 0), hazard[g][0][k]) for g in range(count)]
            keep += pick(choices, on_demand(t + 1, lost, row, min(k + 1, ages - 1)))
        return min(keep, wait(t, lost, row, k))

    @cache
    def gone(t, lost, g):
        if left(t, lost) <= 0:
            return 0.0
        typical = rate[g] + after(t, lost, g, ages // 2)
        choices = [
            (launch(t, lost, g + 1, o, None), mean_back[o] if launch(t, lost, g + 1, o, 0) < typical else share[o])
            for o in range(count)
            if o != g
        ]
        return pick(choices, idle(t, lost, g + 1, 0))

    @cache
    def held(t, lost, g, k):
        if left(t, lost) <= 0:
            return 0.0
        if not fine(lost):
            return np.inf if left(t, lost) > 1 else rate[g]
        stay = rate[g] if left(t, lost) <= 1 else rate[g] + after(t, lost, g, k)
        stay = min(stay, idle(t, lost, g + 1, ages - 1))
        return pick([(launch(t, lost, g + 1, o, 0), mean_back[o]) for o in range(count) if o != g], stay)

    def takes(t, lost, row, k):
        return take(t, lost, row, k) <= wait(t, lost, row, k)

    return idle, held, gone, on_demand, takes


@pytest.mark.parametrize("setup", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_values_are_those_of_a_recursion_by_hand(seed, setup):
    rng = np.random.default_rng(seed)
    groups = [
        ZoneGroup(num_zones=1, price_usd=float(rng.uniform(0.5, 2.8)), hazards=hazards(*rng.uniform(0.05, 0.6, (2, 3))))
        for _ in range(int(rng.integers(1, 4)))
    ]
    move = float(rng.uniform(0.0, 0.5))
    sizes = {"work": 5, "slack": 3 + setup}
    found = solve_zones(problem(groups, **sizes, setup_s=setup * TICK_S, move=move), parts=1)
    idle, held, gone, on_demand, takes = by_hand(groups, **sizes, setup=setup, move=move)
    for tick in range(6):
        for lost in range(min(tick, 3) + 1):
            for k in range(3):
                for row in range(1, len(groups) + 1):
                    told = tick, lost, row, k
                    assert value(found, "idle", tick, lost * TICK_S, row, k) == pytest.approx(idle(*told)), told
                    assert value(found, "sure", tick, lost * TICK_S, row, k) == pytest.approx(on_demand(*told)), told
                    at = found.place(tick * TICK_S, (5 - tick + lost) * TICK_S)
                    assert tick - lost >= 5 or found.takes_on_demand(at, row, k) == takes(*told), told
                for g in range(len(groups)):
                    assert value(found, "held", tick, lost * TICK_S, g, k) == pytest.approx(held(tick, lost, g, k))
            for g in range(len(groups)):
                assert value(found, "lost", tick, lost * TICK_S, g, 0) == pytest.approx(gone(tick, lost, g))


def test_finer_steps_and_ticks_change_little():
    groups = [ZoneGroup(num_zones=2, price_usd=1.0, hazards=hazards([0.2] * 6, [0.05] * 6))]
    costs = [
        value(solve_zones(problem(groups, work=40, slack=12, setup_s=400.0), parts), "idle", 0, 0.0, 0, 0)
        for parts in (1, 3, 6)
    ]
    assert costs[0] == pytest.approx(costs[2], rel=0.01)
    assert costs[1] == pytest.approx(costs[2], rel=0.003)


def test_a_zone_is_worth_less_the_dearer_younger_farther_and_slower_it_is():
    chain = hazards([0.2, 0.1], [0.3, 0.02])
    groups = [ZoneGroup(num_zones=1, price_usd=1.0, hazards=chain)] * 2
    values = solve_zones(problem(groups, work=20, slack=6, setup_s=300.0))
    found = np.empty(5)
    worth(
        *(values.grid, values.chances, values.costs, values.values, values.residual),
        *(values.place(0.0, 20.0 * TICK_S), 20.0 * TICK_S, 0, np.zeros(5, dtype=np.int64)),
        np.array([1, 0, 1, 1, 1]),
        np.array([1.0, 1.0, 1.1, 1.0, 1.0]),
        np.array([300.0, 300.0, 300.0, 900.0, 300.0]),
        np.array([0.0, 0.0, 0.0, 0.0, 0.5]),
        found,
    )
    assert found[0] < min(found[1:])
    # Expected to last 50 ticks, of which 20 have work.
    assert found[2] == pytest.approx(found[0] + 0.1 * HOURS * 20)
    assert found[4] == pytest.approx(found[0] + 0.5)


@given(
    tick_s=st.integers(1, 7200),
    cells=st.integers(1, 5000),
    work_s=st.integers(1, 10**7),
    slack_s=st.integers(0, 10**7),
)
def test_a_table_fits_whatever_the_job(tick_s, cells, work_s, slack_s):
    every_s, parts = tick_of(tick_s, 1200, cells, work_s, slack_s)
    assert every_s % tick_s == 0
    rows = (-(-(work_s + slack_s) // every_s) + 2) * (slack_s * parts // every_s + 3)
    assert rows * cells <= MAX_VALUES or every_s > work_s + slack_s


def test_it_waits_for_a_cheap_zone_near_by_while_there_is_time():
    # The cheap zone is unavailable for a tick occasionally; the expensive one is always available.
    market = zone_market("xxxx-xxxx-xxxx-xxxx-xxxxxxxxxx", "x" * 30, spot=[1.0, 2.5], tick_s=600)
    job = zone_job(market, 20, 29, setup=0)
    chain = hazards([0.9, 0.9], [0.2, 0.2])
    run = run_zones(market, job, DeadlineProgramme(facts_of(market, job, hazards=chain)), 0)
    assert {stay.zone for stay in run.stays} == {0}
    hurried = zone_job(market, 29, 30, setup=0)
    run = run_zones(market, hurried, DeadlineProgramme(facts_of(market, hurried, hazards=chain)), 0)
    assert {stay.zone for stay in run.stays} == {0, 1}


def test_no_zone_is_probed():
    market = zone_market("--xx--xxxx--xxxxxxxx", "xx--xx----xxxx--xxxx", spot=[1.0, 1.2], tick_s=600)
    job = zone_job(market, 10, 18)
    assert run_zones(market, job, DeadlineProgramme(facts_of(market, job)), 0).probes == 0


def test_what_is_held_lets_a_better_zone_be_asked_for_until_the_last_moment():
    market = zone_market("xxxxxx", "xxxxxx", spot=[2.0, 1.0], tick_s=600)
    job = zone_job(market, 4, 6, setup=0)
    policy = DeadlineProgramme(facts_of(market, job))
    view = {"held": Offer(0, True), "setup_left_s": 0, "state": 1}
    told = type("View", (), view)()
    assert policy.may_lose_s(told, (Offer(1, True), Offer(0, True))) == 0
    assert policy.may_lose_s(told, (Offer(1, True), Offer(0, False))) == 0
    assert policy.may_lose_s(told, (Offer(1, True),)) == 600  # it may have no machines
    assert policy.may_lose_s(told, ()) == 600


def test_a_zone_hardly_cheaper_is_not_worth_a_launch():
    market = zone_market("x" * 12, "-" + "x" * 11, spot=[1.0, 0.99], tick_s=600)
    job = zone_job(market, 8, 12, setup=1)
    run = run_zones(market, job, DeadlineProgramme(facts_of(market, job)), 0)
    assert [stay.zone for stay in run.stays] == [0]


def watched(chain, seen):
    """Return a watch of a zone that was observed at every tick."""
    watch = _PacedWatch(chain)
    for tick, is_there in enumerate(seen):
        watch.see(600 * tick, is_available=bool(is_there))
    return watch


def test_the_pace_of_a_zone_follows_what_was_seen_of_it():
    chain = hazards([0.2, 0.1], [0.2, 0.1])
    assert [_PacedWatch(chain).factor(kind, 0) for kind in (0, 1)] == [1.0, 1.0]
    assert [watched(chain, [1, 0] * 30).factor(kind, 0) for kind in (0, 1)] == [2.0, 2.0]
    calm = watched(chain, [1] * 200)
    assert [calm.factor(kind, 0) for kind in (0, 1)] == [1.0, 0.5]
    # Of an eighth of the hazards 2.5 ends were expected: (5 + 0) / (5 + 2.5) is nearer to a half than to one, in powers of 2.
    assert [calm.factor(kind, -1) for kind in (0, 1)] == [0.125, 0.0625]
    young = watched(chain, [1, 0, 0])
    # The first spell has an unknown age; the second is a tick old.
    found = float(chain.first_hazard(1)[0, 1])
    assert -np.expm1(-young._due[:, 1]) == pytest.approx([0.2, found])
    assert young._ends == [0, 1]
    assert PACE_ENDS > 0


def test_the_likelihood_of_a_level_is_the_mean_over_the_pace():
    """Compare with a numerical integral of the gamma density of the pace times the likelihood of the observed spells."""
    chain, seen = hazards([0.3, 0.2, 0.1], [0.2, 0.1, 0.05]), [1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 1, 0]
    watch, found = watched(chain, seen), np.empty((2, 3))
    pace = np.linspace(1e-4, 12.0, 40_000)
    density = pace ** (PACE_ENDS - 1.0) * np.exp(-PACE_ENDS * pace)
    for column, power in enumerate((-1, 0, 1)):
        scaled = chain.scaled(8.0**power, 8.0**power)
        like, age, is_first = [density.copy(), density.copy()], 0, True
        for was, now in itertools.pairwise(seen):
            table = scaled.first_hazard(3).T if is_first else scaled.hazard
            chance = min(max(float(table[was, min(age, 2)]), 1e-3), 1.0 - 1e-3)
            rate = -math.log1p(-chance)
            like[was] = like[was] * np.exp(-pace * rate) * (pace * rate if was != now else 1.0)
            age, is_first = (0, False) if was != now else (age + 1, is_first)
        found[:, column] = [math.log(each.sum()) for each in like]
    for kind in (0, 1):
        told = watch.log_likelihood(kind)
        assert told - told[1] == pytest.approx(found[kind] - found[kind, 1], abs=1e-3)


def test_the_mean_of_all_zones_changes_the_level_and_one_alone_does_not():
    chain = hazards([0.4, 0.4], [0.4, 0.4])
    levels = []
    for calm in (1, 3):
        market = zone_market(*["x" * 60] * 3, tick_s=600)
        rule = DeadlineProgramme(facts_of(market, zone_job(market, 40, 60), hazards=chain))._rule
        rule._watches = [watched(chain, [1] * 50 if zone < calm else []) for zone in range(3)]
        levels.append(rule._factors_now())
    assert [each[0] for each in levels[0]] == [1.0] * 3
    assert [each[1] for each in levels[0]] == [0.5, 1.0, 1.0]
    assert {each[1] for each in levels[1]} == {0.0625}


def test_hazards_ten_times_too_high_cost_little_in_the_mean():
    chain, costs = prior_hazards(600), {1.0: [], 10.0: []}
    for seed, (factor, found) in itertools.product(range(20), costs.items()):
        flags = [chain.draw(90, np.random.default_rng([seed, zone])) for zone in range(3)]
        market = zone_market(*("".join("-x"[int(there)] for there in zone) for zone in flags), tick_s=600)
        job = zone_job(market, 72, 90, setup=1)
        run = run_zones(market, job, DeadlineProgramme(facts_of(market, job, hazards=chain.scaled(factor, factor))), 0)
        assert run.deadline_met
        found.append(run.cost_usd)
    assert np.mean(costs[10.0]) < 1.05 * np.mean(costs[1.0])


def test_groups_of_other_ticks_are_refused():
    mixed = [
        ZoneGroup(num_zones=1, price_usd=1.0, hazards=hazards([0.2], [0.2])),
        ZoneGroup(num_zones=1, price_usd=1.0, hazards=hazards([0.2], [0.2]).every(1200)),
    ]
    with pytest.raises(InvalidProblemError, match="same tick length"):
        problem(mixed, work=2, slack=2)
    (group, _) = mixed
    with pytest.raises(InvalidProblemError, match="shape"):
        ZoneProblem(
            work_s=1,
            deadline_s=1,
            groups=(group,),
            row_of=np.zeros(2),
            setup_s=np.zeros((1, 1)),
            move_usd=np.zeros((1, 1)),
            sure_usd=np.ones(1),
            sure_setup_s=np.zeros(1),
            sure_move_usd=np.zeros(1),
            sure_row=np.zeros(1),
        )
