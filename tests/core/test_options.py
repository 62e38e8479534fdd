"""Options from texts and mappings: valid values are converted, others are rejected by name."""

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import UnionType
from typing import get_args, get_type_hints

import pytest

from optim.core.errors import InvalidOptionError
from optim.core.options import OptionText, build_options, options_as_dict, read_options
from optim.phases.encoders import ENCODERS
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.spot.policy import SpotOptions
from optim.solvers.solve import solvers_of
from optim.workloads.admission.traces import TraceOptions
from optim.workloads.bidding.generator import CapacityOptions
from optim.workloads.cluster.generator import PhillyOptions
from optim.workloads.cluster.themis_apps import ThemisOptions
from optim.workloads.containers.generator import ContainerOptions
from optim.workloads.instances import generator_names, generator_of
from optim.workloads.prices.price_generator import PriceOptions


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
    sizes: tuple[int, ...] = ()
    kinds: tuple[Kind, ...] | None = None


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [("number", "7", 7), ("number", 7.0, 7), ("share", "0.25", 0.25), ("share", 2, 2.0), ("is_strict", "True", True),
     ("is_strict", "false", False), ("is_strict", True, True), ("name", "y", "y"), ("kind", "two", Kind.TWO),
     ("limit", "3", 3.0), ("limit", None, None), ("span", "2,3.5", (2, 3.5)), ("span", (2, 3), (2, 3.0)),
     ("span", [1, 4], (1, 4.0)), ("span", None, None), ("sizes", "4,2,7", (4, 2, 7)), ("sizes", "3", (3,)),
     ("sizes", "", ()), ("sizes", [1, 2], (1, 2)), ("sizes", (5,), (5,)), ("kinds", "two,one", (Kind.TWO, Kind.ONE)), ("kinds", None, None)],
)  # fmt: skip
def test_converts_what_fits(name, given, meant):
    found = options_as_dict(build_options(Options, {name: OptionText(given) if isinstance(given, str) else given}))
    assert found == options_as_dict(Options()) | {name: meant}
    assert type(found[name]) is type(meant)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [("number", "7.5", "a whole number"), ("number", 7.5, "a whole number"), ("number", True, "a whole number"),
     ("share", "x", "a number"), ("is_strict", "yes", "true or false"), ("is_strict", 1, "true or false"),
     ("number", float("inf"), "a whole number"), ("share", 10**400, "a number"), ("number", "9" * 5000, "a whole number"),
     ("kind", "three", "one of one, two"), ("limit", "x", "a number or absent"), ("number", None, "a whole number"),
     ("span", "2", r"a whole number and a number \(NAME=A,B\) or absent"), ("span", "2,3,4", r"a whole number and a number \(NAME=A,B\) or absent"),
     ("span", 5, r"a whole number and a number \(NAME=A,B\) or absent"), ("span", "x,3", "a whole number"),
     ("sizes", "1,x", "a whole number"), ("sizes", 5, r"a list, each entry a whole number \(NAME=A,B,...\)"), ("sizes", "1,,2", "a whole number"),
     ("kinds", "one,three", "one of one, two")],
)  # fmt: skip
def test_refuses_what_does_not(name, given, said):
    with pytest.raises(InvalidOptionError, match=f"option '{name}' must be {said}, got"):
        build_options(Options, {name: OptionText(given) if isinstance(given, str) else given})


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [("number", "7", "a whole number, got '7', a string; write 7"), ("share", "0.25", "a number, got '0.25', a string; write 0.25"),
     ("is_strict", "True", "true or false, got 'True', a string; write True"), ("limit", "3", "a number or absent, got '3', a string; write 3.0"),
     ("sizes", "4,2", "a list, each entry a whole number (NAME=A,B,...), got '4,2', a string; write (4, 2)"),
     ("sizes", [1, "2"], "a whole number, got '2', a string; write 2"), ("number", "seven", "a whole number, got 'seven'")],
)  # fmt: skip
def test_python_s_texts_are_no_numbers(name, given, said):
    with pytest.raises(InvalidOptionError) as error:
        build_options(Options, {name: given})
    assert str(error.value) == f"option '{name}' must be {said}"


def test_python_s_texts_are_names_and_choices():
    assert build_options(Options, {"name": "7", "kind": "two", "kinds": ("one",)}) == Options(
        name="7", kind=Kind.TWO, kinds=(Kind.ONE,)
    )


