"""Compiled loops: `compiled` is `numba.njit` with a cache on disk, and tuples of arrays are passed by reference.

Numba passes a named tuple as all the numbers that describe its arrays, seven per array and hundreds for the state of a
search. The numbers are unpacked and packed again at each call, and each array's references are counted; this dominated compile
time. A class marked `by_reference` is unpacked once, when Python calls the loop, which receives the address of the fields.
The Python tuple owns the arrays and outlives the call. A loop can read fields, modify arrays, and pass the tuple or its parts
to other loops. A loop can't return or store the tuple or change its fields, so LLVM may keep fields in registers.

References use Numba's documented interface for new types
(https://numba.readthedocs.io/en/stable/extending/low-level.html).

A loop has two forms. Loops that call it link its intermediate code (`LoweredLoop`), which is typed and lowered once, without
separate machine code. If Python calls it, the code with all callees is optimised as a unit and becomes machine code with a
wrapper (`Loop`). Numba does both for every function and optimises a callee again with each caller, which took three
quarters of LLVM's time.

Numba invalidates a cached loop when its file changes, but not when its callees change. Here the name of a cache entry is a
digest of all inputs of the machine code: byte code of the loop and its callees, constants and tuples, argument types,
processor and versions. So an edit recompiles only dependent loops, and comments and docstrings don't matter. The cache folder
is created with the first entry. Entries are executed, so the folder must be writable only by the user.

The cache and the two forms use Numba's internals, which no other module may use: `CPUDispatcher` with its `_cache`,
`_compiler` and `get_call_template`, `JITCodeLibrary` with `_linking_libraries` and `_finalize_dynamic_globals`, `Flags`,
`NullCache`, `CompileResult._reduce`, `_rebuild` and `_find_referenced_environments`, `dumps`, `has_dynamic_globals` and
`magic_tuple`.
"""

import hashlib
import logging
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, imputils
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult, Flags
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    is_jitted,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from optim.core.errors import InvalidProblemError
from optim.core.files import write_bytes
from optim.core.progress import COMPILING

Class = TypeVar("Class", bound=type)


class Reference(types.Type):  # type: ignore[misc]
    """The type of a named tuple's address: its class and the types of its fields."""

    def __init__(self, instance_class: Any, kinds: tuple[Any, ...]) -> None:
        self.instance_class, self.fields, self.types = instance_class, instance_class._fields, kinds
        super().__init__(
            f"reference({instance_class.__module__}.{instance_class.__qualname__}({', '.join(map(str, kinds))}))"
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """Key for the comparison of types."""
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
class ReferenceModel(models.PrimitiveModel):  # type: ignore[misc]
    """An address; references to the arrays behind it aren't counted, as the caller holds them."""

    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, layout(manager, kind).as_pointer())

    def from_argument(self, builder: Any, value: Any) -> Any:
        """Load the address, and declare the fields constant during the call."""
        value.add_attribute("noalias")
        return value


def layout(manager: Any, kind: Reference) -> Any:
    """Return the LLVM structure of a tuple's fields, with nested named tuples inline."""
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
        """Return the type of a field, or None if there is no such field."""
        return kind.types[kind.fields.index(name)] if name in kind.fields else None


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def read_field(context: Any, builder: Any, kind: Reference, address: Any, name: str) -> Any:
    """Load a field, or the address of a nested named tuple."""
    index = kind.fields.index(name)
    place = cgutils.gep_inbounds(builder, address, 0, index)
    if isinstance(kind.types[index], Reference):
        return place
    return imputils.impl_ret_borrowed(context, builder, kind.types[index], builder.load(place))


@unbox(Reference)  # type: ignore[untyped-decorator]
def unpack(kind: Reference, source: Any, c: Any) -> NativeValue:
    """Unpack a tuple's fields once for the duration of the call."""
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
            leaves.append((each, place))
            if isinstance(each, types.Array):
                is_error = builder.call(array_unpacker(c, each), [item, place])
                builder.store(builder.or_(builder.load(failed), is_error), failed)
                continue
            native = c.unbox(each, item)
            builder.store(native.value, place)
            builder.store(builder.or_(builder.load(failed), native.is_error), failed)
            if native.cleanup is not None:
                cleanups.append(native.cleanup)

    def clean_up() -> None:
        for cleanup in reversed(cleanups):
            cleanup()
        for each, place in leaves:
            c.context.nrt.decref(builder, each, builder.load(place))

    fill(kind, source, space)
    return NativeValue(space, is_error=builder.load(failed), cleanup=clean_up)


