"""A misspelt name is answered with those near it."""

from optim.core.errors import did_you_mean


def test_names_the_nearest_first():
    assert did_you_mean("auction-tiny-1", ["tiny-1", "auction-tiny-0", "wide-0"]).startswith(
        "did you mean auction-tiny-0"
    )
    assert did_you_mean("themsi", ["admission", "themis", "themis-lies"]) == "did you mean themis? "


def test_asks_nothing_where_nothing_is_near():
    assert did_you_mean("nonsense", ["online", "search"]) == did_you_mean("", ["a"]) == did_you_mean("x", []) == ""
    assert did_you_mean("x" * 100_000, ["search"]) == ""
