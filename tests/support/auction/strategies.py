"""Hypothesis strategies for small auctions; a failing example is printed as the call that makes it."""

from hypothesis import strategies as st

from tests.support.auction.builders import auction

LOCALITIES = ("slot", "machine", "rack", "cluster")


def machines(most: int = 3, largest: int = 4) -> st.SearchStrategy:
    """Machines in up to two racks, of one or two slots."""
    slots = st.lists(st.integers(0, largest), min_size=1, max_size=2)
    return st.lists(st.tuples(st.integers(0, 1), slots), min_size=1, max_size=most).map(_renumbered)


def _renumbered(places):
    first = {rack: k for k, rack in enumerate(dict.fromkeys(rack for rack, _ in places))}
    return [(first[rack], slots) for rack, slots in places]


def bids(max_rows: int = 4, largest: int = 5) -> st.SearchStrategy:
    """Bids whose values are multiples of 1/8 above 1, the value of the empty row."""
    row = st.tuples(st.integers(1, largest), st.sampled_from(LOCALITIES), st.integers(9, 64).map(lambda v: v / 8))
    return st.lists(row, min_size=0, max_size=max_rows)


def auctions(most_apps: int = 3, **fields) -> st.SearchStrategy:
    """Small auctions of every form but named machines."""
    return st.builds(
        lambda places, apps: auction(places, *apps, **fields),
        machines(),
        st.lists(bids(), min_size=0, max_size=most_apps),
    )


def named_auctions(most_apps: int = 3) -> st.SearchStrategy:
    """Small auctions in which some rows name their machines."""
    named = st.tuples(
        st.dictionaries(st.integers(0, 1), st.integers(1, 3), min_size=1, max_size=2),
        st.integers(9, 64).map(lambda v: v / 8),
    )
    plain = st.tuples(st.integers(1, 4), st.sampled_from(LOCALITIES), st.integers(9, 64).map(lambda v: v / 8))
    return st.builds(
        lambda apps: auction([3, (1, [2, 1])], *apps),
        st.lists(st.lists(st.one_of(named, plain), max_size=4), max_size=most_apps),
    )
