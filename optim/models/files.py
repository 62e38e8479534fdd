"""Instances and solutions as files: `load`, `save`, `load_solution`, `save_solution`."""

from numbers import Real
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec
from msgspec.structs import asdict as fields_of

from optim.core.documents import collector_paused, decode, encode, peek_schema
from optim.core.errors import InvalidProblemError
from optim.core.files import naming, read_bytes, write_bytes
from optim.core.solution import (
    Certificate,
    CertificateKind,
    PointStatus,
    Sense,
    Solution,
    Stats,
    Termination,
    Verification,
)
from optim.models.catalogue import problem_named, problem_of, problem_of_schema

InstanceT = TypeVar("InstanceT")

SOLUTION_SCHEMA = "optim/solution/1"

PLAIN = (
    *("problem", "instance", "solver", "sense", "termination", "primal", "dual", "objective", "bound"),
    *("seed", "options", "versions", "message"),
)
"""Fields that a solution file stores unchanged."""


class CertificateDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A certificate; the form of the proof depends on the problem."""

    kind: CertificateKind
    statement: str
    proof: Any = None
    conditions: list[str] = []


class StatsDocument(msgspec.Struct, forbid_unknown_fields=True):
    """Resources used by a solve."""

    seconds: dict[str, float] = {}
    iterations: int = 0
    memory_mb: float | None = None
    decision_ms: list[float] = []
    counts: dict[str, float] = {}


class SolutionDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The file format ``optim/solution/1``."""

    schema: str
    problem: str
    instance: str
    solver: str
    sense: Sense
    termination: Termination
    primal: PointStatus
    dual: PointStatus
    objective: float | None
    bound: float | None
    gap: float | None
    decision: Any
    certificate: CertificateDocument | None
    seed: int
    options: dict[str, Any]
    stats: StatsDocument
    versions: dict[str, str]
    message: str = ""


@overload
def load(path: str | Path) -> Any: ...
@overload
def load(path: str | Path, kind: type[InstanceT]) -> InstanceT: ...
def load(path: str | Path, kind: type[Any] | None = None) -> Any:
    """Read an instance of any problem from a JSON file, plain or gzip.

    Parameters
    ----------
    path
        The file.
    kind
        Expected type, such as `optim.AdmissionInstance`; type checkers infer the return type from it.

    Raises
    ------
    InvalidProblemError
        If the file can't be read, is truncated, violates its schema, or holds another type of instance; the message
        names the field.

    Examples
    --------
    >>> import optim, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny-0.json.gz"
    >>> optim.save(optim.reference_instance("tiny-0"), path)
    >>> optim.load(path, optim.AdmissionInstance).name
    'tiny-0'
    """
    with naming(path):
        return of_kind(read_instance(read_bytes(path)), kind)


def of_kind(instance: Any, kind: type[Any] | None) -> Any:
    """Return an instance if it has the expected type, or if no type is expected.

    Raises
    ------
    InvalidProblemError
        If it has another type.
    """
    if kind is None or isinstance(instance, kind):
        return instance
    raise InvalidProblemError(
        f"{instance.name!r} is of type {type(instance).__name__}, not {kind.__name__}; load it as its own type"
    )


def save(instance: Any, path: str | Path) -> None:
    """Write an instance to a JSON file; a name ending in ``.gz`` is compressed.

    Raises
    ------
    InvalidProblemError
        If the file can't be written.

    Examples
    --------
    >>> import optim, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny-0.json"
    >>> optim.save(optim.reference_instance("tiny-0"), path)
    >>> optim.load(path).num_jobs
    6
    """
    write_bytes(path, problem_of(instance).write_instance(instance))


def load_solution(path: str | Path, instance: Any) -> Solution:
    """Read a solution of `instance`.

    Raises
    ------
    InvalidProblemError
        If the file can't be read or doesn't fit the instance.

    Examples
    --------
    >>> import optim, pathlib, tempfile
    >>> instance = optim.reference_instance("tiny-0")
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "solution.json"
    >>> optim.save_solution(optim.reference_solution("tiny-0"), instance, path)
    >>> optim.load_solution(path, instance).termination.value
    'optimal'
    """
    with naming(path):
        return read_solution(read_bytes(path), instance)


