"""The code of a function on an NVIDIA GPU, read from its lowering without a GPU."""

import contextlib
import re

import jax
import pytest
from jax import export

ROUND_TRIPS = re.compile(
    r"callback|infeed|outfeed|stablehlo\.(send|recv)\b|annotate_device_placement|pinned_host|HostCompute"
)
"""Ways back to the host."""

HARMLESS = re.compile(
    r"stablehlo\.(constant|convert|select)\b|\bcall @|func\.func|^\s*(func\.)?return\b|stablehlo\.(while|return)\b"
)

BY_HAND = "__gpu$xla.gpu.triton"
"""The name of a Pallas kernel in the text; the compiler makes the rest of the text."""


def doubles(text):
    """Return the lines that compute in double precision: constants that are rounded at once, and calls with them, don't."""
    found = (line for line in text.splitlines() if "f64" in line)
    return [line for line in found if re.search(r"\dxf64", line) or not HARMLESS.search(line)]


def racing_scatters(text):
    """Return the indexed additions, whose order a GPU chooses."""
    scatters = re.findall(r"\"stablehlo\.scatter\".*?\}\)", text, flags=re.DOTALL)
    return [scatter for scatter in scatters if "stablehlo.add" in scatter]


def lowered(kernel, arguments):
    """Return a function's text for a GPU, without compiling it."""
    checks = [export.DisabledSafetyCheck.custom_call(BY_HAND)]
    shapes = jax.eval_shape(lambda given: given, arguments)  # plain numbers, too
    with described_card():
        return export.export(jax.jit(kernel), platforms=["cuda"], disabled_checks=checks)(*shapes).mlir_module()


@contextlib.contextmanager
def described_card():
    """From JAX 0.11 on, a Pallas kernel is lowered for a given type of GPU: describe one where none is installed."""
    if jax.__version_info__ < (0, 11) or jax.default_backend() == "gpu":
        yield
        return
    try:
        card = jax.sharding.AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu")
    except (AttributeError, TypeError):
        pytest.skip("this JAX describes no card: Pallas kernels are lowered only where there is a GPU")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=card)):
        yield
