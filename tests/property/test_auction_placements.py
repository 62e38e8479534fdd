"""Machines with several slots, some fully allocated: a solver's award can be placed, and enumeration finds no better one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from optim.models.files import verify
from optim.solvers.solve import solve, solver_names
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import optimum

TOL = 1e-9
"""Sums of a few logarithms."""

further = st.tuples(st.integers(1, 3), st.sampled_from(["slot", "machine", "rack", "cluster"]), st.just(1.75))
"""A bid of some app in addition to its others; no quotient of values is a half, where rounding would decide the grant."""


@st.composite
def cut_up(draw):
    """Machines in two racks, whose free slots are cut into a bundle of one slot each and the rest of each rack into one.

    So the bundles fit exactly; allocated slots come before the free ones.
    """
    width = draw(st.integers(3, 5))
    machines = [
        [0] * draw(st.integers(0, 2)) + draw(st.sampled_from([[width], [width], [width, 1]]))
        for _ in range(draw(st.integers(2, 3)))
    ]
    racks = [0, *sorted(draw(st.integers(0, 1)) for _ in machines[2:]), 1]
    bundles, rest = [], [0, 0]
    for rack, slots in zip(racks, machines, strict=True):
        for free in filter(None, slots):
            size = draw(st.integers(min(2, free), free))
            bundles.append((size, "slot", 3.0))
            rest[rack] += free - size
    bundles += [(size, "rack", 3.0) for size in rest if size]
    more = draw(st.lists(st.just([]) | further.map(lambda row: [row]), min_size=len(bundles), max_size=len(bundles)))
    apps = [[bundle, *rows] for bundle, rows in zip(bundles, more, strict=True)]
    return auction(list(zip(racks, machines, strict=True)), *apps)


LIKE_BUT_FOR_A_HELD_SLOT = auction(
    [(0, [0, 4]), (1, [4]), (1, [0, 4])],
    [(3, "slot", 3.0)], [(3, "rack", 3.0)], [(4, "slot", 3.0)], [(2, "slot", 3.0)],
)  # fmt: skip


def check_against_enumeration(instance, solver):
    """Check that all claims hold, and that no award exceeds the solver's; return the largest value."""
    solution = solve(instance, solver)
    verification = verify(instance, solution)
    assert verification.is_ok, verification.violations
    best = optimum(instance)
    assert solution.objective <= best + TOL
    assert solution.bound >= best - TOL
    return solution, best


@given(instance=cut_up())
@example(instance=LIKE_BUT_FOR_A_HELD_SLOT)
def test_exact_awards_what_is_worth_most_and_places_it(instance):
    solution, best = check_against_enumeration(instance, "exact")
    assert solution.objective == pytest.approx(best, abs=TOL)


@pytest.mark.parametrize("solver", sorted({*solver_names("auction")} - {"exact"}))
@given(instance=cut_up())
@example(instance=LIKE_BUT_FOR_A_HELD_SLOT)
def test_what_a_solver_awards_lies_somewhere(solver, instance):
    check_against_enumeration(instance, solver)
