"""Models on disk: an .npz archive of plain arrays, one of them a JSON header."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.archives import LARGEST, Arrays, Field, check_fields, read_arrays, write_arrays
from optim.core.errors import InvalidProblemError, OptimError
from optim.core.ranges import check_in
from optim.models.containers.series import Resource
from optim.phases.anomaly import DELAYS, AnomalyKind, LinearForecast
from optim.phases.clustering import CountRow
from optim.phases.drift import Calibration
from optim.phases.encoders import make_encoder
from optim.phases.runs import PhaseRuns
from optim.phases.scaling import Scaling
from optim.phases.statistics import NUM_LEVELS, PhaseStatistics

if TYPE_CHECKING:
    from optim.phases.model import PhaseModel

SCHEMA = "optim/phase-model/1"
REMEDY = "write one with 'optim phases fit --out FILE'"
TINY = 1e-300
"""Least deviation: what is divided by isn't zero."""

ROUNDED = 1e-6
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
        model.encoder_ = make_encoder(model.encoder, model.encoder_options)
        _check_header(model)
        _check_arrays(model, {name: array for name, array in arrays.items() if name != "header"})
        model.centres_, model.weights_ = arrays["centres"], arrays["weights"]
        model.encoder_.restore(_part(arrays, "encoder"))
        for prefix, (attribute, kind) in PARTS.items():
            setattr(model, attribute, kind(**_part(arrays, prefix)))
        _check_relations(model)
    except InvalidProblemError:
        raise
    except DAMAGES as error:
        said = " ".join(str(error).split()) or type(error).__name__
        cause = f"no {said} in it" if isinstance(error, KeyError) else said
        raise InvalidProblemError(f"{path}: not a phase model ({cause}); {REMEDY}") from error
    return model


def _check_header(model: "PhaseModel") -> None:
    """Raise ValueError or InvalidOptionError unless what isn't an array can be of a fitted model."""
    for name in ("smoothing", "min_dwell"):
        _require(_is_whole(getattr(model, name), 1), name)
    _require(_is_whole(model.seed, 0), "seed")
    _require(0 < float(model.interval_s) <= float(model.max_gap_s) < LARGEST, "interval_s")
    check_in("(0, 1)", model, "anomaly_rate")
    names = [resource.name for resource in model.resources_]
    _require(len(names) > 0 and len(set(names)) == len(names), "resources")
    _require(all(isinstance(text, str) and text for text in names), "resources")
    _require(all(isinstance(own.unit, str) and isinstance(own.is_level, bool) for own in model.resources_), "resources")
    _require(len(model.names_) > 0 and all(isinstance(text, str) for text in model.names_), "names")
    _require(_is_whole(model.order_, 1), "order")
    _require(_are_finite(model.order_likelihoods_), "order_likelihoods")
    _require(all(_are_finite(astuple(row)) for row in model.count_rows_), "count_rows")
    _require(bool(model.calibrations_), "calibrations")
    for kind, own in model.calibrations_.items():
        _require(kind in list(AnomalyKind) and kind in model.anomaly_kinds, "calibrations")
        _require(_are_finite(astuple(own)) and 0 <= own.rate <= 1 and own.deviation >= 0, f"calibration {kind}")
        _require(_is_whole(own.num_containers, 1), f"calibration {kind}")


def _require(is_right: bool, what: str) -> None:
    if not is_right:
        raise ValueError(f"{what!r} of the header has a value that no fitted model has")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_finite(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and abs(value) < LARGEST for value in values)


def _check_arrays(model: "PhaseModel", arrays: Arrays) -> None:
    """Raise ValueError unless all arrays have shapes and numbers that a fitted model has."""
    num, count = len(model.resources_), len(model.names_)
    width, table = model.encoder_.code_width(num), (count, num)
    fields = {
        "scaling.offset": Field(shape=(num,), least=0.0, may_lack=True),
        "scaling.mean": Field(shape=(num,)),
        "scaling.deviation": Field(shape=(num,), least=TINY),
        **_prefixed("encoder", model.encoder_.fields(num)),
        "centres": Field(shape=(count, "W")),
        "weights": Field(shape=(count,), least=0.0),
        "linear.matrix": Field(shape=(DELAYS * num, num)),
        "linear.bias": Field(shape=(num,)),
        "linear.deviation": Field(shape=(num,), least=TINY),
        "runs.phase": Field(shape=("runs",), least=0, most=count - 1, is_whole=True),
        "runs.dwell": Field(shape=("runs",), least=1, is_whole=True),
        "runs.offsets": Field(shape=("offsets",), least=0, is_whole=True),
        "statistics.count": Field(shape=(count,), least=0, is_whole=True),
        "statistics.quantiles": Field(shape=(*table, NUM_LEVELS), least=0.0),
        "statistics.slope": Field(shape=table),
        "statistics.rising": Field(shape=table, least=0.0, most=1.0 + ROUNDED),
        "statistics.autocorrelation": Field(shape=table, least=-1.0 - ROUNDED, most=1.0 + ROUNDED),
        **{
            f"statistics.{name}": Field(shape=table, least=0.0)
            for name in ("mean", "deviation", "within", "window_deviation")
        },
    }
    check_fields(arrays, fields, **({"W": width} if isinstance(width, int) else {}))


def _check_relations(model: "PhaseModel") -> None:
    """Raise ValueError unless arrays fit each other."""
    offsets, quantiles = model.runs_.offsets, model.statistics_.quantiles
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(model.runs_.phase) or (np.diff(offsets) < 0).any():
        raise ValueError("'runs.offsets' must rise from 0 to the number of runs")
    if (np.diff(quantiles, axis=-1) < -ROUNDED * np.abs(quantiles[..., 1:])).any():
        raise ValueError("'statistics.quantiles' must rise")


def _header(path: str | Path, arrays: Arrays) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(arrays["header"].tobytes())
    if header["schema"] != SCHEMA:
        raise InvalidProblemError(f"{path}: a model of schema {header['schema']!r}; this version reads {SCHEMA!r}")
    return header


def _prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _part(arrays: Arrays, prefix: str) -> Arrays:
    begin = f"{prefix}."
    return {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}
