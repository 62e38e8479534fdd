"""Options from texts and mappings: converted where they fit, refused by name where they don't."""

from dataclasses import dataclass
from enum import StrEnum

import pytest

from optim.core.errors import InvalidOptionError
from optim.core.options import build_options, options_as_dict, read_options


class Kind(StrEnum):
    """Two kinds."""

    ONE = "one"
    TWO = "two"


@dataclass(frozen=True)
class Options:
    """One option of each type."""

    number: int = 1
    share: float = 0.5
    is_strict: bool = False
    name: str = "x"
    kind: Kind = Kind.ONE
    limit: float | None = None
    span: tuple[int, float] | None = None


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [("number", "7", 7), ("number", 7.0, 7), ("share", "0.25", 0.25), ("share", 2, 2.0), ("is_strict", "True", True),
     ("is_strict", "false", False), ("is_strict", True, True), ("name", "y", "y"), ("kind", "two", Kind.TWO),
     ("limit", "3", 3.0), ("limit", None, None), ("span", "2,3.5", (2, 3.5)), ("span", (2, 3), (2, 3.0)),
     ("span", [1, "4"], (1, 4.0)), ("span", None, None)],
)  # fmt: skip
def test_converts_what_fits(name, given, meant):
    found = options_as_dict(build_options(Options, {name: given}))
    assert found == options_as_dict(Options()) | {name: meant}
    assert type(found[name]) is type(meant)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [("number", "7.5", "a whole number"), ("number", 7.5, "a whole number"), ("number", True, "a whole number"),
     ("share", "x", "a number"), ("is_strict", "yes", "true or false"), ("is_strict", 1, "true or false"),
     ("kind", "three", "one of one, two"), ("limit", "x", "a number or absent"), ("number", None, "a whole number"),
     ("span", "2", r"a whole number and a number \(NAME=A,B\) or absent"), ("span", "2,3,4", r"a whole number and a number \(NAME=A,B\) or absent"),
     ("span", 5, r"a whole number and a number \(NAME=A,B\) or absent"), ("span", "x,3", "a whole number")],
)  # fmt: skip
def test_refuses_what_does_not(name, given, said):
    with pytest.raises(InvalidOptionError, match=f"option '{name}' must be {said}, got"):
        build_options(Options, {name: given})


def test_takes_ready_made_options_and_defaults_and_nothing_else():
    made = Options(number=3)
    assert build_options(Options, made) is made
    assert build_options(Options, None) == Options()
    with pytest.raises(InvalidOptionError, match="must be a mapping or Options, got list"):
        build_options(Options, ["number"])
    with pytest.raises(
        InvalidOptionError,
        match="unknown option 'size'; Options knows: is_strict, kind, limit, name, number, share, span",
    ):
        build_options(Options, {"size": 1})


def test_reads_options_from_a_file(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text('number = 2\nkind = "two"\n')
    assert build_options(Options, read_options(path)) == Options(number=2, kind=Kind.TWO)
    path.write_text("number 2")
    with pytest.raises(InvalidOptionError, match=r"options.toml: not valid TOML: .* write NAME = VALUE lines"):
        read_options(path)
    with pytest.raises(InvalidOptionError, match=r"options file .*nothing: can't be read"):
        read_options(tmp_path / "nothing")
