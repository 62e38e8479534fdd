"""Let Numba compile sooner for tests: optimise once, take any instructions, compare settings quickly, say in few words that slices don't fit."""

from typing import Any

from numba.core.codegen import CPUCodeLibrary, JITCPUCodegen
from numba.core.extending import overload
from numba.core.registry import cpu_target
from numba.core.targetconfig import TargetConfig
from numba.np import arrayobj

CUSTOMIZE = JITCPUCodegen._customize_tm_options


def values(settings: Any) -> dict[str, Any]:
    """Return all settings, set or left at their defaults, without asking a property for each."""
    own = settings._values
    return {name: own.get(name, option.default) for name, option in settings.options.items()}


def are_equal(one: Any, other: Any) -> bool:
    """Tell what Numba's own comparison tells, which lists all settings of both even of one object and itself."""
    if not isinstance(other, TargetConfig):
        return NotImplemented
    return one is other or one._values == other._values or values(one) == values(other)


def hash_of(settings: Any) -> int:
    """Return a hash by the settings' names, as Numba's is: it sorts a mapping and thereby forgets the values."""
    return hash(type(settings))


def refuse_slice(source, target):
    """Stand for what raises in a loop where a slice is assigned an array of another shape."""
    raise NotImplementedError


@overload(refuse_slice)
def compile_refusal(source, target):
    """Return what is compiled; Numba's own puts both shapes into words, which takes as long as a loop of a page."""

    def refuse(source, target):
        raise ValueError("the slice has another shape than the array assigned to it")

    return refuse


def optimise_once(library: Any) -> None:
    """Run the first of Numba's two series of passes over a function and what it calls: inlining, simplifying, no more."""
    codegen = library._codegen
    passes, builder = codegen._module_pass_manager(
        loop_vectorize=False, slp_vectorize=False, opt=codegen._opt_level, cost="cheap"
    )
    passes.run(library._final_module, builder)


def customize(codegen: Any, options: dict[str, Any]) -> None:
    """Do as Numba does, and choose instructions without a second look."""
    CUSTOMIZE(codegen, options)
    options["opt"] = 0


def compile_quickly() -> None:
    """Replace all of it for the life of this process; what is compiled does the same.

    The second series of passes and what it makes to translate are a third of what compiling takes; weighing instructions
    is a fifth of the rest; comparing settings, which Numba does at each operator that it types, a twentieth.
    """
    TargetConfig.values, TargetConfig.__eq__, TargetConfig.__hash__ = values, are_equal, hash_of
    arrayobj.raise_with_shape_context = refuse_slice
    CPUCodeLibrary._optimize_final_module = optimise_once
    JITCPUCodegen._customize_tm_options = customize
    # Numba's own was made when the first loop was declared, and has translated nothing.
    cpu_target.target_context._internal_codegen = JITCPUCodegen("numba.exec")