def array_unpacker(c: Any, kind: types.Array) -> Any:
    """Return a function in the wrapper's module that unpacks one array: written once per type, called for each array."""
    module, name = c.builder.module, f"unpack.{kind}"
    if name in module.globals:
        return module.globals[name]
    place = c.context.data_model_manager[kind].get_value_type().as_pointer()
    function = ir.Function(module, ir.FunctionType(cgutils.bool_t, [c.pyapi.pyobj, place]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    native = c.context.get_python_api(builder).to_native_value(kind, function.args[0])
    builder.store(native.value, function.args[1])
    builder.ret(native.is_error)
    return function


FOLDER = "mlcluster-optim"

MAX_BYTES = 512 * 2**20
"""Largest size of the folder; the least recently used entries are removed first. All loops of one version take about 40 MiB."""

PRIVATE, ADMINISTRATOR = 0o700, 0

DIGEST_BYTES = 16

ENVIRONMENT = 2
"""Index of a loop's environment, the constants of its code, in Numba's serialised result."""

VERSIONS = (*sys.version_info[:2], np.__version__, numba.__version__)

OPTIMISATION = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE")
"""Settings of Numba on which machine code depends."""

LOGGER = logging.getLogger(__name__)


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a loop at its first call, or load the machine code that an earlier process compiled.

    Parameters
    ----------
    function
        A function that Numba's nopython mode can compile; without one, a decorator is returned.
    options
        Those of `numba.njit` but `cache`. The interpreter's lock is released unless ``nogil=False`` is given.

    Returns
    -------
    Dispatcher
        As `numba.njit` returns it; the function itself where compiling is switched off (NUMBA_DISABLE_JIT).
    """

    def decorate(plain: Callable[..., Any]) -> Any:
        loop: Any = numba.njit(**{"nogil": True, "no_cfunc_wrapper": True, **options})(plain)
        return loop if numba.config.DISABLE_JIT else Loop(plain, loop.targetoptions)

    return decorate if function is None else decorate(function)


class LoweredLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """A loop's intermediate code for linking, without separate machine code."""

    def finalize(self) -> None:
        """Mark the code as complete."""
        self._finalize_dynamic_globals()
        self._finalized = True


class CollectedFlags(Flags):  # type: ignore[misc]
    """Numba's flags, collected once, because typing compares them at every call: otherwise a tenth of compile time."""

    _collected: dict[str, Any] | None = None
    _hash = hash(tuple(sorted(Flags.options)))  # like Numba's hash, of the names only

    def __hash__(self) -> int:
        return self._hash

    def values(self) -> dict[str, Any]:
        """Return all flags, which must not change after the first call."""
        if self._collected is None:
            self._collected = super().values()
        return self._collected


class LoweringPipeline(Compiler):  # type: ignore[misc]
    """Numba's passes up to intermediate code."""

    def define_pipelines(self) -> Any:
        """Return Numba's passes, with a library for linking as their target."""
        state = self.state
        state.library = LoweredLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        return super().define_pipelines()


class LoweredLoop(CPUDispatcher):  # type: ignore[misc]
    """A loop called by other loops: intermediate code, typed and lowered once for all callers."""

    def __init__(self, plain: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(plain, targetoptions={**options, "no_cpython_wrapper": True}, pipeline_class=LoweringPipeline)
        self._compiler._customize_flags = CollectedFlags

    def add_overload(self, cres: Any) -> None:
        """Register the code for callers, which link it with all its callees."""
        key = object()
        cres.target_context.insert_user_function(key, cres.fndesc, reached_libraries(cres.library))
        self.overloads[cres.signature.args] = cres._replace(entry_point=key)


class Loop(CPUDispatcher):  # type: ignore[misc]
    """A loop called by Python: machine code of the loop and its callees, optimised as a unit.

    The loop is compiled once for the types of its arguments, not once per literal number in a call.
    """

    def __init__(self, plain: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(plain, targetoptions=options)
        self.lowered = LoweredLoop(plain, options)
        self._compiler.compile = self._make_machine_code
        self._cache = LoopCache(self)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the call template for a calling loop, in which a literal 3 has the type of any integer."""
        plain = tuple(map(types.unliteral, args))
        return self.lowered.get_call_template(plain, {name: types.unliteral(kind) for name, kind in kws.items()})

    def get_overload(self, sig: Any) -> Any:
        """Return the lowered form, which calling loops link."""
        return self.lowered.get_overload(sig)

    @property
    def is_compiling(self) -> Any:
        """Whether the loop is being lowered, so that a call of it is recursive."""
        return self.lowered.is_compiling

    def _make_machine_code(self, args: Any, return_type: Any) -> Any:
        """Generate machine code from the intermediate code of a loop and its callees, and a wrapper for Python."""
        self.lowered.compile(args)
        lowered = self.lowered.overloads[args]
        context, descriptor = lowered.target_context, lowered.fndesc
        library = context.codegen().create_library(descriptor.qualname)
        library.enable_object_caching()
        for each in reached_libraries(lowered.library):
            library.add_linking_library(each)
        with context.push_code_library(library):
            context.create_cpython_wrapper(
                library, descriptor, lowered.environment, lowered.call_helper, self.targetoptions["nogil"]
            )
        entry_point = context.get_executable(library, descriptor, lowered.environment)
        # Numba's reload functions start the threads of parallel loops; these loops have none.
        result = lowered._replace(library=library, entry_point=entry_point, reload_init=[], metadata={})
        for environment in result._find_referenced_environments():
            library.codegen.set_env(environment.env_name, environment)
        return result


def reached_libraries(library: LoweredLibrary) -> list[Any]:
    """Return a loop's library and all linked ones, each after a library that refers to it, since LLVM drops unreferenced code.

    Libraries of Numba's functions already contain the libraries that they link.
    """
    reached: list[Any] = [library]
    for one in reached:
        if isinstance(one, LoweredLibrary):
            reached += [each for each in dict.fromkeys(one._linking_libraries) if each not in reached]
    return reached


class LoopCache(NullCache):  # type: ignore[misc]  # Numba has no types
    """One loop's cache entries on disk, with the interface that Numba's dispatcher expects."""

    may_write = True
    """Whether the folder is usable; one failure disables the cache for all loops of the process."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    @property
    def cache_path(self) -> str:
        """The folder, for Numba's statistics."""
        return str(cache_folder())

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the loop compiled for a signature, or None; damaged entries are removed."""
        target.refresh()
        path = self._path(signature, target.codegen())
        try:
            check_private(path.parent)
            content = path.read_bytes()
        except OSError as error:
            if isinstance(error, SharedFolderError):
                _go_without(error)
            COMPILING.begin(self._loop.py_func.__qualname__)
            return None
        try:
            result = _rebuild(target, content[:DIGEST_BYTES], content[DIGEST_BYTES:])
        except Exception as error:  # a damaged entry can make pickle or Numba raise any exception
            LOGGER.info("%s: %s; the loop is compiled again", path, error)
            result = None
        with suppress(OSError):
            path.unlink() if result is None else os.utime(path)
        if result is None:
            COMPILING.begin(self._loop.py_func.__qualname__)
        return result

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compiled loop, unless its machine code contains addresses of this process."""
        COMPILING.end(self._loop.py_func.__qualname__)
        if not LoopCache.may_write or result.library.has_dynamic_globals or any(not x.can_cache for x in result.lifted):
            return
        path = self._path(signature, result.codegen)
        payload = dumps((result._reduce(), result.environment.consts))
        try:
            path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            check_private(path.parent)
            write_bytes(path, _digest(payload) + payload)
            drop_oldest(path.parent, MAX_BYTES)
        except (OSError, InvalidProblemError) as error:
            _go_without(error)

    def _path(self, signature: Any, codegen: Any) -> Path:
        arguments = signature.args if hasattr(signature, "args") else signature
        settings = [str(getattr(numba.config, name)) for name in OPTIMISATION]
        state = (state_of(self._loop), code_of_this_module())
        stamp = (*state, *map(describe_type, arguments), codegen.magic_tuple(), VERSIONS, *settings)
        name = f"{self._loop.py_func.__qualname__}-{_digest(repr(stamp).encode()).hex()}.loop"
        return cache_folder() / name.replace("<", "").replace(">", "")


def _go_without(error: Exception) -> None:
    """Log once per process that there is no usable cache folder."""
    if LoopCache.may_write:
        LoopCache.may_write = False
        LOGGER.warning(
            "compiled loops can't be stored: %s; until this is corrected, every process compiles them again", error
        )


def _rebuild(target: Any, digest: bytes, payload: bytes) -> Any:
    """Restore a loop from an entry, after verifying that the entry is complete and unchanged."""
    if _digest(payload) != digest:
        raise ValueError("the entry is truncated or changed")
    parts, constants = pickle.loads(payload)
    # The entry of a caller may have defined the loop's environment without the parts needed by the loop's wrapper.
    present = parts[ENVIRONMENT].consts
    present.extend(constants[len(present) :])
    return CompileResult._rebuild(target, *parts)


def cache_folder() -> Path:
    """Return the cache folder, under NUMBA_CACHE_DIR or else the user's cache directory.

    Numba's configured folder is not used: it may come from a file in the current folder, and entries are executed.
    """
    if folder := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(folder) / FOLDER
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / FOLDER
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"{FOLDER}-{os.geteuid()}"


class SharedFolderError(OSError):
    """Other users may write to the cache folder, whose entries are executed."""


def check_private(folder: Path) -> None:
    """Check that only the user and the system's administrator can write to a folder.

    Raises
    ------
    SharedFolderError
        If others can write to it.
    OSError
        If there is no such folder.
    """
    found = folder.stat()
    if not {folder.lstat().st_uid, found.st_uid} <= {os.geteuid(), ADMINISTRATOR}:
        raise SharedFolderError(f"{folder} belongs to another user; set NUMBA_CACHE_DIR to a folder of your own")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SharedFolderError(
            f"other users may write to {folder}; remove it, and optim creates it again with access for you alone"
        )


def drop_oldest(folder: Path, max_bytes: int) -> None:
    """Remove the least recently used files until the folder and its subfolders have at most the given number of bytes."""
    files = []
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process was quicker
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= max_bytes:
            break
        path.unlink(missing_ok=True)
        total -= size


def state_of(loop: Any) -> str:
    """Return a digest of a loop and all functions and constants it uses, which changes whenever the machine code may."""
    reached: dict[int, Any] = {}
    waiting = [loop]
    while waiting:
        one = waiting.pop()
        if id(one) not in reached:
            reached[id(one)] = one
            waiting.extend(_loop_state(one)[1])
    return _digest("".join(sorted(_loop_state(one)[0] for one in reached.values())).encode()).hex()


@cache
def _loop_state(loop: Any) -> tuple[str, tuple[Any, ...]]:
    """Return a digest of one loop with its callees' names only, and the callees."""
    function = getattr(loop, "py_func", loop)
    options = sorted((name, _plain(value)) for name, value in getattr(loop, "targetoptions", {}).items())
    parts = [function.__module__, function.__qualname__, repr(options), repr(function.__defaults__)]
    callees = []
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    package = function.__module__.partition(".")[0]
    own_modules = [known[name] for name in function.__code__.co_names if isinstance(known.get(name), ModuleType)]
    spaces = [known, *(vars(module) for module in own_modules if module.__name__.partition(".")[0] == package)]
    for code in _codes(function.__code__):
        parts += [code.co_code.hex(), repr(code.co_varnames)]
        start = 1 if function.__doc__ is not None and code is function.__code__ else 0
        parts += [_plain(value) for value in code.co_consts[start:] if not isinstance(value, CodeType)]
        for name in (*code.co_names, *code.co_freevars):
            value = next((names[name] for names in spaces if name in names), None)
            if isinstance(value, FunctionType) or is_jitted(value):
                callees.append(value)
                value = _name(value)
            parts += [name, _plain(value)]
    return _digest("\n".join(parts).encode()).hex(), tuple(callees)


@cache
def code_of_this_module() -> str:
    """Return a digest of this file, because its code affects how every loop is lowered, linked and wrapped."""
    return _digest(Path(__file__).read_bytes()).hex()


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all nested ones."""
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)


def _plain(value: Any) -> str:
    """Return a text for a constant that is equal in every process."""
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, type):
        return f"{_name(value)}{getattr(value, '_fields', '')}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, value)))
    return repr(value)


def describe_type(kind: Any) -> str:
    """Return the text of an argument's type, with the fields of named tuples, which machine code accesses by position."""
    inner = getattr(kind, "types", ())
    named = _plain(kind.instance_class) if hasattr(kind, "instance_class") else ""
    return f"{kind}{named}({','.join(map(describe_type, inner))})"


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


# Helpers for compiled loops. NumPy's equivalents take some tenths of a second each to compile, because a slice assignment
# includes the text of its error, and a sum handles all axes.


@compiled
def copy_first(number, source, goal):  # type: ignore[no-untyped-def]
    """Copy the first `number` entries."""
    for k in range(number):
        goal[k] = source[k]


@compiled
def total(numbers):  # type: ignore[no-untyped-def]
    """Return the sum of integers."""
    result = 0
    for number in numbers:
        result += number
    return result


@compiled
def largest(numbers):  # type: ignore[no-untyped-def]
    """Return the largest of non-negative numbers, 0 if there are none."""
    result = 0
    for number in numbers:
        result = max(result, number)
    return result
