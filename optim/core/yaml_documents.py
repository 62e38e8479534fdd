"""YAML documents in: plain values only, within limits, without the constructs by which a small file grows large."""

from pathlib import Path
from typing import Any

from optim.core.errors import InvalidProblemError
from optim.core.files import naming, read_bytes
from optim.core.limits import MIB
from optim.core.optional import import_extra

MAX_BYTES = MIB
"""Of a file: some 5,000 objects of a configuration, and some ten seconds."""

MAX_DEPTH = 64
"""Lists and mappings in each other."""


def read_yaml(path: str | Path) -> list[Any]:
    """Return the documents of a YAML file, empty ones left out.

    Aliases are refused, since few of them in each other describe more values than memory holds; so are tags of Python's, keys that
    come twice or are no texts, and nesting deeper than `MAX_DEPTH`.

    Raises
    ------
    InvalidProblemError
        If the file can't be read, is larger than `MAX_BYTES`, or isn't such YAML.
    MissingDependencyError
        If PyYAML isn't installed.
    """
    yaml = import_extra("yaml", "reading YAML")
    data = read_bytes(path)
    if len(data) > MAX_BYTES:
        raise InvalidProblemError(
            f"{path}: it has {len(data):,} bytes, and YAML of at most {MAX_BYTES:,} is read; split it"
        )

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent):
                raise InvalidProblemError(
                    f"line {event.start_mark.line + 1} has an alias, which isn't read; write the value out"
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
                    raise InvalidProblemError(f"{where} has a key that is no text; write a plain name")
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
            raise InvalidProblemError(f"{where}no YAML ({said}); mend it") from error
        except ValueError as error:
            if isinstance(error, InvalidProblemError):
                raise
            raise InvalidProblemError(f"a value in it can't be read ({str(error)[:80]}); mend it") from error
