"""How Numba compiles our loops: those that only loops call stay unfinished until they are part of one Python calls.

Numba optimises every function and emits its machine code, and then does both again for each function that calls it:
a loop that is called through five others is optimised six times and emitted six times, of which one serves. Here a loop
for loops ends as LLVM's intermediate code; the loop that Python calls links, optimises and emits all of it, once.
"""

from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult

UNFINISHED = "unfinished"
"""Kind of an entry on disk that holds intermediate code alone; Numba's own kinds are "bitcode" and "object"."""


class LoopCompiler(Compiler):  # type: ignore[misc]  # Numba has no types
    """Numba's steps for a loop that Python calls; what Numba compiles for its sake on the way stays unfinished."""

    library = JITCodeLibrary

    def _compile_bytecode(self) -> Any:
        state, codegen = self.state, self.state.targetctx.codegen()
        state.library = self.library(codegen, state.func_id.func_qualname)
        state.library.enable_object_caching()
        before = codegen._library_class
        codegen._library_class = UnfinishedLibrary  # Numba's compiler lock is held
        try:
            result = super()._compile_bytecode()
        finally:
            codegen._library_class = before
        if not state.flags.nrt and holds_arrays(result.signature.return_type):
            raise TypeError(
                f"{state.func_id.func_qualname}: a loop that allocates nothing can't return arrays; "
                "leave out allocates=False"
            )
        for environment in result._find_referenced_environments():
            result.library.codegen.set_env(environment.env_name, environment)
        return result


class UnfinishedLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """Intermediate code with that of what it calls, to be linked into others; finished if it is asked for a pointer."""

    is_finished = False

    @property
    def codegen(self) -> Any:
        """The code generator, which is told of no environment before there is machine code to refer to it."""
        return self._codegen if self.is_finished else _WithoutEnvironments(self._codegen)

    def finalize(self) -> None:
        """Link what the code calls, and leave the rest to whoever links this."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return where a function is; 0, as Numba does, for what isn't defined here."""
        self._ensure_finalized()
        if not self.is_finished:
            if not any(one.name == name and not one.is_declaration for one in self._final_module.functions):
                return 0
            self._get_module_for_linking()  # a copy, before this one is optimised and belongs to the engine
            self._optimize_final_module()
            self._final_module.verify()
            self._finalize_final_module()
        return int(super().get_pointer_to_function(name))

    def _finalize_final_module(self) -> None:
        """Make machine code callable: what was compiled here, or read from disk while another loop is compiled."""
        self.is_finished = True
        super()._finalize_final_module()

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Return what an entry on disk holds."""
        return (self.name, UNFINISHED, self._get_module_for_linking().as_bitcode())

    @classmethod
    def of_bitcode(cls, codegen: Any, name: str, bitcode: bytes) -> "UnfinishedLibrary":
        """Return a library read from disk."""
        library = cls(codegen, name)
        library._final_module = llvm.parse_bitcode(bitcode)
        library._finalized = True
        return library


class UnfinishedCompiler(LoopCompiler):
    """The steps for a loop that only other loops call."""

    library = UnfinishedLibrary


class _WithoutEnvironments:
    """A code generator that forgets environments."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None:
        """Forget it: the loop that links this one sets it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


def rebuild(target: Any, code: tuple[str, str, Any], *rest: Any) -> Any:
    """Return the compiled loop that `CompileResult._reduce` took apart."""
    name, kind, bitcode = code
    if kind != UNFINISHED:
        return CompileResult._rebuild(target, code, *rest)
    description, environment, signature, is_object_mode, lifted, annotation, reload, environments = rest
    for load in reload:
        load()
    library = UnfinishedLibrary.of_bitcode(target.codegen(), name, bitcode)
    known = {
        "target_context": target,
        "typing_context": target.typing_context,
        "library": library,
        "environment": environment,
        "entry_point": target.get_executable(library, description, environment),
        "fndesc": description,
        "type_annotation": annotation,
        "signature": signature,
        "objectmode": is_object_mode,
        "lifted": lifted,
        "reload_init": reload,
        "referenced_envs": environments,
    }
    return CompileResult(**{**dict.fromkeys(CompileResult._fields), **known})


types: Any = numba.types


def holds_arrays(kind: Any) -> bool:
    """Return whether values of a type are, or have inside, arrays or other things whose references are counted."""
    if isinstance(kind, types.Optional):
        return holds_arrays(kind.type)
    if isinstance(kind, types.BaseTuple):
        return any(map(holds_arrays, kind.types))
    return not isinstance(kind, types.Number | types.Boolean | types.NoneType | types.Omitted)
