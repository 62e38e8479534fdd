"""What series of containers tell, whole and in part, and what the checker says of drawn plans, compared with what is kept."""

from pathlib import Path

import numpy as np

from optim.models.containers.clairvoyance import ClairvoyantClaim, check_clairvoyant
from optim.models.containers.series import CPU, MEMORY, ContainerSeries
from tests.support.kept import assert_kept, by_name, outcome, parts

KEPT = Path(__file__).parent / "kept"


def drawn(seed):
    """Return five segments of three containers in two resources; the seed's bits choose what else is told."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 5)
    size = int(lengths.sum())
    more = {"interval_s": 15.0} if seed & 1 else {}
    if seed & 2:
        more |= {"phase": rng.integers(0, 2, size), "phase_names": ("idle", "busy")}
    if seed & 4:
        more |= {"limit": rng.integers(1, 9, (5, 2)).astype(float), "units": {"a": "pod", "b": "pod"}}
    return ContainerSeries(
        resources=(CPU, MEMORY), containers=("a", "b", "b", "c", "a"), lengths=lengths, values=rng.integers(0, 32, (size, 2)) / 4,
        time_s=np.concatenate([15.0 * np.arange(n) + 200 * k for k, n in enumerate(lengths)]), **more,
    )  # fmt: skip


def test_what_series_tell():
    found = []
    for seed in range(8):
        one = drawn(seed)
        told = {
            "rows": [one.rows(k) for k in range(5)], "segments": list(one.segments()), "chosen": one.select([3, 0, 1]),
            "memory": one.select_resources(["memory"]), "ends": [one.ends(delays) for delays in (0, 1, 3)],
            "windows": [one.windows(delays) for delays in (0, 2)],
            "again": ContainerSeries.from_arrays({"x": one.values[:4], "y": one.values[1:3]}, ["cpu", MEMORY], 30.0),
        }  # fmt: skip
        wrong = [
            outcome(type(one), **{**{name: getattr(one, name) for name in one.__dataclass_fields__}, field: value})
            for field in ("lengths", "values", "time_s", "phase", "limit", "containers", "interval_s")
            for value in (np.zeros((1, 1)), np.full(len(one.time_s), np.nan), ("a",), -1.0)
        ]
        found.append({**parts(one), **told, "wrong": [isinstance(each, str) and each[:60] for each in wrong]})
    assert_kept(KEPT / "series.json", by_name(found))


def test_what_is_said_of_drawn_plans():
    found = []
    for seed in range(60):
        rng, series = np.random.default_rng(seed), drawn(1 + 2 * (seed % 4))
        cycle = int(rng.integers(1, 4))
        levels = {
            k: tuple((rng.integers(0, 40, -(-int(n) // cycle)) / 4).tolist()) for k, n in enumerate(series.lengths)
        }
        claim = ClairvoyantClaim(
            resource=("cpu", "memory")[seed % 2], cycle_samples=cycle, first=float(rng.integers(0, 9)),
            allowed=float(rng.integers(0, 5)) / 8, share=float(rng.choice([0.9, 1.0])),
            checkpoint_s=None if seed % 3 == 0 else 60.0, startup_s=30.0, price=float(rng.integers(0, 4)),
            bound=float(rng.integers(0, 60)), total=float(rng.integers(0, 90)), plan=levels,
        )  # fmt: skip
        found.append(outcome(check_clairvoyant, series, claim, 0.01 + seed % 2))
    assert_kept(KEPT / "plans.json", {f"{seed}": said for seed, said in enumerate(found)})
