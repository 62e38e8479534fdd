"""What a problem is to the rest of the library: a name, a file format, and a checker."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from optim.core.documents import decode, encode, json_schema
from optim.core.errors import InvalidProblemError
from optim.core.solution import Solution
from optim.core.status import Sense
from optim.core.verification import Verification

InstanceT = TypeVar("InstanceT")


class AbstractProblem(ABC, Generic[InstanceT]):
    """One problem's border: how its files are read and written, how its solutions are checked.

    Attributes
    ----------
    name, schema, sense
        Name, schema of its files, and what is done with its objective.
    instance_type, document_type
        An instance, and what a file of one may hold.
    """

    name: ClassVar[str]
    schema: ClassVar[str]
    sense: ClassVar[Sense]
    instance_type: ClassVar[type[Any]]
    document_type: ClassVar[type[Any]]

    def read_instance(self, data: bytes) -> InstanceT:
        """Parse and validate a JSON document.

        Raises
        ------
        InvalidProblemError
            With the path of the bad field, its value and the remedy.
        """
        document = decode(data, self.document_type)
        if document.schema != self.schema:
            raise InvalidProblemError(f"schema must be {self.schema!r}, got {document.schema!r}")
        return self.instance_from_document(document)

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
        """Recompute every claim of a solution from the instance alone."""

    @abstractmethod
    def describe(self, instance: InstanceT) -> Mapping[str, Any]:
        """Return figures that tell what an instance is like, in the order they are shown."""

    def remarks(self, instance: InstanceT) -> tuple[str, Mapping[str, float]]:
        """Return what every answer should say of an instance, as a sentence and as counts; nothing by default."""
        del instance
        return "", {}

    @abstractmethod
    def decision_figures(self, instance: InstanceT, decision: Any) -> Mapping[str, Any]:
        """Return figures that tell how loaded the instance is under a decision."""
