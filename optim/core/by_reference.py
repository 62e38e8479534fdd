"""Named tuples that compiled loops pass to one another by one address instead of taken apart.

Numba passes a named tuple as all the numbers that describe its arrays: seven an array, hundreds for the state of a
search, unpacked and packed again at each call, and counts a reference to each array wherever the tuple is passed. Most
of what compiling took was that. A class marked `by_reference` is unpacked once, where Python calls: the loop gets the
address of the fields, and passes it on. Python's tuple outlives the call and holds the arrays; a loop can read fields,
change what is in arrays and pass the tuple or its parts on, but can't return it, keep it or change its fields, and the
optimiser is told so: it keeps in registers what it has read.

It rests on Numba's documented interface for new types (https://numba.readthedocs.io/en/stable/extending/low-level.html).
"""

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba.core import cgutils, imputils, types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    register_model,
    typeof_impl,
    unbox,
)

Class = TypeVar("Class", bound=type)


class Reference(types.Type):
    """The type of a named tuple's address: its class and the types of its fields."""

    def __init__(self, instance_class: Any, kinds: tuple[Any, ...]) -> None:
        self.instance_class, self.fields, self.types = instance_class, instance_class._fields, kinds
        super().__init__(
            f"reference({instance_class.__module__}.{instance_class.__qualname__}({', '.join(map(str, kinds))}))"
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What distinguishes one such type from another."""
        return self.instance_class, self.types


def by_reference(named: Class) -> Class:
    """Mark a class of named tuples: compiled loops get the address of its fields.

    Parameters
    ----------
    named
        A `typing.NamedTuple` of arrays, numbers and other named tuples. Compiled loops don't make it themselves.
    """
    typeof_impl.register(named)(_type_of)
    return named


def _type_of(value: Any, context: Any) -> Reference | None:
    kinds = tuple(typeof_impl(field, context) for field in value)
    return None if None in kinds else Reference(type(value), kinds)


@register_model(Reference)
class ReferenceModel(PrimitiveModel):  # type: ignore[misc]
    """An address; references to the arrays behind it aren't counted, as the caller holds them."""

    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, layout(manager, kind).as_pointer())

    def from_argument(self, builder: Any, value: Any) -> Any:
        """Take the address in, and tell the optimiser that nothing behind it changes during the call."""
        value.add_attribute("noalias")
        return value


def layout(manager: Any, kind: Reference) -> Any:
    """Return the structure of a tuple's fields; named tuples within it lie in it."""
    return ir.LiteralStructType(
        [
            layout(manager, each) if isinstance(each, Reference) else manager[each].get_value_type()
            for each in kind.types
        ]
    )


@infer_getattr
class ReferenceFields(AttributeTemplate):  # type: ignore[misc]
    """The types of a tuple's fields."""

    key = Reference

    def generic_resolve(self, kind: Reference, name: str) -> Any:
        """Return the type of a field, None without one of this name."""
        return kind.types[kind.fields.index(name)] if name in kind.fields else None


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def read_field(context: Any, builder: Any, kind: Reference, address: Any, name: str) -> Any:
    """Load a field; of a named tuple within the tuple, its address."""
    index = kind.fields.index(name)
    place = cgutils.gep_inbounds(builder, address, 0, index)
    if isinstance(kind.types[index], Reference):
        return place
    return imputils.impl_ret_borrowed(context, builder, kind.types[index], builder.load(place))


@unbox(Reference)  # type: ignore[untyped-decorator]
def unpack(kind: Reference, source: Any, c: Any) -> NativeValue:
    """Unpack a tuple's fields once, for the time of the call."""
    builder = c.builder
    space = cgutils.alloca_once(builder, layout(c.context.data_model_manager, kind))
    failed = cgutils.alloca_once_value(builder, cgutils.false_bit)
    cleanups: list[Callable[[], None]] = []
    leaves: list[tuple[Any, Any]] = []

    def fill(kind: Reference, source: Any, space: Any) -> None:
        for index, each in enumerate(kind.types):
            item, place = c.pyapi.tuple_getitem(source, index), cgutils.gep_inbounds(builder, space, 0, index)
            if isinstance(each, Reference):
                fill(each, item, place)
                continue
            native = c.unbox(each, item)
            builder.store(native.value, place)
            builder.store(builder.or_(builder.load(failed), native.is_error), failed)
            leaves.append((each, place))
            if native.cleanup is not None:
                cleanups.append(native.cleanup)

    def clean_up() -> None:
        for cleanup in reversed(cleanups):
            cleanup()
        for each, place in leaves:
            c.context.nrt.decref(builder, each, builder.load(place))

    fill(kind, source, space)
    return NativeValue(space, is_error=builder.load(failed), cleanup=clean_up)
