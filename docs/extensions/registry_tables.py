"""Tables of solvers, policies, commands and extras, made from the code that a reader would call.

What isn't in the code, such as what a solver proves, stands in the directive's lines, `name: text`; a solver
without a line, and a line without a solver, is a warning, which ends the build.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, ClassVar

import click
import numpy as np
import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from optim.cli.main import app as command_line
from optim.core.options import named_fields, option_meanings
from optim.core.policies import RegisteredPolicy, policies_of
from optim.core.registry import describe_options
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.solvers.solve import solvers_of


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

    def run(self) -> list[nodes.Node]:
        """Return the parsed table, and complain of notes that don't fit."""
        notes = told(self.content)
        names = self.names()
        for name in sorted(set(notes) ^ set(names) if notes else ()):
            kind = "no such name" if name in notes else "a line is missing"
            self.state.document.reporter.warning(f"{self.name}: {name}: {kind}", line=self.lineno)
        return self.parse_text_to_nodes(self.text(notes), allow_section_headings=True)

    def names(self) -> tuple[str, ...]:
        """Return what notes are due for."""
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


class Commands(GeneratedTable):
    """What `--help` says of every command."""

    def text(self, notes: Mapping[str, str]) -> str:
        """Return a section a command, with its own help text and its options."""
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
    return {"parallel_read_safe": True, "parallel_write_safe": True}
