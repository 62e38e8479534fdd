"""Reading of YAML documents: plain values only, within limits, without aliases and tags."""

from pathlib import Path
from typing import Any

from optim.core.errors import InvalidProblemError
from optim.core.files import naming, read_bytes
from optim.core.limits import MIB
from optim.core.optional import import_extra

MAX_BYTES = MIB
"""Maximum size of a file: about 5,000 configuration objects, which take about ten seconds."""

MAX_DEPTH = 64
"""Maximum nesting of lists and mappings."""


def read_yaml(path: str | Path) -> list[Any]:
    """Return the non-empty documents of a YAML file.

    Aliases are errors, because a few nested aliases can expand to more values than memory holds. Python tags, duplicate
    keys, keys other than strings, and nesting deeper than `MAX_DEPTH` are errors as well.

    Raises
    ------
    InvalidProblemError
        If the file cannot be read, is larger than `MAX_BYTES`, or is not such YAML.
    MissingDependencyError
        If PyYAML is not installed.
    """
    yaml = import_extra("yaml", "reading YAML")
    data = read_bytes(path)
    if len(data) > MAX_BYTES:
        raise InvalidProblemError(
            f"{path}: the file has {len(data):,} bytes, but YAML files may have at most {MAX_BYTES:,}; split it"
        )

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent):
                raise InvalidProblemError(
                    f"line {event.start_mark.line + 1} has an alias, which is not supported; write the value out"
                )
            if self.depth >= MAX_DEPTH:
                raise InvalidProblemError(f"line {event.start_mark.line + 1} is nested deeper than {MAX_DEPTH} levels")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in node.value:
                where = f"line {key.start_mark.line + 1}"
                if not isinstance(key.value, str) or key.tag == "tag:yaml.org,2002:merge":
                    raise InvalidProblemError(f"{where} has a key that is not a string; write a plain name")
                if key.value in seen:
                    raise InvalidProblemError(f"{where}: {key.value[:40]!r} is given twice")
                seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    with naming(path):
        try:
            return [each for each in yaml.load_all(data, Loader) if each is not None]  # a safe loader
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"line {mark.line + 1}: " if mark is not None else ""
            said = " ".join(str(getattr(error, "problem", None) or error).split())[:100]
            raise InvalidProblemError(f"{where}not valid YAML ({said}); correct the file") from error
        except ValueError as error:
            if isinstance(error, InvalidProblemError):
                raise
            raise InvalidProblemError(f"a value cannot be read ({str(error)[:80]}); correct the file") from error
