"""Why a solver stopped, and what the points are that it returns.

Three separate questions (as in MathOptInterface): the *termination* tells why the
work ended, the *primal* status what the decision is, the *dual* status what the
bound's certificate is.
"""

from enum import StrEnum


class Termination(StrEnum):
    """Why a solve ended."""

    OPTIMAL = "optimal"
    """Objective and bound agree to the optimality tolerance, both verified."""
    COMPLETED = "completed"
    """A heuristic or online rule ran to its natural end; nothing is claimed beyond the certificate."""
    INFEASIBLE = "infeasible"
    DUAL_INFEASIBLE = "dual_infeasible"
    TIME_LIMIT = "time_limit"
    ITERATION_LIMIT = "iteration_limit"
    NODE_LIMIT = "node_limit"
    GAP_LIMIT = "gap_limit"
    NUMERICAL_ERROR = "numerical_error"
    INTERRUPTED = "interrupted"


class PointStatus(StrEnum):
    """What a returned primal or dual point is."""

    NONE = "none"
    FEASIBLE = "feasible"
    NEARLY_FEASIBLE = "nearly_feasible"
    INFEASIBLE = "infeasible"
    CERTIFICATE = "certificate"


class Sense(StrEnum):
    """Direction of the objective."""

    MAXIMISE = "maximise"
    MINIMISE = "minimise"


class CertificateKind(StrEnum):
    """What a certificate proves, from weakest to strongest."""

    FEASIBLE_ONLY = "feasible_only"
    """The decision is feasible; no bound is claimed."""
    BOUND = "bound"
    """No feasible decision is better than the bound (a relaxation's dual point)."""
    OPTIMALITY = "optimality"
    """The decision attains the bound to the optimality tolerance."""
