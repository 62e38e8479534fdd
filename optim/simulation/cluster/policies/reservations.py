"""Backfilling with reservations: EASY for the first job that doesn't fit, conservative for all."""

from dataclasses import dataclass

from optim.core.errors import InvalidOptionError, check_choices, check_in
from optim.core.policies import policy
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.index.policy import ALL, Guess, IndexPolicy, Key, Reservations

MAX_PAST = 1_000

NEEDS = "a multiple of the run times of jobs that state no estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class EasyOptions:
    """Options.

    Parameters
    ----------
    depth
        Number of waiting jobs with a reservation, in order of submission; 0 for all.
    kills
        Whether to kill a job when its run time reaches its estimate; otherwise it may run longer.
    guess
        Estimate for jobs that state no estimate: `past` for a quantile of their user's past run times, `factor` for a multiple
        of their true run time (clairvoyant).
    quantile
        With `guess=past`: the quantile of the user's past run times.
    past
        With `guess=past`: the number of most recent jobs whose run times count.
    default_h
        Estimate in hours while no job has ended yet.
    factor
        Multiple of the true run time for `guess=factor`.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    depth: int = 1
    kills: bool = False
    guess: Guess = Guess.PAST
    quantile: float = 0.9
    past: int = 20
    default_h: float = 24.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choices(self, {"guess": tuple(Guess)})
        object.__setattr__(self, "guess", Guess(self.guess))  # accepts strings
        check_in("[0, 1]", self, "quantile")
        check_in("(0, 1e5]", self, "default_h")
        check_in("[0.001, 1000]", self, "factor")
        if not 1 <= self.past <= MAX_PAST:
            raise InvalidOptionError(f"past must lie in 1..{MAX_PAST}, got {self.past}")
        if not 0 <= self.depth <= ALL:
            raise InvalidOptionError(f"depth must be at least 1, or 0 for all jobs, got {self.depth}")

    def rule(self, depth: int) -> Reservations:
        """Return the rule that chooses the waiting jobs with reservations."""
        return Reservations(
            depth=depth,
            kills=self.kills,
            guess=self.guess,
            quantile=self.quantile,
            past=self.past,
            default_us=max(1, round(self.default_h * 3600 * US)),
            factor=self.factor,
        )

    def policy(self, name: str) -> IndexPolicy:
        """Return the policy."""
        return IndexPolicy(
            name=name,
            key=Key.SUBMISSION,
            reservations=self.rule(self.depth or ALL),
            needs=NEEDS if self.guess is Guess.FACTOR else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConservativeOptions(EasyOptions):
    """Options.

    Parameters
    ----------
    depth
        Number of waiting jobs with a reservation, in order of submission; 0 for all.
    """

    depth: int = 0


@policy(
    "easy",
    world="cluster",
    options=EasyOptions,
    summary="Run jobs first come, first served; reserve a start for the first job that doesn't fit; others may start if they don't delay that start.",
    source="Lifka, JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001",
    is_default=True,
)
def easy(options: EasyOptions, jobs: Workload) -> IndexPolicy:
    """Return EASY backfilling."""
    del jobs
    return options.policy("easy")


@policy(
    "conservative",
    world="cluster",
    options=ConservativeOptions,
    summary="Run jobs first come, first served; reserve a start for every waiting job; others may start if they delay no reservation.",
    source="Mu'alem and Feitelson, IEEE TPDS 12(6), 2001; Srinivasan, Kettimuthu, Subramani and Sadayappan, ICPP Workshops 2002",
)
def conservative(options: ConservativeOptions, jobs: Workload) -> IndexPolicy:
    """Return conservative backfilling."""
    del jobs
    return options.policy("conservative")
