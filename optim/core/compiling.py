"""Whether this process is compiling a loop just now: first use takes its time, and progress says why."""


class Compiling:
    """What is being compiled, innermost last, and how many loops have been."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self.done = 0

    @property
    def name(self) -> str | None:
        """The loop that is compiled now, None if none is."""
        names = self._names[-1:]  # a copy: another thread may end the loop meanwhile
        return names[0] if names else None

    def begin(self, name: str) -> None:
        """Note that a loop is compiled from now on."""
        self._names.append(name)

    def end(self, name: str) -> None:
        """Note that a loop is compiled; those begun within it and never ended, for they failed, are forgotten."""
        if name in self._names:
            del self._names[len(self._names) - 1 - self._names[::-1].index(name) :]
            self.done += 1


COMPILING = Compiling()
"""Of this process."""
