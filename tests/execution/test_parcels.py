"""Packing tasks: shared objects are sent once, and driver and worker agree on the objects that a worker has."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.execution.tasks import MAX_PARTS, Broadcast, Packer, Unpacker, evict_lru


class Table(Broadcast):
    """Something large."""

    def __init__(self, value):
        self.value = value


def test_a_piece_holds_a_digest_in_place_of_what_is_sent_once():
    packer, table = Packer(), Table("x" * 10_000)
    first, second = (packer.pack((number, table), "a piece") for number in (1, 2))
    assert first.needs == second.needs
    assert len(first.content) < 200
    assert len(packer.parts) == 1
    unpacker = Unpacker()
    (one, own), new_bytes = unpacker.unpack(first, packer.parts)
    assert (one, own.value) == (1, table.value)
    assert new_bytes == len(packer.parts[first.needs[0]]) > 10_000
    # The second is the same object, so it isn't sent.
    (two, same), new_bytes = unpacker.unpack(second, {})
    assert (two, same is own, new_bytes) == (2, True, 0)


def test_equal_content_has_one_digest_and_other_content_another():
    packer = Packer()
    needs = [packer.pack(Table(value), "a piece").needs for value in ("a", "a", "b")]
    assert needs[0] == needs[1] != needs[2]


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(InvalidProblemError, match=r"solver 'x' on 'y' cannot be sent to another process"):
        Packer().pack(lambda: 0, "solver 'x' on 'y'")


@given(st.lists(st.lists(st.integers(0, 40), max_size=20, unique=True), max_size=30))
def test_driver_and_worker_hold_the_same_and_not_too_much(needs_of_pieces):
    packer, unpacker, held = Packer(), Unpacker(), {}
    tables = [Table(number) for number in range(41)]
    for needs in needs_of_pieces:
        parcel = packer.pack([tables[number] for number in needs], "a piece")
        missing = {digest: packer.parts[digest] for digest in parcel.needs if digest not in held}
        held |= dict.fromkeys(missing)
        evict_lru(held, parcel.needs)
        piece, _ = unpacker.unpack(parcel, missing)
        assert [table.value for table in piece] == needs
        assert list(unpacker._parts) == list(held)
        assert len(held) <= max(MAX_PARTS, len(needs))


def test_a_parcel_is_small_when_pickled_itself():
    packer = Packer()
    assert len(pickle.dumps(packer.pack(3, "three"))) < 200
