"""The fractional market behind an auction: divisible GPUs, one speed per GPU for each app and good."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.auction.instance import AuctionInstance, FloatArray, IntArray, Locality


@dataclass(frozen=True, kw_only=True, eq=False)
class FractionalMarket:
    """Apps with concave values on divisible goods.

    An app's speed is ``u_i = sum_m a_im x_im <= d_i`` and its log value ``-log((E_i + W_i / u_i) / T_i)``.

    Parameters
    ----------
    speed
        a, shape (apps, goods): speed of one GPU of a good, at least 0, positive somewhere in each row.
    supply
        R, shape (goods,): GPUs of a good.
    cap
        d, shape (apps,): most speed that an app can use.
    elapsed_min, work_min, ideal_min
        E, W, T, shape (apps,).
    machine_good
        Shape (machines,): the good that a machine's GPUs belong to, -1 where it offers none.
    app
        Shape (apps of the market,): which app of the instance each one is; apps without bids are left out.
    """

    speed: FloatArray
    supply: FloatArray
    cap: FloatArray
    elapsed_min: FloatArray
    work_min: FloatArray
    ideal_min: FloatArray
    machine_good: IntArray
    app: IntArray

    def __post_init__(self) -> None:
        apps, goods = self.speed.shape
        if self.supply.shape != (goods,) or not (self.supply > 0).all():
            raise InvalidProblemError(f"supply must be positive for each of {goods} goods, got {self.supply}")
        for name in ("cap", "elapsed_min", "work_min", "ideal_min"):
            if getattr(self, name).shape != (apps,):
                raise InvalidProblemError(f"{name} must hold one number an app, got shape {getattr(self, name).shape}")
        if (self.speed < 0).any() or not (self.speed.max(axis=1, initial=0.0) > 0).all():
            raise InvalidProblemError("speed must be at least 0, and positive somewhere for every app")

    def log_values(self, speed: FloatArray) -> FloatArray:
        """Return each app's log value at a speed."""
        return np.asarray(np.log(self.ideal_min) - np.log(self.elapsed_min + self.work_min / speed))

    def without(self, app: int) -> "FractionalMarket":
        """Return the market without one of its apps."""
        keep = np.arange(len(self.cap)) != app
        return FractionalMarket(
            speed=self.speed[keep],
            supply=self.supply,
            cap=self.cap[keep],
            elapsed_min=self.elapsed_min[keep],
            work_min=self.work_min[keep],
            ideal_min=self.ideal_min[keep],
            machine_good=self.machine_good,
            app=self.app[keep],
        )


def market_of(instance: AuctionInstance) -> FractionalMarket:
    """Return the market of an auction's bids.

    A bid's speed follows from its rho: ``r = W / (T rho - E)``. The speed of a GPU of machine m is the largest
    speed per GPU of an app's bids that can use m; machines that no app tells apart are one good.

    Notes
    -----
    The market's optimum bounds the auction's only if no empty row is worth anything: it has no empty rows.
    """
    bids, apps, cluster = instance.bids, instance.apps, instance.cluster
    left = apps.ideal_min[bids.app] * bids.rho - apps.elapsed_min[bids.app]
    if len(bids) and not (left > 0).all():
        b = int(np.argmin(left))
        raise InvalidProblemError(
            f"apps[{bids.app[b]}]: rho {bids.rho[b]} is less than the elapsed time alone gives; correct elapsed_min or ideal_min"
        )
    rate = apps.work_min[bids.app] / np.where(left > 0, left, 1.0)
    room = np.array([cluster.slot_free.max(initial=0), *[0] * 4])
    room[1:] = cluster.machine_free.max(initial=0), cluster.rack_free.max(initial=0), cluster.num_free, cluster.num_free
    fits = bids.gpus <= room[bids.locality]
    speed = np.zeros((instance.num_apps, cluster.num_machines))
    offers = cluster.machine_free > 0
    for b in np.flatnonzero(fits & (bids.locality != Locality.NAMED)).tolist():
        i = int(bids.app[b])
        speed[i, offers] = np.maximum(speed[i, offers], rate[b] / bids.gpus[b])
    per_gpu = rate[bids.named_row] / bids.gpus[bids.named_row]
    usable = fits[bids.named_row] & offers[bids.named_machine]
    np.maximum.at(speed, (bids.app[bids.named_row[usable]], bids.named_machine[usable]), per_gpu[usable])
    cap = np.zeros(instance.num_apps)
    np.maximum.at(cap, bids.app[fits], rate[fits])
    keep = np.flatnonzero(speed.max(axis=1, initial=0.0) > 0)
    columns, good = np.unique(speed[keep][:, offers], axis=1, return_inverse=True)
    machine_good = np.full(cluster.num_machines, -1, dtype=np.int64)
    machine_good[offers] = good.ravel()
    supply = np.bincount(good.ravel(), cluster.machine_free[offers], columns.shape[1])
    return FractionalMarket(
        speed=np.ascontiguousarray(columns),
        supply=supply.astype(np.float64),
        cap=cap[keep],
        elapsed_min=apps.elapsed_min[keep],
        work_min=apps.work_min[keep],
        ideal_min=apps.ideal_min[keep],
        machine_good=machine_good,
        app=keep,
    )
