"""A misspelt name is answered with those near it."""

from optim.core.nearest import hint


def test_names_the_nearest_first():
    assert hint("auction-tiny-1", ["tiny-1", "auction-tiny-0", "wide-0"]).startswith("did you mean auction-tiny-0")
    assert hint("themsi", ["admission", "themis", "themis-lies"]) == "did you mean themis? "


def test_asks_nothing_where_nothing_is_near():
    assert hint("nonsense", ["online", "search"]) == hint("", ["a"]) == hint("x", []) == ""
    assert hint("x" * 100_000, ["search"]) == ""
