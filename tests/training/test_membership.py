"""Machines join, stay, are warned and leave; each name is used once."""

import pytest

from optim.core.errors import NotAllowedError
from optim.training.controller import Membership
from optim.training.stages import STORAGE


def members(reliable=("r",), transient=("t", "u")):
    found = Membership()
    found.expect(reliable, transient)
    for name in (*reliable, *transient):
        assert found.arrive(name)
    return found


def test_a_machine_belongs_to_its_tier_once_it_has_come():
    found = Membership()
    found.expect(["r"], ["t"])
    assert (found.staying, list(found.joining)) == ((), ["r", "t"])
    assert not found.is_alive("t")
    assert found.arrive("t")
    assert not found.arrive("t")
    assert found.arrive("r")
    assert (found.reliable, found.transient, found.staying, found.joining) == (["r"], ["t"], ("r", "t"), {})
    assert all(map(found.is_alive, ("r", "t", STORAGE)))


@pytest.mark.parametrize("name", ["r", "t", STORAGE])
def test_a_name_is_taken_for_good(name):
    found = members()
    found.remove("t")
    with pytest.raises(NotAllowedError, match=f"the name '{name}' is or was used by another machine"):
        found.expect(["new"], [name])
    assert found.joining == {}


def test_who_is_warned_works_until_it_is_given_back():
    found = members()
    found.expect([], ["late"])
    assert found.warn(["u", "late", "u"]) == ["late"]
    assert (found.transient, found.leaving, found.joining) == (["t"], ["u"], {})
    assert found.is_alive("u")
    assert found.give_back({"u"}) == []
    assert found.give_back({"t"}) == ["u"]
    assert (found.leaving, found.is_alive("u")) == ([], False)
    with pytest.raises(NotAllowedError, match="no machine 'u' to evict; there are r, t"):
        found.warn(["u"])


def test_nobody_to_evict_is_said_so():
    with pytest.raises(NotAllowedError, match="there are none"):
        Membership().warn(["a"])


def test_who_is_gone_is_struck_out_wherever_it_was():
    found = members()
    found.warn(["t"])
    found.expect(["late"], [])
    assert [found.remove(name) for name in ("r", "t", "late", "nobody")] == [True, True, False, False]
    assert (found.staying, found.leaving, found.joining) == (("u",), [], {})
