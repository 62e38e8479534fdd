"""Interfaces of problems and solvers, and the registry of solvers by problem and name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from optim.core.documents import convert, decode, encode, json_schema, peek_schema
from optim.core.errors import (
    InvalidOptionError,
    InvalidProblemError,
    NotAllowedError,
    UnsupportedProblemError,
    unknown_name,
)
from optim.core.optional import load_plugins, note_registration
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.solution import Sense, Solution, Verification
from optim.core.stopping import StoppingCriterion

InstanceT = TypeVar("InstanceT")


class AbstractProblem(ABC, Generic[InstanceT]):
    """A problem: serialisation of its instances, and verification of its solutions.

    Attributes
    ----------
    name, schema, sense
        Name, schema of its files, and direction of its objective.
    instance_type, document_type
        Type of an instance, and type of its JSON document.
    earlier_schemas
        Schemas of earlier releases that are still read; `upgraded` converts their documents.
    """

    name: ClassVar[str]
    schema: ClassVar[str]
    sense: ClassVar[Sense]
    instance_type: ClassVar[type[Any]]
    document_type: ClassVar[type[Any]]
    earlier_schemas: ClassVar[tuple[str, ...]] = ()

    def read_instance(self, data: bytes) -> InstanceT:
        """Parse and validate a JSON document.

        Raises
        ------
        InvalidProblemError
            If the document is invalid; the message has the path of the field, its value and the correction.
        """
        schema = peek_schema(data) if self.earlier_schemas else self.schema
        if schema in self.earlier_schemas:
            document = convert(self.upgraded(decode(data, dict[str, Any])), self.document_type, "document")
        else:
            document = decode(data, self.document_type)
        if document.schema != self.schema:
            raise InvalidProblemError(f"schema must be {self.schema!r}, got {document.schema!r}")
        return self.instance_from_document(document)

    def upgraded(self, document: dict[str, Any]) -> dict[str, Any]:
        """Convert a document of an earlier schema to the current schema."""
        raise NotImplementedError(f"{self.name!r} has earlier schemas, but does not implement `upgraded`")

    def write_instance(self, instance: InstanceT) -> bytes:
        """Return the JSON document of an instance; reading it back gives equal data."""
        return encode(self.document_from_instance(instance))

    def json_schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of the file format."""
        return json_schema(self.document_type, self.schema)

    @abstractmethod
    def instance_from_document(self, document: Any) -> InstanceT:
        """Build a validated instance."""

    @abstractmethod
    def document_from_instance(self, instance: InstanceT) -> Any:
        """Return the document of an instance."""

    @abstractmethod
    def decision_to_json(self, instance: InstanceT, decision: Any) -> Any:
        """Return a decision as plain JSON values."""

    @abstractmethod
    def decision_from_json(self, instance: InstanceT, data: Any) -> Any:
        """Build a decision from plain JSON values."""

    @abstractmethod
    def proof_to_json(self, instance: InstanceT, proof: Any) -> Any:
        """Return a proof as plain JSON values."""

    @abstractmethod
    def proof_from_json(self, instance: InstanceT, data: Any) -> Any:
        """Build a proof from plain JSON values."""

    @abstractmethod
    def verify(self, instance: InstanceT, solution: Solution) -> Verification:
        """Recompute every claim of a solution from the instance."""

    @abstractmethod
    def describe(self, instance: InstanceT) -> Mapping[str, Any]:
        """Return summary statistics of an instance, in the order of display."""

    def programme(self, instance: InstanceT) -> Any:
        """Return the formal programme as a Pyomo model, for export to other solvers; the default raises."""
        raise UnsupportedProblemError(f"{type(instance).__name__} has no formal programme to export")

    def parametric_programme(self, instance: InstanceT, ratio: float) -> Any:
        """Return a Pyomo model that decides whether the objective, if it is a ratio, can be below `ratio`; the default raises."""
        del instance
        raise InvalidOptionError(
            f"ratio={ratio} applies only to objectives that are a ratio, not to {self.name!r}; omit it"
        )

    def remarks(self, instance: InstanceT) -> tuple[str, Mapping[str, float]]:
        """Return a remark on the instance that belongs in all its solutions, as a sentence and as counts; default: empty."""
        del instance
        return "", {}

    @abstractmethod
    def decision_figures(self, instance: InstanceT, decision: Any) -> Mapping[str, Any]:
        """Return statistics of the load that a decision puts on the instance."""


