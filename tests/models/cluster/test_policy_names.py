"""Names of policies in logs: valid names, and the name that a key contains."""

import pytest

from optim.models.cluster.policy_names import agrees, name_error, name_in

DIGEST = "0" * 32


@pytest.mark.parametrize("names", [[], ["srtf"], ["patience+srtf", "My Policy", "é"], ["a" * 200]])
def test_names_are_texts_that_can_be_printed(names):
    assert name_error(names) == ""


@pytest.mark.parametrize("name", ["", " srtf", "srtf ", "a\nb", "a\x1b[31m", "a\u200b", "a" * 201])
def test_a_text_that_nobody_could_read_is_no_name(name):
    assert "is not a valid policy name" in name_error(["fifo", name])


def test_two_runs_have_two_names():
    assert "'fifo' is the name of two runs" in name_error(["fifo", "srtf", "fifo"])


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        ("srtf", "srtf", True),
        ("fifo", "srtf", False),
        ("SRTF", "srtf", False),
        ("patience+srtf", "patience+srtf", True),
        ("srtf", "patience+srtf", False),
        ("Mine", "./mine.py:Mine", True),
        ("anything", "./mine.py:Mine", True),
        ("patience+anything", "patience+./mine.py:Mine", True),
        ("Theirs", "theirs", True),
    ],
)
def test_a_policy_of_this_package_goes_by_the_name_it_was_asked_for(policy, asked, expected):
    assert name_in(f"{asked}:{DIGEST}") == asked
    assert agrees(policy, f"{asked}:{DIGEST}") is expected
