"""Data of the applications: generated, or read from a user's files.

Each type of application has one format (docs/training.md): plain text or gzip, up to the size limits of input files.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_in
from optim.core.files import read_bytes
from optim.core.limits import check_limit
from optim.training.application import Batch, DeviceApplication
from optim.training.messages import Vector
from optim.training.stages import bounds

MARKS = ("::", ",", ";", "\t")
"""Separators between the columns of ratings, besides whitespace."""

TableT = TypeVar("TableT")


def _read_once(parse: Callable[[str], TableT]) -> Callable[[str], TableT]:
    """Return a reader that parses each version of a file once; a file's last change identifies its version."""
    parsed = lru_cache(maxsize=2)(lambda path, changed_ns: parse(path))

    @wraps(parse)
    def read(path: str) -> TableT:
        try:
            changed_ns = Path(path).stat().st_mtime_ns
        except OSError as error:
            raise InvalidProblemError(f"{path}: {error.strerror or error}; name a file") from error
        return parsed(path, changed_ns)

    return read


def _lines(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the words of each line that is neither blank nor a comment."""
    try:
        text = read_bytes(Path(path)).decode()
    except UnicodeDecodeError as error:
        raise InvalidProblemError(f"{path}: not text in UTF-8 (byte {error.start}); convert it") from error
    lines = text.splitlines()
    check_limit("rows", len(lines), f"{path}: lines")
    for number, line in enumerate(lines, 1):
        cleaned = line.strip()
        for mark in MARKS:
            cleaned = cleaned.replace(mark, " ")
        if cleaned and not cleaned.startswith("#"):
            yield number, cleaned.split()


@_read_once
def read_ratings(path: str) -> tuple[IntArray, IntArray, Vector]:
    """Read ratings in lines ``user item rating``, as in MovieLens' files; further columns are ignored.

    Returns
    -------
    tuple
        Users and items, numbered from 0 in the order of their names, and ratings; sorted by user, then item.
    """
    users: list[str] = []
    items: list[str] = []
    values: list[float] = []
    for position, (number, words) in enumerate(_lines(path)):
        try:
            value = float(words[2])
        except (IndexError, ValueError) as error:
            if position == 0 and len(words) > 2 and not _is_number(words[0]):
                continue  # a header
            raise _wrong(path, number, "user item rating") from error
        if not np.isfinite(value):
            raise _wrong(path, number, "user item rating, with a finite rating")
        users.append(words[0])
        items.append(words[1])
        values.append(value)
    if not values:
        raise InvalidProblemError(f"{path}: no ratings; each line must be: user item rating")
    _, user = np.unique(np.array(users), return_inverse=True)
    _, item = np.unique(np.array(items), return_inverse=True)
    order = np.lexsort((item, user))
    return user[order], item[order], np.array(values, dtype=np.float32)[order]


@_read_once
def read_examples(path: str) -> tuple[Vector, IntArray]:
    """Read examples in libsvm's format: ``label index:value ...``, indices from 1.

    Returns
    -------
    tuple
        Values, shape (examples, features), and classes numbered from 0 in the order of their labels.
    """
    rows: list[tuple[float, dict[int, float]]] = []
    for number, words in _lines(path):
        try:
            pairs = {int(index): float(value) for index, _, value in (word.partition(":") for word in words[1:])}
            rows.append((float(words[0]), pairs))
        except ValueError as error:
            raise _wrong(path, number, "label index:value ...") from error
        if min(pairs, default=1) < 1 or not all(map(np.isfinite, [rows[-1][0], *pairs.values()])):
            raise _wrong(path, number, "label index:value ..., indices from 1 and finite values")
    if not rows:
        raise InvalidProblemError(f"{path}: no examples; each line must be: label index:value ...")
    width = max((max(pairs, default=1) for _, pairs in rows), default=1)
    check_limit("cells", len(rows) * width, f"{path}: examples times features")
    values = np.zeros((len(rows), width), dtype=np.float32)
    for row, (_, pairs) in enumerate(rows):
        values[row, [index - 1 for index in pairs]] = list(pairs.values())
    _, classes = np.unique([label for label, _ in rows], return_inverse=True)
    return values, classes


@_read_once
def read_bags(path: str) -> NDArray[np.float64]:
    """Read bags of words: three lines with the numbers of documents, words and pairs, then lines ``document word count``.

    Documents and words are numbered from 1.

    Returns
    -------
    ndarray
        Number of occurrences of each word in each document, shape (documents, words).
    """
    lines = list(_lines(path))
    expected = "document word count, after three lines with the numbers of documents, words and pairs"
    try:
        (documents,), (words,), (pairs,) = ([int(word) for word in line] for _, line in lines[:3])
    except ValueError as error:
        raise _wrong(path, lines[0][0] if lines else 1, expected) from error
    check_limit("cells", max(0, documents) * max(0, words), f"{path}: documents times words")
    if min(documents, words) < 1 or pairs != len(lines) - 3:
        raise InvalidProblemError(f"{path}: {len(lines) - 3} pairs, but the header states {pairs}; give {expected}")
    counts = np.zeros((documents, words))
    for number, entry in lines[3:]:
        try:
            document, word, count = map(int, entry)
        except ValueError as error:
            raise _wrong(path, number, expected) from error
        if not (1 <= document <= documents and 1 <= word <= words and count >= 1):
            raise _wrong(path, number, f"{expected}; documents up to {documents}, words up to {words}")
        counts[document - 1, word - 1] += count
    return counts


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _wrong(path: str, line: int, expected: str) -> InvalidProblemError:
    return InvalidProblemError(f"{path}, line {line}: expected {expected}; correct the line or remove it")


DataT = TypeVar("DataT")
MadeT = TypeVar("MadeT")

USUAL_PARTITIONS = 8


def partitions_of(num_examples: int, asked: int | None) -> int:
    """Return the requested number of partitions; by default eight, or the number of examples if that is smaller."""
    return max(1, min(USUAL_PARTITIONS, num_examples)) if asked is None else asked


@dataclass(frozen=True, kw_only=True)
class GeneratedApplication(DeviceApplication, Generic[DataT]):
    """An application whose data is generated from a seed, partition by partition.

    Parameters
    ----------
    num_partitions
        Number P of partitions of the data; it is fixed during a run.
    seed
        Seed of the data, the true model and the initial parameters.
    source
        File of custom data that replaces generated data; `from_file` reads the sizes from it.
    """

    num_partitions: int = USUAL_PARTITIONS
    seed: int = 0
    source: str = ""
    _made: dict[tuple[str, int], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, *(option.name for option in fields(self) if option.name.startswith("num_")))
        if self.num_partitions > self.num_examples:
            raise InvalidOptionError(
                f"{self.num_examples} examples can't be cut into {self.num_partitions} partitions; give more examples, or ask for fewer partitions"
            )

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Number of examples, to be divided among the partitions."""

    @abstractmethod
    def _make(self, partition: int, size: int, rng: np.random.Generator) -> DataT:
        """Draw the data of a partition."""

    @abstractmethod
    def _take(self, start: int, stop: int) -> DataT:
        """Return the examples from `start` to `stop` of the user's file."""

    def size(self, partition: int) -> int:
        """Return the number of examples of a partition."""
        start, stop = bounds(self.num_examples, self.num_partitions, partition)
        return stop - start

    def weight(self, partition: int) -> float:
        """Return the weight of a partition's gradient: its number of examples."""
        return float(self.size(partition))

    def data(self, partition: int) -> DataT:
        """Return a partition's data, generated or read on first use."""

        def make() -> DataT:
            if self.source:
                return self._take(*bounds(self.num_examples, self.num_partitions, partition))
            return self._make(partition, self.size(partition), np.random.default_rng([self.seed, 1, partition]))

        return self.once("data", partition, make)

    def partition(self, index: int) -> Batch:
        """Return a partition's data on the device, put there on first use."""
        import jax

        return self.once("batch", index, lambda: jax.device_put(self.arrays(index)))

    @abstractmethod
    def arrays(self, partition: int) -> Batch:
        """Return a partition's data as NumPy arrays, in the form of the batches of `loss`."""

    def once(self, name: str, partition: int, make: Callable[[], MadeT]) -> MadeT:
        """Return the value that `make` computes at the first call for a partition; other processes compute it again."""
        if (name, partition) not in self._made:
            self._made[name, partition] = make()
        made: MadeT = self._made[name, partition]
        return made

    def _model_rng(self) -> np.random.Generator:
        """Return the random generator for the data that all partitions share."""
        return np.random.default_rng([self.seed, 0])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}
