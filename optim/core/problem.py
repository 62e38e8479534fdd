"""What a problem is to the rest of the library: a name, a file format, and a checker."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from optim.core.solution import Solution
from optim.core.status import Sense
from optim.core.verification import Verification

InstanceT = TypeVar("InstanceT")


class AbstractProblem(ABC, Generic[InstanceT]):
    """One problem's border: how its files are read and written, how its solutions are checked."""

    name: ClassVar[str]
    schema: ClassVar[str]
    sense: ClassVar[Sense]
    instance_type: ClassVar[type[Any]]

    @abstractmethod
    def read_instance(self, data: bytes) -> InstanceT:
        """Parse and validate a JSON document.

        Raises
        ------
        InvalidProblemError
            With the path of the bad field, its value and the remedy.
        """

    @abstractmethod
    def write_instance(self, instance: InstanceT) -> bytes:
        """Return the JSON document of an instance; reading it back gives equal data."""

    @abstractmethod
    def json_schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of the file format."""

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

    @abstractmethod
    def load(self, instance: InstanceT, decision: Any) -> Mapping[str, Any]:
        """Return figures that tell how loaded the instance is under a decision."""
