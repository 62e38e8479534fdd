"""What the parts of studies draw, search, train and sum up at the smallest sizes, compared with what is kept."""

from pathlib import Path

import numpy as np
from optim_studies.adversary import SketchRanges, best_plan, draw_sketch, evaluate, found_name, neighbour
from optim_studies.anomalies import DetectionOptions, faulty_containers
from optim_studies.crbm import PlainCrbm
from optim_studies.crbm import scaled as scaled_times
from optim_studies.densities import DensityOptions, moments_to_forecast
from optim_studies.faults import FaultKind
from optim_studies.forecast import ForecastStudyOptions, Point, as_findings, draw
from optim_studies.lessons import LessonOptions, Saving, ends_well, falling_losses
from optim_studies.misreport import MisreportOptions, _kept, divide, study, value_tables
from optim_studies.recommendation import drawn_block
from optim_studies.series import given_series, series_name
from optim_studies.themis import WorldOptions
from optim_studies.themis_lies import CASES, LieOptions, saved, summed_up, world_of

from optim.models.auction.decision import PaymentRule
from optim.phases import adjusted_rand_index
from optim.rightsizing.phase_recovery import _by_phase, _scored, summarise
from optim.statistics import Interval
from tests.support.auction.builders import auction, linear
from tests.support.kept import assert_kept, outcome, short
from tests.support.logged_runs import as_run, kept_records
from tests.support.variants import option_variants

KEPT = Path(__file__).parent / "kept"


def judged(sketch):
    """Return what a rule earns on a sketch, and what is possible."""
    found = evaluate("zero-start", sketch, 0.0)
    return None if found is None else [found.rule, found.objective, found.optimum, found.ratio]


def test_sketches_and_their_optima():
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sketch = draw_sketch(SketchRanges(horizon=3, servers=2, waves=3), rng)
        near = [neighbour(sketch, SketchRanges(horizon=3, servers=2, waves=3), rng) for _ in range(4)]
        told = [sketch, sketch.in_order(), short(sketch.instance("x")), near]
        told += [outcome(best_plan, sketch), outcome(judged, sketch)]
        found.append(told)
    wrong = [outcome(SketchRanges, **given) for _, given in option_variants(SketchRanges)]
    assert_kept(KEPT / "sketches.json", {"drawn": found, "wrong": wrong, "name": found_name("zero-start", "small")})


def test_lies_in_one_auction():
    auctions = [auction([4], linear(4, 8.0 + k), linear(3, 7.0), linear(4, 9.0)) for k in range(3)]
    values = np.stack([value_tables(one, 4) for one in auctions])
    found = {"values": values, "divided": [divide(values, is_zero=zero) for zero in (False, True)]}
    found["kept"] = [_kept(rule, share, 4) for rule in PaymentRule for share in (0.0, 0.3, 0.6, 1.0)]
    options = MisreportOptions(instances=3, misreports=4, apps=3, gpus=4)
    found["study"] = [study(auctions, rule, options, np.random.default_rng(2)) for rule in PaymentRule]
    assert_kept(KEPT / "lies.json", found)


def test_a_machine_trained_in_place():
    rng = np.random.default_rng(1)

    def machine():
        draw = np.random.default_rng(1)
        sizes = {"windows": (12, 6), "weights": (2, 3), "dynamic": (4, 5), "bias": (5,)}
        arrays = {name: (0.3 * draw.standard_normal(size)).astype(np.float32) for name, size in sizes.items()}
        return PlainCrbm(num_visible=2, **arrays)

    whole, single = machine(), machine()
    whole.epoch(rng, 5, 0.05, 0.5, 0.01)
    whole.epoch(rng, 5, 0.05, 0.5, 0.01)
    single.one_by_one(np.arange(5), 0.1)
    told = [
        {name: [f"{number:.3f}" for number in values.ravel()] for name, values in one.fields().items()}
        for one in (whole, single)
    ]
    assert_kept(
        KEPT / "machine.json", {"epochs": told[0], "one by one": told[1], "times": scaled_times({"a": 2.0}, 1e3)}
    )


def test_series_moments_faults_and_blocks():
    density = DensityOptions(containers=6, moments=5, paths=3, steps=4)
    given, faults = moments_to_forecast(density, 2), DetectionOptions(containers=5, usual=5, tested=5)
    found = {
        "moments": short(given), "faulty": [short(faulty_containers(kind, faults, 1)) for kind in list(FaultKind)[:2]],
        "given": short(given_series("generated", 3, 1)), "names": [series_name(*one) for one in (("generated", 3), ("a/b.csv", 3))],
        "blocks": [short(drawn_block(number, 2, 60, 1)) for number in (0, 1)],
    }  # fmt: skip
    assert_kept(KEPT / "series.json", found)


def test_scores_lessons_and_points():
    rng = np.random.default_rng(0)
    truth, labels = rng.integers(0, 4, 40), rng.integers(0, 4, 40)
    mask, inner = np.ones(40, bool), rng.random(40) < 0.7
    rows = [
        outcome(_scored, encoder, seed, 4, truth, (labels + seed) % 4, mask, inner)
        for encoder in ("a", "b")
        for seed in range(2)
    ]
    points = [Point(**{name: float(k + j) for j, name in enumerate(Point.__dataclass_fields__)}) for k in range(3)]
    record = kept_records()["troubled"]
    runs = [as_run(record, number) for number in range(3)]
    day, earlier = draw(ForecastStudyOptions(jobs=4, slots=5, servers=2), 2, 1)
    found = {
        "rows": rows, "phases": _by_phase(truth, labels), "summary": outcome(summarise, [one for one in rows if not isinstance(one, str)][:2]),
        "index": adjusted_rand_index(truth, labels), "points": as_findings(points), "days": [short(day), [short(one) for one in earlier]],
        "losses": falling_losses(3, np.random.default_rng(1)), "well": [ends_well(record.jobs, run) for run in runs],
        "saving": [Saving.of(record.jobs, runs[0], run) for run in runs], "jobs": short(LessonOptions(jobs=20).workload(1)),
        "cluster": LessonOptions().cluster, "saved": [saved(*pair) for pair in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0))],
        "summed": outcome(summed_up, [[Interval.of([0.1, 0.2]), Interval.of([-0.2, -0.1])], [Interval.of([-0.1, 0.1])]]),
        "worlds": [outcome(world_of, LieOptions(), case) for case in (*CASES, "none")], "world": WorldOptions(),
    }  # fmt: skip
    assert_kept(KEPT / "scores.json", found)


def test_wrong_options():
    found = {}
    for kind in (
        DensityOptions,
        DetectionOptions,
        ForecastStudyOptions,
        LessonOptions,
        MisreportOptions,
        LieOptions,
        WorldOptions,
    ):
        found[kind.__name__] = {what: outcome(kind, **given) for what, given in option_variants(kind)}
    assert_kept(KEPT / "options.json", found)
