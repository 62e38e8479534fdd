"""Encoders of windows as embeddings, with a common protocol."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from optim.core.errors import unknown_name
from optim.core.options import build_options
from optim.phases.encoders.base import Encoder as Encoder
from optim.phases.encoders.base import (
    RawWindowEncoder,
    RawWindowOptions,
    WindowStatisticsEncoder,
    WindowStatisticsOptions,
)
from optim.phases.encoders.crbm import CrbmEncoder, CrbmOptions
from optim.phases.encoders.hmm import HmmEncoder, HmmOptions

ENCODERS: Mapping[str, tuple[type[Any], Callable[[Any], Encoder]]] = MappingProxyType(
    {
        "crbm": (CrbmOptions, CrbmEncoder),
        "window-statistics": (WindowStatisticsOptions, WindowStatisticsEncoder),
        "raw-window": (RawWindowOptions, RawWindowEncoder),
        "hmm": (HmmOptions, HmmEncoder),
    }
)
"""Class of the options and class of the encoder, by name."""


def make_encoder(name: str, options: Mapping[str, Any] | None = None) -> Encoder:
    """Return an unfitted encoder.

    Raises
    ------
    InvalidOptionError
        If there is no such encoder, or it has no such option.
    """
    if name not in ENCODERS:
        raise unknown_name("encoder", name, ENCODERS)
    options_type, encoder = ENCODERS[name]
    return encoder(build_options(options_type, dict(options or {})))
