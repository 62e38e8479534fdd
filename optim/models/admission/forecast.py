"""Forecast for an operator: instances of earlier days, and the prices learned from them (``optim/forecast/1``)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from optim.core.arrays import ComparesByValue, FloatArray
from optim.core.documents import decode, encode, peek_schema
from optim.core.errors import InvalidProblemError
from optim.core.files import naming, read_bytes, write_bytes
from optim.models.admission.codec import SCHEMA as INSTANCE_SCHEMA
from optim.models.admission.codec import AdmissionDocument, document_from_instance
from optim.models.admission.instance import (
    AdmissionInstance,
    check_compatible_cluster,
    instance_from_document,
    merge_days,
)

SCHEMA = "optim/forecast/1"

MAX_PRICE = 1e100
"""Largest price of a unit; costs (sums of prices times demands) then stay finite."""


class ForecastDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A forecast; prices are lists over classes, slots and resources, utility per unit of the resource."""

    schema: str
    cluster: AdmissionDocument
    days: list[AdmissionDocument]
    fill: Annotated[float, msgspec.Meta(gt=0, le=1)]
    worker_price: list[list[list[float]]]
    ps_price: list[list[list[float]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast(ComparesByValue):
    """Prices learned from the instances of earlier days, together with these instances.

    Parameters
    ----------
    cluster
        Instance without jobs: the servers, slots and rules for which the prices hold.
    days
        Instances of the earlier days; their clusters may have other sizes.
    fill
        Share of each capacity that the LP may use, in (0, 1].
    worker_price, ps_price
        Shape (classes, slots, resources), utility per unit of the resource, >= 0. They are an optimal dual point
        of the packing LP of the jobs of all days, each job with weight 1 / days. Shared servers have worker
        prices only.

    Raises
    ------
    InvalidProblemError
        If prices are negative or not finite, their shape differs from the cluster's, or a day is incompatible
        with the cluster.
    """

    cluster: AdmissionInstance
    days: tuple[AdmissionInstance, ...]
    fill: float
    worker_price: FloatArray
    ps_price: FloatArray

    def __post_init__(self) -> None:
        if not self.days:
            raise InvalidProblemError("days must hold at least one day, got none; learn the forecast again")
        sides = {"worker_price": self.cluster.worker_servers, "ps_price": self.cluster.ps_servers}
        for name, servers in sides.items():
            prices = getattr(self, name)
            classes = 0 if name == "ps_price" and self.cluster.has_shared_servers else servers.num_classes
            shape = (classes, self.cluster.horizon, self.cluster.num_resources)
            if prices.shape != shape and not (prices.size == 0 and classes == 0):
                raise InvalidProblemError(
                    f"{name} must list classes, slots and resources of shape {shape}, got {prices.shape}; learn the forecast again"
                )
            if not ((prices >= 0) & (prices <= MAX_PRICE)).all():
                bad = prices[~((prices >= 0) & (prices <= MAX_PRICE))][0]
                raise InvalidProblemError(
                    f"{name} must hold finite prices of at least 0 and at most {MAX_PRICE:g}, got {bad}; learn the forecast again"
                )
        for day in self.days:
            check_compatible_cluster(day, self.cluster, f"day {day.name!r} of the forecast")

    @property
    def num_days(self) -> int:
        """Number of days from which the prices were learned."""
        return len(self.days)

    def save(self, path: str | Path) -> None:
        """Write the forecast as JSON; a name ending in ``.gz`` is compressed."""
        document = ForecastDocument(
            schema=SCHEMA,
            cluster=document_from_instance(self.cluster),
            days=[document_from_instance(day) for day in self.days],
            fill=self.fill,
            worker_price=self.worker_price.tolist(),
            ps_price=self.ps_price.tolist(),
        )
        write_bytes(path, encode(document))


def without_jobs(instance: AdmissionInstance) -> AdmissionInstance:
    """Return the instance without its jobs."""
    return replace(merge_days([], instance), name=instance.name)


def read_forecast(path: str | Path) -> Forecast:
    """Read a forecast.

    Raises
    ------
    InvalidProblemError
        If the file cannot be read, is not a forecast, or is inconsistent; the message names the file.
    """
    with naming(path):
        return _forecast(decode(read_bytes(path), ForecastDocument))


def is_forecast(path: str | Path) -> bool:
    """Return whether a file has the schema of a forecast.

    Raises
    ------
    InvalidProblemError
        If the file cannot be read or is not JSON; the message names the file.
    """
    with naming(path):
        return peek_schema(read_bytes(path)) == SCHEMA


def _forecast(document: ForecastDocument) -> Forecast:
    if document.schema != SCHEMA:
        raise InvalidProblemError(f"schema must be {SCHEMA!r}, got {document.schema!r}")
    return Forecast(
        cluster=_instance(document.cluster),
        days=tuple(_instance(day) for day in document.days),
        fill=document.fill,
        worker_price=_prices(document.worker_price, "worker_price"),
        ps_price=_prices(document.ps_price, "ps_price"),
    )


def _instance(document: AdmissionDocument) -> AdmissionInstance:
    if document.schema != INSTANCE_SCHEMA:
        raise InvalidProblemError(f"cluster and days must be {INSTANCE_SCHEMA!r}, got {document.schema!r}")
    return instance_from_document(document)


def _prices(lists: list[list[list[float]]], name: str) -> FloatArray:
    try:
        prices = np.array(lists, dtype=np.float64)
    except ValueError:
        raise InvalidProblemError(
            f"{name} must have one price per class, slot and resource, got lists of unequal lengths; learn the forecast again"
        ) from None
    return prices if prices.ndim == 3 else np.zeros((0, 0, 0))
