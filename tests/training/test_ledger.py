"""The owners of copies, and the clocks that follow from them."""

from optim.training.controller import ReplicaCatalog
from optim.training.stages import STORAGE


def ledger_of(copies, num_shards=2):
    ledger = ReplicaCatalog(num_shards)
    for holder, shard, clocks in copies:
        for clock in clocks:
            ledger.confirm(holder, shard, clock)
    return ledger


def test_all_go_back_to_the_last_clock_of_which_every_shard_has_a_copy_somewhere():
    ledger = ledger_of([("a", 0, (2, 4, 6)), ("b", 1, (2, 4)), (STORAGE, 1, (0, 6))])
    assert ledger.recovery_clock() == 6
    ledger.forget_holder(STORAGE)
    assert ledger.recovery_clock() == 4
    ledger.forget_holder("a")
    assert ledger.recovery_clock() == -1


def test_the_storage_has_a_clock_once_it_has_all_shards_of_it():
    ledger = ledger_of([(STORAGE, 0, (0, 5)), (STORAGE, 1, (0,)), ("a", 1, (5,))])
    assert ledger.storage_clock() == 0
    ledger.confirm(STORAGE, 1, 5)
    assert ledger.storage_clock() == 5


def test_a_copy_is_asked_of_a_machine_before_the_storage_and_of_the_first_by_name():
    ledger = ledger_of([(STORAGE, 0, (3,)), ("b", 0, (3,)), ("a", 0, (2,)), ("c", 0, (3,)), ("a", 1, (3,))])
    assert ledger.source(0, 3) == "b"
    ledger.forget_holder("b")
    ledger.forget_holder("c")
    assert ledger.source(0, 3) == STORAGE


def test_a_checkpoint_is_due_after_its_clocks_and_one_at_a_time():
    ledger = ledger_of([(STORAGE, shard, (0,)) for shard in (0, 1)] + [("a", shard, (2,)) for shard in (0, 1)])
    assert ledger.checkpoint_due(3) is None
    ledger.confirm("a", 0, 3)
    ledger.confirm("a", 1, 3)
    assert ledger.checkpoint_due(3) == 3
    for shard in (0, 1):
        ledger.confirm("a", shard, 9)
    assert ledger.checkpoint_due(3) is None  # the one of clock 3 is still being written
    for shard in (0, 1):
        ledger.confirm(STORAGE, shard, 3)
    assert ledger.checkpoint_due(3) == 9


def test_a_rewind_forgets_later_copies_and_the_checkpoint_that_was_being_written():
    ledger = ledger_of([(STORAGE, 0, (0,)), ("a", 0, (2, 4)), ("b", 0, (6,))], num_shards=1)
    assert ledger.checkpoint_due(1) == 6
    ledger.rewind(4)
    assert [ledger.has(*at) for at in ((STORAGE, 0, 0), ("a", 0, 4), ("b", 0, 6))] == [True, True, False]
    assert ledger.checkpoint_due(1) == 4


def test_what_nobody_goes_back_to_is_trimmed_and_the_storage_by_its_own_clock():
    ledger = ledger_of([(STORAGE, 0, (0, 4)), ("a", 0, (4, 6, 8)), ("b", 0, (2,)), ("c", 0, (8,))], num_shards=1)
    assert ledger.trim() == [("a", 8), ("b", 8), (STORAGE, 4)]
    assert [ledger.has("a", 0, clock) for clock in (4, 6, 8)] == [False, False, True]
    assert [ledger.has(STORAGE, 0, clock) for clock in (0, 4)] == [False, True]
    assert [ledger.has(holder, 0, 8) for holder in "abc"] == [True, False, True]
    assert ledger.trim() == []


def test_only_the_copies_of_the_new_places_and_of_the_storage_are_kept():
    ledger = ledger_of([(STORAGE, 0, (0,)), ("a", 0, (1,)), ("a", 1, (1,)), ("b", 1, (1,))])
    ledger.keep_only([("a", 0), ("b", 1)])
    assert [ledger.has(*at) for at in ((STORAGE, 0, 0), ("a", 0, 1), ("a", 1, 1), ("b", 1, 1))] == [
        True,
        True,
        False,
        True,
    ]
