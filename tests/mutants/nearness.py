"""Which tests are near a module: its own, its folder's, and the others by how many imports away they are."""

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from tests.architecture.import_lines import import_lines

UNCOUNTED = ("tests/mutants/", "tests/architecture/", "tests/packaging/")
"""They judge the tree, not what it computes."""
NEAR_IMPORTS = 2


def imports_of(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, names out of modules included."""
    for _, module, names in import_lines(source):
        if not module.startswith("."):
            yield module
            yield from (f"{module}.{name}" for name in names)


class Nearness:
    """The imports of a working tree."""

    def __init__(self, root: Path):
        self.root = root

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """Who imports a module: paths by path."""
        paths = {
            path.relative_to(self.root).with_suffix("").as_posix().removesuffix("/__init__").replace("/", "."): path
            for folder in ("optim", "tests")
            for path in (self.root / folder).rglob("*.py")
        }
        found: dict[str, set[str]] = {}
        for path in paths.values():
            for name in imports_of(path.read_text()):
                if name in paths:
                    found.setdefault(self._name(paths[name]), set()).add(self._name(path))
        return found

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    @cached_property
    def tests(self) -> list[str]:
        """Every test file."""
        found = sorted(self._name(path) for path in (self.root / "tests").rglob("test_*.py"))
        return [name for name in found if not name.startswith(UNCOUNTED)]

    def distances(self, path: str, most: float = math.inf) -> dict[str, int]:
        """Return who needs a module, and over how many imports, up to some."""
        found = {path: 0}
        waiting = [path]
        for one in waiting:
            if found[one] >= most:
                break
            for importer in sorted(self.importers.get(one, ())):
                if importer not in found:
                    found[importer] = found[one] + 1
                    waiting.append(importer)
        return found

    def stages(self, path: str) -> list[list[str]]:
        """Return the test files of a module, of its folder, of those that import it soon, and all others."""
        folder = Path("tests", *Path(path).parts[1:-1])
        own = [name for name in self.tests if name == f"{folder}/test_{Path(path).name}"]
        distances = self.distances(path)
        far = len(distances)
        rest = sorted((name for name in self.tests if name not in own), key=lambda name: distances.get(name, far))
        beside = [name for name in rest if Path(name).parent == folder]
        near = [name for name in rest if name not in beside and distances.get(name, far) <= NEAR_IMPORTS]
        return [own, beside, near, [name for name in rest if name not in beside and name not in near]]
