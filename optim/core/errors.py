"""The exceptions of the library: wrong use raises, a solve that ends badly is a status.

Every message states the cause, the offending value, and what to do about it.
"""


class OptimError(Exception):
    """Base of every exception raised on purpose by this library.

    Examples
    --------
    >>> import optim
    >>> try:
    ...     optim.reference_instance("tiny-9")
    ... except optim.OptimError as error:
    ...     print(str(error)[:34])
    no reference instance 'tiny-9'; th
    """


class InvalidProblemError(OptimError, ValueError):
    """An instance, decision or file contradicts its own definition."""


class InvalidOptionError(OptimError, ValueError):
    """An option is unknown or out of its range."""


class UnsupportedProblemError(OptimError):
    """The solver can never treat an instance of this form."""


class NotAllowedError(OptimError):
    """The call is possible in general, but not in the present state."""


class TrainingError(OptimError):
    """A training job's own code failed, or computed what no training can go on with."""


class MissingDependencyError(OptimError, ImportError):
    """An optional package is absent; the message names the extra that installs it."""


class EngineError(OptimError, RuntimeError):
    """Workers that were to do pieces of work cannot be reached, or do not fit this process."""


class SolverError(OptimError, RuntimeError):
    """A solver of another library ended with an error; what it holds is no answer, and proves nothing."""


class CertificateRefusedError(OptimError):
    """A solution does not prove what it claims."""