def test_takes_ready_made_options_and_defaults_and_nothing_else():
    made = Options(number=3)
    assert build_options(Options, made) is made
    assert build_options(Options, None) == Options()
    with pytest.raises(InvalidOptionError, match="must be a mapping or Options, got list"):
        build_options(Options, ["number"])
    with pytest.raises(
        InvalidOptionError,
        match=r"unknown option 'size'; did you mean sizes\? there are: is_strict, kind, kinds, limit, name, number, share, sizes, span",
    ):
        build_options(Options, {"size": 1})


def test_reads_options_from_a_file(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text('number = 2\nkind = "two"\n')
    assert build_options(Options, read_options(path)) == Options(number=2, kind=Kind.TWO)
    path.write_text("number 2")
    with pytest.raises(InvalidOptionError, match=r"options.toml: not valid TOML: .* write NAME = VALUE lines"):
        read_options(path)
    path.write_text("number = " + "9" * 5000)
    with pytest.raises(InvalidOptionError, match=r"options.toml: not valid TOML: .* write NAME = VALUE lines"):
        read_options(path)
    with pytest.raises(InvalidOptionError, match=r"options file .*nothing: can't be read"):
        read_options(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [("number", 2**63, r"between -2\^63 and 2\^63 - 1, got 9223372036854775808"), ("number", "-9223372036854775809", r"between -2\^63 and"),
      ("number", 1e19, r"between -2\^63 and"),
     ("share", "1e308", r"0, or between 1e-100 and 1e\+100 in absolute value, got 1e\+308$"), ("share", 1e-320, "in absolute value, got 1e-320"),
     ("share", -1e101, "in absolute value"), ("share", "nan", "in absolute value, got nan"), ("limit", 1e101, "in absolute value"), ("span", "1,1e101", "in absolute value"),
     ("span", (2**63, 1.0), r"between -2\^63 and"), ("sizes", "1,9223372036854775808", r"between -2\^63 and")],
)  # fmt: skip
def test_refuses_numbers_that_cannot_be_computed_with(name, given, said):
    with pytest.raises(InvalidOptionError, match=rf"option '{name}' must be .*{said}"):
        build_options(Options, {name: OptionText(given) if isinstance(given, str) else given})


def test_a_number_of_thousands_of_digits_is_refused_by_its_length():
    for name, said in (("number", "between"), ("kind", "one of one, two")):
        with pytest.raises(InvalidOptionError, match=f"option '{name}' must be {said}.*, got a number of 16610 bits"):
            build_options(Options, {name: 10**5000})


@pytest.mark.parametrize("made", [Options(number=2**63), Options(share=1e308), Options(span=(1, 1e-320))])
def test_refuses_such_numbers_in_ready_made_options_too(made):
    with pytest.raises(InvalidOptionError, match="must be"):
        build_options(Options, made)


@pytest.mark.parametrize(
    "values", [{"number": 2**63 - 1}, {"number": -(2**63)}, {"share": 0.0}, {"share": -1e100}, {"limit": 1e-100}]
)
def test_takes_the_largest_and_smallest_numbers(values):
    assert options_as_dict(build_options(Options, values)) == options_as_dict(Options()) | values


def every_options_type():
    """Return the options of all solvers, generators and encoders, and of the engines of simulations."""
    generators = [generator_of(problem).GeneratorOptions for problem in generator_names()]
    others = [
        ContainerOptions,
        PriceOptions,
        CapacityOptions,
        PhillyOptions,
        ThemisOptions,
        TraceOptions,
        EngineOptions,
        SpotOptions,
    ]
    return {
        *(solver.options_type for problem in generator_names() for solver in solvers_of(problem)),
        *generators,
        *others,
        *(kind for kind, _ in ENCODERS.values()),
    }


def test_extreme_numbers_end_in_an_error_of_the_library_in_every_option():
    for options_type in every_options_type():
        for name, hint in get_type_hints(options_type).items():
            kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
            for value in [2**63, -(2**63) - 1] * (int in kinds) + [1e308, -1e308, 1e-320] * (float in kinds):
                with pytest.raises(InvalidOptionError):
                    build_options(options_type, {name: OptionText(value)})
                with suppress(InvalidOptionError):
                    assert getattr(options_type(**{name: value}), name) == value
