"""Numbers that are near what was kept agree, others don't, however deep they lie."""

import json

import numpy as np
import pytest

from tests.support.kept import Near, agrees, assert_kept, summary


def kept(values, tol=1e-3):
    """What a file holds of them, between others that are summed up or not."""
    return json.loads(json.dumps(summary([[1, 2], Near(values, tol), "a" * 200])))


def test_numbers_are_kept_whole_and_compared_to_the_tolerance():
    values = np.linspace(0.1234999, 1, 12).reshape(3, 4)
    assert agrees(kept(values), kept(values + 0.9e-3))
    for index in range(12):
        other = values.copy()
        other.flat[index] -= 1.1e-3
        assert not agrees(kept(values), kept(other))


@pytest.mark.parametrize(("values", "tol"), [([0.5], 1e-3), ([0.5, 0.5, 0.5], 1e-3), ([0.5, 0.5], 1e-2)])
def test_other_counts_and_other_tolerances_are_others(values, tol):
    assert not agrees(kept([0.5, 0.5]), kept(values, tol))


def test_a_file_holds_them(tmp_path, monkeypatch):
    monkeypatch.setenv("KEPT", "renew")
    assert_kept(tmp_path / "kept.json", {"a": Near(np.ones(9), 0.1)})
    monkeypatch.delenv("KEPT")
    assert_kept(tmp_path / "kept.json", {"a": Near(np.full(9, 1.05), 0.1)})
    with pytest.raises(AssertionError, match="1 not as kept"):
        assert_kept(tmp_path / "kept.json", {"a": Near(np.full(9, np.nan), 0.1)})