def read_instance(data: bytes) -> Any:
    """Build an instance of any problem from the bytes of a document."""
    return problem_of_schema(peek_schema(data)).read_instance(data)


def save_solution(solution: Solution, instance: Any, path: str | Path) -> None:
    """Write a solution of `instance` to a JSON file; a name ending in ``.gz`` is compressed.

    Raises
    ------
    InvalidProblemError
        If the file can't be written.

    Examples
    --------
    >>> import optim, pathlib, tempfile
    >>> instance = optim.reference_instance("tiny-0")
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "solution.json.gz"
    >>> optim.save_solution(optim.solve(instance, "online"), instance, path)
    >>> optim.verify(instance, optim.load_solution(path, instance)).is_ok
    True
    """
    write_bytes(path, write_solution(solution, instance))


@collector_paused()
def read_solution(data: bytes, instance: Any) -> Solution:
    """Build a solution from the bytes of a document."""
    schema = peek_schema(data)  # checked first, so that an instance file isn't reported to have unknown fields
    if schema != SOLUTION_SCHEMA:
        raise InvalidProblemError(f"schema: must be {SOLUTION_SCHEMA!r}, got {schema!r}; give a solution file")
    document = decode(data, SolutionDocument)
    problem = problem_named(document.problem)
    if not isinstance(instance, problem.instance_type):
        raise InvalidProblemError(
            f"problem: the solution is for problem {document.problem!r}, but the instance is for another problem"
        )
    certificate, decision = document.certificate, document.decision
    return Solution(
        **{name: getattr(document, name) for name in PLAIN}
        | {"options": {name: _as_tuples(value) for name, value in document.options.items()}},
        decision=None if decision is None else problem.decision_from_json(instance, decision),
        certificate=None
        if certificate is None
        else Certificate(
            kind=certificate.kind,
            statement=certificate.statement,
            proof=None if certificate.proof is None else problem.proof_from_json(instance, certificate.proof),
            conditions=tuple(certificate.conditions),
        ),
        stats=Stats(**fields_of(document.stats) | {"decision_ms": tuple(document.stats.decision_ms)}),
        stated={"gap": document.gap},
    )


def _as_tuples(value: Any) -> Any:
    """Return a file's option in the form of solver options: lists become tuples."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def write_solution(solution: Solution, instance: Any) -> bytes:
    """Return the document of a solution as bytes."""
    problem = problem_of(instance)
    certificate, decision, stats = solution.certificate, solution.decision, solution.stats
    return encode(
        SolutionDocument(
            **{name: getattr(solution, name) for name in PLAIN}
            | {"options": dict(solution.options), "versions": dict(solution.versions)},
            schema=SOLUTION_SCHEMA,
            gap=solution.gap,
            decision=None if decision is None else problem.decision_to_json(instance, decision),
            certificate=None
            if certificate is None
            else CertificateDocument(
                kind=certificate.kind,
                statement=certificate.statement,
                proof=None if certificate.proof is None else problem.proof_to_json(instance, certificate.proof),
                conditions=list(certificate.conditions),
            ),
            stats=StatsDocument(
                seconds=dict(stats.seconds),
                iterations=stats.iterations,
                memory_mb=stats.memory_mb,
                decision_ms=list(stats.decision_ms),
                counts=dict(stats.counts),
            ),
        )
    )


@collector_paused()
def verify(instance: Any, solution: Solution) -> Verification:
    """Check a solution with code that shares nothing with any solver.

    Integer decisions are checked row by row in exact arithmetic. Objective and bound are recomputed from the
    instance alone, rounded outward. Every violated row is listed with its amount.

    Examples
    --------
    >>> import optim
    >>> instance = optim.reference_instance("tiny-0")
    >>> optim.verify(instance, optim.solve(instance, solver="online")).is_ok
    True

    Raises
    ------
    InvalidProblemError
        If `solution` is not a `Solution` (such as a decision alone), or its objective or bound is not a number.
    """
    problem = problem_of(instance)
    if not isinstance(solution, Solution):
        raise InvalidProblemError(
            f"verify takes a Solution, got {type(solution).__name__}; "
            "give the result of optim.solve or optim.load_solution, not its decision alone"
        )
    for name in ("objective", "bound"):
        value = getattr(solution, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InvalidProblemError(f"a solution's {name} must be a number or None, got {value!r}")
    return problem.verify(instance, solution)
