"""Fair share over time: decayed usage, and Slurm's two fair-share factors over a tree of accounts and users.

References
----------
Slurm's documentation, "Multifactor Priority Plugin", "Classic Fairshare Algorithm" and "Fair Tree Fairshare Algorithm",
https://slurm.schedmd.com/priority_multifactor.html, classic_fair_share.html and fair_tree.html.
"""

import math
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray, TextArray
from optim.core.errors import InvalidProblemError, check_in

ROOT = "root"


class DecayedUsage:
    """GPU-time of owners, decayed by a half-life.

    The usage at time t of an owner with g(s) GPUs at time s is the integral of g(s) 2^(-(t - s) / half-life) over s <= t. The
    usage is the limit of Slurm's sum over periods, U_H, as the periods become short.

    Parameters
    ----------
    count
        Number of owners.
    half_life_us
        Half-life in microseconds; infinite for no decay.

    Attributes
    ----------
    gpu_us
        Usage at `at_us` in GPU-microseconds; shape (owners,).

    Raises
    ------
    InvalidOptionError
        If the half-life isn't positive.
    """

    def __init__(self, count: int, half_life_us: float) -> None:
        if not math.isinf(half_life_us):
            check_in("(0, 1e30]", {"half_life_us": half_life_us})
        self.rate = 0.0 if math.isinf(half_life_us) else math.log(2) / half_life_us
        self.gpu_us: FloatArray = np.zeros(count)
        self.at_us = 0

    def after(self, now_us: int, held: FloatArray) -> FloatArray:
        """Return the usage at `now_us` if each owner uses `held` GPUs from `at_us` on; shape (owners,)."""
        passed = now_us - self.at_us
        if passed <= 0:
            return self.gpu_us
        if not self.rate:
            return np.asarray(self.gpu_us + held * passed)
        left = math.exp(-self.rate * passed)
        return np.asarray(self.gpu_us * left + held * (-math.expm1(-self.rate * passed) / self.rate))

    def advance(self, now_us: int, held: FloatArray) -> None:
        """Advance to `now_us`; until then each owner uses `held` GPUs, shape (owners,)."""
        self.gpu_us, self.at_us = self.after(now_us, held), max(now_us, self.at_us)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssociationTree:
    """Accounts and their users (Slurm's associations). Row 0 is the root, and parents come before their children.

    Parameters
    ----------
    names
        Names of accounts and users.
    parent
        Row of each association's account, -1 for the root; shape (associations,).
    shares
        Shares of each association among its siblings, at least 0; shape (associations,).
    is_user
        Whether each association is a user; users have no children; shape (associations,).
    takes_parent
        Whether each association uses its parent's shares and usage (``FairShare=parent``); shape (associations,).

    Raises
    ------
    InvalidProblemError
        If arrays differ in length, a parent comes after its child or is a user, or shares are negative.
    """

    names: tuple[str, ...]
    parent: IntArray
    shares: IntArray
    is_user: BoolArray
    takes_parent: BoolArray

    def __post_init__(self) -> None:
        """Check the tree."""
        count = len(self.names)
        if not count or {len(self.parent), len(self.shares), len(self.is_user), len(self.takes_parent)} != {count}:
            raise InvalidProblemError(
                "parent, shares, is_user and takes_parent of an association tree must have one entry per name"
            )
        ahead = (self.parent[1:] >= 0) & (self.parent[1:] < np.arange(1, count))
        if self.parent[0] != -1 or not ahead.all() or self.is_user[self.parent[1:]].any():
            raise InvalidProblemError("an association's parent must be an account listed before it; row 0 is the root")
        if (self.shares < 0).any():
            raise InvalidProblemError(f"shares of an association must be at least 0, got {self.shares.min()}")

    @classmethod
    def of_jobs(cls, account: TextArray, user: TextArray) -> "AssociationTree":
        """Return a tree with one share per account, and one per user in each account.

        Parameters
        ----------
        account, user
            Account and user of each job; shape (jobs,). Account "" is the root.
        """
        accounts = sorted(set(account.tolist()) - {"", ROOT})
        row = {"": 0, ROOT: 0} | {name: number for number, name in enumerate(accounts, start=1)}
        pairs = sorted({(row[a], u) for a, u in zip(account.tolist(), user.tolist(), strict=True)})
        count = 1 + len(accounts) + len(pairs)
        return cls(
            names=(ROOT, *accounts, *(name for _, name in pairs)),
            parent=np.array([-1, *[0] * len(accounts), *(parent for parent, _ in pairs)], np.int64),
            shares=np.ones(count, np.int64),
            is_user=np.arange(count) > len(accounts),
            takes_parent=np.zeros(count, np.bool_),
        )

    def of_siblings(self, values: FloatArray) -> FloatArray:
        """Return the sum of a value over each association and its siblings; for the root, its value."""
        total = np.bincount(self.parent[1:], weights=values[1:], minlength=len(self.names))
        return np.concatenate([values[:1], total[self.parent[1:]]])

    def summed(self, usage: FloatArray) -> FloatArray:
        """Return each association's usage including its descendants' usage."""
        total = usage.astype(np.float64)
        for row in range(len(total) - 1, 0, -1):
            total[self.parent[row]] += total[row]
        return total

    def parts_of_shares(self) -> FloatArray:
        """Return each association's fraction of the shares of all its siblings; shape (associations,)."""
        shares = self.shares.astype(np.float64)
        return _ratio(shares, self.of_siblings(shares))

    def classic_factors(self, usage: FloatArray, damping: float = 1.0) -> FloatArray:
        """Return the classic fair-share factor F = 2^(-U_E / S / d) of each association; shape (associations,).

        The effective usage U_E of an account below the root is its fraction U of all usage. Further down it is
        U + (U_E of the parent - U) x shares / shares of all siblings. S is the product of the fractions of shares up to the root.

        Parameters
        ----------
        usage
            Usage of each association without its descendants, in any unit; shape (associations,).
        damping
            d, ``FairShareDampeningFactor``.
        """
        actual = self.summed(usage)
        actual = actual / actual[0] if actual[0] > 0 else actual
        part = self.parts_of_shares()
        share, effective = np.ones(len(actual)), actual.copy()
        for row in range(1, len(actual)):
            parent = int(self.parent[row])
            if self.takes_parent[row]:
                share[row], effective[row] = share[parent], effective[parent]
                continue
            share[row] = share[parent] * part[row]
            if parent:
                effective[row] += (effective[parent] - actual[row]) * part[row]
        exponent = np.full(len(share), np.inf)
        np.divide(effective, share, out=exponent, where=share > 0)
        return np.array([math.exp2(each) for each in (-exponent / damping).tolist()])

    def fair_tree_factors(self, usage: FloatArray) -> FloatArray:
        """Return the Fair Tree factor of each user, rank over number of users, NaN for accounts; shape (associations,).

        Siblings are sorted by level fair share: shares over usage, both as fractions of all siblings' totals. Users are
        ranked in the order of a depth-first traversal, the first user highest. Tied users share a rank. A user tied with an
        account has the rank of the account's first user. The children of tied accounts are sorted together.

        Raises
        ------
        InvalidProblemError
            If an association uses its parent's shares, which isn't supported with Fair Tree.
        """
        if self.takes_parent.any():
            name = self.names[int(self.takes_parent.argmax())]
            raise InvalidProblemError(
                f"association {name[:40]!r} has shares 'parent', which only the classic factor supports; give it a number"
            )
        actual, part = self.summed(usage), self.parts_of_shares()
        used = _ratio(actual, self.of_siblings(actual))
        level = np.where(part > 0, np.inf, 0.0)
        np.divide(part, used, out=level, where=(used > 0) & (part > 0))
        children: list[list[int]] = [[] for _ in self.names]
        for row in range(1, len(self.names)):
            children[int(self.parent[row])].append(row)
        factors = np.full(len(self.names), np.nan)
        count = int(self.is_user.sum())
        rank = tied_rank = count
        ahead: list[tuple[list[int], bool]] = [
            (children[0], False)
        ]  # siblings to rank, and whether the first of them tie with users already ranked
        while ahead:
            siblings, is_tied = ahead.pop()
            if not siblings:
                continue
            highest = max(level[row] for row in siblings)
            same = [row for row in siblings if level[row] == highest]
            rest = [row for row in siblings if level[row] != highest]
            if rest:
                ahead.append((rest, False))
            for row in (each for each in same if self.is_user[each]):
                if not is_tied:
                    tied_rank, is_tied = rank, True
                factors[row] = tied_rank / count
                rank -= 1
            ahead.append(([child for row in same for child in children[row]], is_tied))
        return factors


def _ratio(values: FloatArray, total: FloatArray) -> FloatArray:
    """Return values over totals, 0 where the total is 0."""
    return np.asarray(np.divide(values, total, out=np.zeros(len(values)), where=total > 0))
