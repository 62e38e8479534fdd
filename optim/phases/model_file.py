"""Models on disk: an .npz archive of plain arrays, one of them a JSON header."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.archives import Arrays, read_arrays, write_arrays
from optim.core.errors import InvalidProblemError, OptimError
from optim.models.containers.series import Resource
from optim.phases.anomaly import LinearForecast
from optim.phases.clustering import CountRow
from optim.phases.drift import Calibration
from optim.phases.encoders import make_encoder
from optim.phases.runs import PhaseRuns
from optim.phases.scaling import Scaling
from optim.phases.statistics import PhaseStatistics

if TYPE_CHECKING:
    from optim.phases.model import PhaseModel

SCHEMA = "optim/phase-model/1"
REMEDY = "write one with 'optim phases fit --out FILE'"
DAMAGES = (ArithmeticError, AttributeError, LookupError, MemoryError, OptimError, RecursionError, TypeError, ValueError)
"""What arrays of other forms make the parts of a model raise."""

PARTS: Mapping[str, tuple[str, type[Any]]] = MappingProxyType(
    {
        "scaling": ("scaling_", Scaling),
        "linear": ("linear_forecast_", LinearForecast),
        "runs": ("runs_", PhaseRuns),
        "statistics": ("statistics_", PhaseStatistics),
    }
)
"""Attributes that are dataclasses of arrays, by what their arrays' names begin with."""


def save_model(model: "PhaseModel", path: str | Path) -> None:
    """Write a fitted model; equal models give equal files."""
    header = {
        "schema": SCHEMA,
        "parameters": model.get_params(),
        "resources": [asdict(resource) for resource in model.resources_],
        "names": model.names_,
        "order": model.order_,
        "order_likelihoods": model.order_likelihoods_,
        "count_rows": [asdict(row) for row in model.count_rows_],
        "calibrations": {kind: asdict(found) for kind, found in model.calibrations_.items()},
    }
    arrays: Arrays = {
        "header": np.frombuffer(json.dumps(header, sort_keys=True, default=list).encode(), dtype=np.uint8),
        "centres": model.centres_,
        "weights": model.weights_,
        **_prefixed("encoder", model.encoder_.arrays()),
    }
    for prefix, (attribute, _) in PARTS.items():
        arrays |= _prefixed(prefix, asdict(getattr(model, attribute)))
    write_arrays(path, arrays)


def load_model(path: str | Path) -> "PhaseModel":
    """Read a model.

    Raises
    ------
    InvalidProblemError
        If the file isn't one, or holds anything but plain arrays.
    """
    from optim.phases.model import PhaseModel

    try:
        arrays = read_arrays(path, "a phase model", REMEDY)
        header = _header(path, arrays)
        model = PhaseModel(**header["parameters"])
        model.resources_ = tuple(Resource(**resource) for resource in header["resources"])
        model.names_ = tuple(header["names"])
        model.order_ = header["order"]
        model.order_likelihoods_ = tuple(header["order_likelihoods"])
        model.count_rows_ = tuple(CountRow(**row) for row in header["count_rows"])
        model.calibrations_ = {kind: Calibration(**found) for kind, found in header["calibrations"].items()}
        model.centres_, model.weights_ = arrays["centres"], arrays["weights"]
        model.encoder_ = make_encoder(model.encoder, model.encoder_options).restore(_part(arrays, "encoder"))
        for prefix, (attribute, kind) in PARTS.items():
            setattr(model, attribute, kind(**_part(arrays, prefix)))
    except InvalidProblemError:
        raise
    except DAMAGES as error:
        said = " ".join(str(error).split()) or type(error).__name__
        cause = f"no {said} in it" if isinstance(error, KeyError) else said
        raise InvalidProblemError(f"{path}: not a phase model ({cause}); {REMEDY}") from error
    return model


def _header(path: str | Path, arrays: Arrays) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(arrays["header"].tobytes())
    if header["schema"] != SCHEMA:
        raise InvalidProblemError(f"{path}: a model of schema {header['schema']!r}; this version reads {SCHEMA!r}")
    return header


def _prefixed(prefix: str, arrays: dict[str, Any]) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _part(arrays: Arrays, prefix: str) -> Arrays:
    begin = f"{prefix}."
    return {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}
