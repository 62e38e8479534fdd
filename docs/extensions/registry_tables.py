"""Tables of solvers, instances, policies, commands, file formats, classes and extras, made from the code that a reader would call.

Facts that the code lacks, such as the proof of a solver, are lines of the directive, `name: text`. A solver
without a line, and a line without a solver, is a warning, which ends the build.
"""

import ast
import inspect
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np
import typer.main
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from optim.cli.main import app as command_line
from optim.core.limits import MIB
from optim.core.options import named_fields, option_meanings, options_as_dict
from optim.core.policies import RegisteredPolicy, policies_of
from optim.core.registry import describe_options
from optim.models.catalogue import problem_named
from optim.models.cluster.workload import Workload
from optim.models.reference import reference_instance, reference_names
from optim.simulation.cluster.catalogue import make_policy
from optim.solvers.solve import solvers_of
from optim.workloads.instances import GENERATED, GENERATED_PROBLEM, numbered, runs_of


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace(chr(10), ' ') for cell in line)} |" for line in lines) + "\n\n"


def told(lines: Iterable[str]) -> dict[str, str]:
    """Return the directive's lines by name; several names may share a line, `a, b: text`."""
    pairs = (line.split(":", maxsplit=1) for line in lines if line.strip())
    return {name.strip(): text.strip() for names, text in pairs for name in names.split(",")}


