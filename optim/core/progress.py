"""A seam through which long work tells how far it is; silent unless somebody listens."""

from collections.abc import Mapping
from typing import Protocol


class Progress(Protocol):
    """Receive news of a running solve. Implementations must be quick."""

    def start(self, task: str, total: float | None = None) -> None:
        """Begin a task of `total` steps, or of unknown length."""
        ...

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Report steps done so far, with figures worth showing (objective, bound, gap)."""
        ...

    def finish(self) -> None:
        """End the present task."""
        ...


class SilentProgress:
    """Say nothing: the default of the library and of pipes."""

    def start(self, task: str, total: float | None = None) -> None:
        """Ignore the news."""

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Ignore the news."""

    def finish(self) -> None:
        """Ignore the news."""
