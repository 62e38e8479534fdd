"""YAML is read as plain values; anything that could grow, run or mislead is rejected in a line."""

import pytest

from optim.core.errors import InvalidProblemError
from optim.core.yaml_documents import MAX_BYTES, read_yaml

BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_documents_are_read_one_by_one(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text('# first\na: 1\nb: ["x", 2.5, true, null]\n---\n---\n{"c": {"d": "e"}}\n')
    assert read_yaml(path) == [{"a": 1, "b": ["x", 2.5, True, None]}, {"c": {"d": "e"}}]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (BOMB, "line 2 has an alias"),
        ("a: &x 1\nb: *x\n", "line 2 has an alias"),
        ("<<: {a: 1}\n", "is not a string"),
        ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        ("a: [1\n", "not valid YAML"),
        ("a: 1\na: 2\n", "line 2: 'a' is given twice"),
        ("x:\n  ? [1]\n  : 2\n", "is not a string"),
        ("1: 2\n---\n" + "[" * 100, "nested deeper than 64"),
        ("a: " + "9" * 5000, "cannot be read"),
        ("a: 2020-13-45\n", "cannot be read"),
        ("a: \0\n", "not valid YAML"),
        ("- " * 200, "nested deeper than 64"),
        ("#" * (MAX_BYTES + 1), "bytes, but YAML files may have at most"),
    ],
)
def test_what_is_not_plain_is_refused_in_a_line(tmp_path, text, cause):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_wide_mapping_takes_no_longer_than_its_length_asks(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("".join(f"k{number}: 1\n" for number in range(20_000)))
    assert len(read_yaml(path)[0]) == 20_000