def option_rows(options: type[Any], defaults: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and meaning of each option."""
    known = option_meanings(options)
    for name, value in defaults.items():
        yield f"`{name}`", f"`{value}`".replace("|", r"\|"), known.get(name, "").replace("|", r"\|")


class GeneratedTable(SphinxDirective):
    """A table from the code, with notes from the page."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the parsed table, and warn of missing or unknown notes."""
        notes = told(self.content)
        names = self.names()
        for name in sorted(set(notes) ^ set(names) if notes else ()):
            kind = "no such name" if name in notes else "a line is missing"
            self.state.document.reporter.warning(f"{self.name}: {name}: {kind}", line=self.lineno)
        return self.parse_text_to_nodes(self.text(notes), allow_section_headings=True)

    def names(self) -> tuple[str, ...]:
        """Return the names that need notes."""
        return ()

    def text(self, notes: Mapping[str, str]) -> str:
        """Return the Markdown that stands in place of the directive."""
        raise NotImplementedError


class Solvers(GeneratedTable):
    """The solvers of a problem: what they do, what they prove, their options."""

    def names(self) -> tuple[str, ...]:
        """Return the solvers' names, in their order."""
        return tuple(solver.name for solver in solvers_of(self.arguments[0]))

    def text(self, notes: Mapping[str, str]) -> str:
        """Return the table of solvers and those of their options."""
        solvers = solvers_of(self.arguments[0])
        parts = [
            table(
                ("name", "what it does", "proves"),
                ((f"`{solver.name}`", solver.summary, notes.get(solver.name, "")) for solver in solvers),
            )
        ]
        for solver in solvers:
            defaults = describe_options(solver)
            if defaults:
                parts.append(f"Options of `{solver.name}`:\n\n")
                parts.append(table(("option", "default", "meaning"), option_rows(solver.options_type, defaults)))
        return "".join(parts)


class Policies(GeneratedTable):
    """The policies of a world: what they do, their sources and their options."""

    def text(self, notes: Mapping[str, str]) -> str:
        """Return the table of policies and that of their options."""
        del notes
        entries = policies_of(self.arguments[0])
        parts = [policy_table(self.arguments[0], entries)]
        rows = [
            (f"`{name}`" if not place else "", *row)
            for name, entry in entries.items()
            for place, row in enumerate(option_rows(entry.options_type, defaults_of(entry.options_type)))
        ]
        if rows:
            parts.append("Their options, as `--option NAME.OPTION=VALUE`:\n\n")
            parts.append(table(("policy", "option", "default", "meaning"), rows))
        return "".join(parts)


def policy_table(world: str, entries: Mapping[str, RegisteredPolicy]) -> str:
    """Return the table of policies; for a cluster with the information that a real scheduler lacks."""
    head, rows = ("name", "what it does", "source"), [(f"`{n}`", e.summary, e.source) for n, e in entries.items()]
    if world != "cluster":
        return table(head, rows)
    jobs = Workload(submit_us=np.zeros(1, int), gpus=np.ones(1, int), duration_us=np.ones(1, int))
    known = [str(getattr(make_policy(name, jobs), "needs", "")) for name in entries]
    return table(
        (*head, "knows, unlike a real scheduler"), [(*row, know) for row, know in zip(rows, known, strict=True)]
    )


def defaults_of(options: type[Any]) -> dict[str, Any]:
    """Return the defaults of a dataclass of options."""
    return {
        field.name: field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
        for field in named_fields(options)
        if field.default is not MISSING or field.default_factory is not MISSING
    }


def arguments_of(kind: type[Any]) -> dict[str, Any]:
    """Return the defaults of the arguments that make an object of a class."""
    arguments = inspect.signature(kind).parameters.values()
    return {each.name: each.default for each in arguments if each.default is not inspect.Parameter.empty}


class Commands(GeneratedTable):
    """What `--help` says of every command."""

    def text(self, notes: Mapping[str, str]) -> str:
        """Return one section per command, with its help text and options."""
        del notes
        return "".join(self._sections(typer.main.get_command(command_line), "optim"))

    def _sections(self, command: click.Command, path: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from self._sections(below, f"{path} {name}")
            return
        with click.Context(command, info_name=path) as context:
            yield f"## {path}\n\n{command.help or ''}\n\n"
            records = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
        rows = [(f"`{name}`", meaning.replace("|", r"\|").replace("<", "&lt;")) for name, meaning in records]
        yield table(("option", "meaning"), rows) if rows else ""


def named(path: str) -> Any:
    """Return the object of a dotted name."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


class Fields(GeneratedTable):
    """The fields of classes, from their docstrings; `but` leaves out fields, `bare` leaves out the defaults."""

    option_spec: ClassVar = {"but": str, "bare": directives.flag}

    def text(self, notes: Mapping[str, str]) -> str:
        """Return one table of all classes in the directive."""
        del notes
        kinds, hidden = [named(path) for path in self.arguments[0].split()], self.options.get("but", "").split()
        rows = [row for kind in kinds for row in self._rows(kind, hidden)]
        has_defaults = "bare" not in self.options and any(default for _, default, _ in rows)
        head = ("field", "default", "meaning") if has_defaults else ("field", "meaning")
        return table(head, (row if has_defaults else (row[0], row[2]) for row in rows))

    def _rows(self, kind: type[Any], hidden: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        defaults = defaults_of(kind) if is_dataclass(kind) else arguments_of(kind)
        for meaning, names in by_meaning(option_meanings(kind), hidden):
            values = [defaults.get(name) for name in names]
            shown = dict.fromkeys(
                as_default(value) for value in values if isinstance(value, str | int | float) and value != ""
            )
            yield ", ".join(f"`{name}`" for name in names), ", ".join(shown), as_cell(meaning)


def as_default(value: Any) -> str:
    """Return a default as a cell; large whole numbers in binary units or with separators."""
    if isinstance(value, int) and value >= MIB and value % MIB == 0:
        return f"{value // MIB:,} MiB"
    return f"`{value:,}`" if type(value) is int else f"`{value}`"


def by_meaning(meanings: Mapping[str, str], hidden: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each meaning with its fields; adjacent fields that share a text share a row."""
    rows: list[tuple[str, list[str]]] = []
    for name, meaning in meanings.items():
        if name not in hidden:
            if rows and rows[-1][0] == meaning:
                rows[-1][1].append(name)
            else:
                rows.append((meaning, [name]))
    yield from rows


def as_cell(text: str) -> str:
    """Return a docstring's text as a cell of a Markdown table."""
    return text.replace("``", "`").replace("|", r"\|")


class Format(GeneratedTable):
    """The fields of a problem's file format: `optim instance schema` as a table."""

    def text(self, notes: Mapping[str, str]) -> str:
        """Return one row per field, in the order in which the schema refers to them."""
        del notes
        schema = problem_named(self.arguments[0]).json_schema()
        rows = list(self._rows(dict(schema["$defs"]), schema, ""))
        for name in (field for field, _, meaning in rows if not meaning):
            self.state.document.reporter.warning(f"{self.name}: {name} has no description", line=self.lineno)
        return table(("field", "default", "meaning"), rows)

    def _rows(self, kinds: dict[str, Any], node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
        kind = kinds.pop(node["$ref"].rpartition("/")[2], None)
        below: list[tuple[Mapping[str, Any], str]] = []
        rows: list[tuple[list[str], list[str], str]] = []
        for name, field in kind["properties"].items() if kind else ():  # each object once
            many, inner = ("[]", field["items"]) if "items" in field else ("", field)
            parts = [part for part in inner.get("anyOf", [inner] if "$ref" in inner else ()) if "$ref" in part]
            below += [(part, f"{path}{name}{many}.") for part in parts]
            is_tag = name == "kind" and len(field.get("enum", ())) == 1
            told = (
                f"`{field['enum'][0]}`: {kind['description']}"
                if is_tag
                else field.get("description", "") + choices(field)
            )
            meaning = as_cell(told)
            default = field.get("default")
            shown = "" if default in (None, [], {}) else f"`{json.dumps(default).strip(chr(34))}`"
            if rows and rows[-1][2] == meaning:
                rows[-1][0].append(f"`{name}`")
                rows[-1][1].append(shown)
            else:
                rows.append(([f"`{path}{name}`"], [shown], meaning))
        for names, defaults, meaning in rows:
            yield ", ".join(names), ", ".join(dict.fromkeys(filter(None, defaults))), meaning
        for part, inner_path in below:
            yield from self._rows(kinds, part, inner_path)


def choices(field: Mapping[str, Any]) -> str:
    """Return the values of a closed choice unless the text names them all."""
    values = [f"`{value}`" for value in field.get("enum", ())]
    is_told = all(value in field.get("description", "") for value in values)
    return "" if is_told else f" {' or '.join(values)}."


class Summaries(GeneratedTable):
    """Purpose of modules, classes and functions: the docstring above its first section; of a module its first line."""

    def text(self, notes: Mapping[str, str]) -> str:
        """Return one row per dotted name; names after the first argument may be relative to it (`.name`)."""
        del notes
        first, *rest = self.arguments[0].split()
        paths = [f"{first}{path}" if path.startswith(".") else path for path in rest] if rest else [first]
        return table(("name", "meaning"), ((shown_name(path), as_cell(summary(path))) for path in paths))


def shown_name(path: str) -> str:
    """Return the name of an object; for a part of a document its kind, or its class in words."""
    name = path.rpartition(".")[2]
    config = getattr(getattr(import_module(path.rpartition(".")[0]), name, None), "__struct_config__", None)
    if config is None:
        return f"`{name}`"
    return (
        f'`"kind": "{config.tag}"`'
        if config.tag
        else re.sub("(?<!^)(?=[A-Z])", " ", name).lower().removesuffix(" document")
    )


def summary(path: str) -> str:
    """Return an object's docstring up to its first section, or a module's first line."""
    try:
        text = inspect.getdoc(named(path)) or ""
    except AttributeError:
        return (inspect.getdoc(import_module(path)) or "").partition("\n")[0]
    if inspect.ismodule(named(path)):
        return text.partition("\n")[0]
    told = " ".join(above_sections(text).split())
    fields = getattr(named(path), "__struct_fields__", ())
    return f"{told} Fields: {', '.join(f'`{field}`' for field in fields)}." if fields else told


class Docstring(GeneratedTable):
    """An object's docstring above its first section, as Markdown."""

    def text(self, notes: Mapping[str, str]) -> str:
        """Return the docstring's Markdown."""
        del notes
        return f"{above_sections(inspect.getdoc(named(self.arguments[0])) or '')}\n\n".replace("``", "`")


def above_sections(text: str) -> str:
    """Return the part of a docstring above its first section."""
    return re.split(r"\n\n[A-Z][a-z]+\n---", text)[0]


class Values(GeneratedTable):
    """The values of an enumeration, each with the docstring below it in the source."""

    def text(self, notes: Mapping[str, str]) -> str:
        """Return one row per value."""
        del notes
        kind = named(self.arguments[0])
        shown = {each.name: f"`{each.value}`{f' {each.name}' * issubclass(kind, int)}" for each in kind}
        rows = [(shown[name], as_cell(text)) for name, text in value_meanings(kind).items()]
        if len(rows) != len(kind):
            self.state.document.reporter.warning(f"{self.name}: a value has no docstring", line=self.lineno)
        return table(("value", "meaning"), rows)


def value_meanings(kind: type[Enum]) -> dict[str, str]:
    """Return the text below each member of an enumeration in the source."""
    [definition] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        assigned.targets[0].id: " ".join(str(text.value.value).split())
        for assigned, text in itertools.pairwise(definition.body)
        if isinstance(assigned, ast.Assign)
        and isinstance(assigned.targets[0], ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


class Instances(GeneratedTable):
    """The reference instances of a problem, and their sizes: names of statistics of `optim instance describe`."""

    def names(self) -> tuple[str, ...]:
        """Return the names, numbered ones as ranges."""
        return tuple(numbered(instance_sizes(self.arguments[0].split()[0])))

    def text(self, notes: Mapping[str, str]) -> str:
        """Return one row per name or range of names."""
        problem, *sizes = self.arguments[0].split()
        return instance_table(problem, sizes, notes)


@cache
def instance_sizes(problem: str) -> dict[str, Mapping[str, Any]]:
    """Return the statistics of each reference instance; only the sizes of those that are generated on demand."""
    found = {name: problem_named(problem).describe(reference_instance(name)) for name in reference_names(problem)}
    if problem == GENERATED_PROBLEM:
        for name, recipe in GENERATED.items():
            found[name] = {key.removeprefix("num_"): value for key, value in options_as_dict(recipe.options).items()}
    return found


def instance_table(problem: str, sizes: Iterable[str], notes: Mapping[str, str]) -> str:
    """Return one row per reference instance or range of them, with sizes and notes."""
    found = instance_sizes(problem)
    rows = []
    for run in runs_of(found):
        values = (dict.fromkeys(size_text(found[name].get(size)) for name in run) for size in sizes)
        ends = dict.fromkeys((run[0], run[-1]))
        rows.append((" to ".join(f"`{end}`" for end in ends), *(" or ".join(each) for each in values)))
    heads = (size.replace("_", " ").replace("ps ", "parameter ").replace("gpus", "GPUs") for size in sizes)
    told = (notes[shown] for shown in numbered(found))
    return table(("name", *heads, "description"), ((*row, note) for row, note in zip(rows, told, strict=True)))


def size_text(value: object) -> str:
    """Return a statistic as a cell, a dash for one that the instance lacks."""
    return f"{value:,}" if isinstance(value, int) else str(value or "-")


class Extras(GeneratedTable):
    """The optional dependencies that `pyproject.toml` lists."""

    PROJECT: ClassVar[Path] = Path(__file__).parents[2] / "pyproject.toml"

    def names(self) -> tuple[str, ...]:
        """Return the extras' names."""
        return tuple(tomllib.loads(self.PROJECT.read_text())["project"]["optional-dependencies"])

    def text(self, notes: Mapping[str, str]) -> str:
        """Return the table of extras."""
        return table(("extra", "what it brings"), ((f"`{name}`", notes.get(name, "")) for name in self.names()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("solvers", Solvers)
    app.add_directive("policies", Policies)
    app.add_directive("commands", Commands)
    app.add_directive("extras", Extras)
    app.add_directive("fields", Fields)
    app.add_directive("format", Format)
    app.add_directive("instances", Instances)
    app.add_directive("summaries", Summaries)
    app.add_directive("docstring", Docstring)
    app.add_directive("values", Values)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