ENTRY_POINT_GROUP = "optim.solvers"


@dataclass(frozen=True, slots=True)
class Support:
    """Whether a solver supports an instance (default: False), and the reason if not."""

    is_supported: bool = False
    reason: str = "the solver does not declare support for this instance"

    def __bool__(self) -> bool:
        return self.is_supported


SUPPORTED = Support(True, "")


class Solver(Protocol):
    """Interface of a solver: name, options, supported instances, and the method that solves."""

    name: str
    problem: str
    summary: str
    options_type: type[Any]

    def supports(self, instance: Any) -> Support:
        """Return whether the solver supports the instance, and the reason if not."""
        ...

    def solve(
        self,
        instance: Any,
        *,
        options: Any,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Solve the instance; failures become statuses, and only wrong use raises."""
        ...


SolverT = TypeVar("SolverT", bound=type[Any])
KeyT = TypeVar("KeyT", str, tuple[str, str])
ItemT = TypeVar("ItemT")


def check_solver_type(kind: Any) -> None:
    """Raise InvalidOptionError if a solver class lacks `summary` or `options_type`."""
    if not isinstance(getattr(kind, "summary", None), str):
        raise InvalidOptionError(f"{kind.__name__} lacks summary; set it to a few words on what the solver does")
    if not isinstance(getattr(kind, "options_type", None), type):
        raise InvalidOptionError(f"{kind.__name__} lacks options_type; set it to the dataclass of the solver's options")


class Registry(Generic[KeyT, ItemT]):
    """A table by key that other packages extend through an entry-point group.

    Parameters
    ----------
    group
        The entry-point group; its modules are imported at the first read of the table, and register their items.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._items: dict[KeyT, ItemT] = {}
        self._is_complete = False

    def _check_free(self, key: KeyT, label: str) -> None:
        if key in self._items:
            raise NotAllowedError(f"{label} is registered twice; choose another name")

    def _import_shipped(self) -> None:
        """Import the modules of this package that register items; by default, other code imports them."""

    def _complete(self) -> None:
        """Import this package's modules and the plug-ins once."""
        if not self._is_complete:
            self._is_complete = True
            self._import_shipped()
            load_plugins(self._group)

    def __iter__(self) -> Iterator[ItemT]:
        self._complete()
        yield from (self._items[key] for key in sorted(self._items))


class SolverRegistry(Registry[tuple[str, str], Solver]):
    """The registered solvers by (problem, name)."""

    def __init__(self) -> None:
        super().__init__(ENTRY_POINT_GROUP)

    def register(self, name: str, *, problem: str) -> Callable[[SolverT], SolverT]:
        """Register a solver class under `name`; use as a decorator in the solver's file.

        Raises
        ------
        NotAllowedError
            If the name is taken.
        InvalidOptionError
            If the class lacks its `summary` or `options_type`.
        """

        def decorate(solver_type: SolverT) -> SolverT:
            label = f"solver {name!r} for {problem!r}"
            self._check_free((problem, name), label)
            check_solver_type(solver_type)
            solver_type.name, solver_type.problem = name, problem
            self._items[problem, name] = solver_type()
            if solver_type.__module__.partition(".")[0] != __name__.partition(".")[0]:
                note_registration(label)
            return solver_type

        return decorate

    def get(self, problem: str, name: str) -> Solver:
        """Return the solver `name` of `problem`.

        Raises
        ------
        InvalidOptionError
            If the name is unknown; the message lists the known names.
        """
        known = {solver.name: solver for solver in self.of_problem(problem)}
        if name not in known:
            raise unknown_name(f"solver of {problem}", name, known)
        return known[name]

    def of_problem(self, problem: str) -> tuple[Solver, ...]:
        """Return all solvers of a problem, sorted by name."""
        return tuple(solver for solver in self if solver.problem == problem)


REGISTRY = SolverRegistry()
"""The registry of this process; solving does not change it."""

register = REGISTRY.register


def describe_options(solver: Solver) -> Mapping[str, Any]:
    """Return the defaults of a solver's options by name."""
    return options_as_dict(solver.options_type())
