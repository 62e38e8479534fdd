"""A walk over a proof's tree that needs room for one path alone: what a step down changes is taken back on the way up."""

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from optim.core.limits import Effort

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Descent(Generic[Key, Value]):
    """Nodes from the root on, children after their parents, the one that was added last first.

    Parameters
    ----------
    effort
        What the walk may take.
    heard
        Told of each key whose condition changes, with the new one, None where there is none any more.

    Attributes
    ----------
    conditions
        What holds at the present node, by key, in the order in which it was first said on the way there.
    """

    def __init__(self, effort: Effort, heard: Callable[[Key, Value | None], None] | None = None) -> None:
        self.conditions: dict[Key, Value] = {}
        self.effort = effort
        self._heard = heard
        self._waiting: list[tuple[int, int, tuple[Key, Callable[[Value | None], Value]] | None]] = [(0, 0, None)]
        self._before: list[tuple[Key, Value | None]] = []

    def add(self, child: int, key: Key, narrow: Callable[[Value | None], Value]) -> None:
        """Have a child of the present node visited, where `narrow` makes a key's condition of the present one."""
        self._waiting.append((child, len(self._before), (key, narrow)))

    def __iter__(self) -> Iterator[int]:
        """Yield numbers of nodes; `conditions` are theirs until the next one is asked for."""
        while self._waiting:
            number, depth, step = self._waiting.pop()
            self.effort.spend(1)
            while len(self._before) > depth:
                self._set(*self._before.pop())
            if step is not None:
                key, narrow = step
                before = self.conditions.get(key)
                self._before.append((key, before))
                self._set(key, narrow(before))
            yield number

    def _set(self, key: Key, value: Any) -> None:
        if value is None:
            del self.conditions[key]
        else:
            self.conditions[key] = value
        if self._heard is not None:
            self._heard(key, value)
