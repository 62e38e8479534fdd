"""What applications on generated data have in common: sizes, partitions, and data that is made where it is needed."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.training.messages import Vector
from optim.training.partitions import bounds

DataT = TypeVar("DataT")


USUAL_PARTITIONS = 8


def partitions_of(num_examples: int, asked: int | None) -> int:
    """Return as many partitions as are asked for: by default eight, or one an example where there are fewer."""
    return max(1, min(USUAL_PARTITIONS, num_examples)) if asked is None else asked


@dataclass(frozen=True, kw_only=True)
class GeneratedApplication(ABC, Generic[DataT]):
    """An application whose data follows from a seed, partition by partition.

    Parameters
    ----------
    num_partitions
        P, pieces that the data is cut into for good.
    seed
        What data, model and start are drawn from.
    source
        A file of data of one's own, in place of drawn data; `from_file` takes the sizes from it.
    """

    num_partitions: int = USUAL_PARTITIONS
    seed: int = 0
    source: str = ""
    _data: dict[int, DataT] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_in("[1, inf)", self, *(option.name for option in fields(self) if option.name.startswith("num_")))
        if self.num_partitions > self.num_examples:
            raise InvalidOptionError(
                f"{self.num_examples} examples can't be cut into {self.num_partitions} partitions; give more examples, or ask for fewer partitions"
            )

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Number of things that are dealt out to partitions."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Length of the flat vector of parameters."""

    @abstractmethod
    def initial_parameters(self) -> Vector:
        """Return the parameters before the first clock."""

    @abstractmethod
    def gradient(self, parameters: Vector, partition: int, clock: int) -> tuple[Vector, float]:
        """Return the mean gradient over the partition and its summed loss."""

    @abstractmethod
    def _make(self, partition: int, size: int, rng: np.random.Generator) -> DataT:
        """Draw the data of a partition."""

    @abstractmethod
    def _take(self, start: int, stop: int) -> DataT:
        """Return examples of the user's file."""

    def size(self, partition: int) -> int:
        """Return how many examples a partition has."""
        start, stop = bounds(self.num_examples, self.num_partitions, partition)
        return stop - start

    def weight(self, partition: int) -> float:
        """Return how much data stands behind a partition's gradient."""
        return float(self.size(partition))

    def data(self, partition: int) -> DataT:
        """Return a partition's data, made or read on first use."""
        if partition not in self._data and self.source:
            self._data[partition] = self._take(*bounds(self.num_examples, self.num_partitions, partition))
        elif partition not in self._data:
            rng = np.random.default_rng([self.seed, 1, partition])
            self._data[partition] = self._make(partition, self.size(partition), rng)
        return self._data[partition]

    def _model_rng(self) -> np.random.Generator:
        """Return the stream of what all partitions share."""
        return np.random.default_rng([self.seed, 0])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": {}}
