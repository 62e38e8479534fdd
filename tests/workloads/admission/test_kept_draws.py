"""What the admission generators draw with every option changed, and the stress instances, compared with what is kept."""

from pathlib import Path

import numpy as np
from optim_studies import stress

from optim.workloads.admission.generator import (
    GPU_TYPES,
    GeneratorOptions,
    UtilityMix,
    check_range,
    check_types,
    draw_arrivals,
    draw_durations,
    draw_servers,
    drawn_days,
    generate,
    merged,
)
from optim.workloads.admission.traces import TraceOptions, num_ps, read_trace
from tests.support.kept import assert_kept, outcome, parts, short
from tests.support.trace_files import alibaba_file, gavel_file, philly_file, pod
from tests.support.variants import option_variants

TYPES = GPU_TYPES[:2]
KEPT = Path(__file__).parent / "kept"
TINY = {"num_jobs": 6, "num_slots": 8, "num_worker_servers": 3, "num_ps_servers": 2, "min_schedulable": 0.1}
MORE = [
    {"shared_servers": True}, {"chunk_integral": True}, {"max_share_per_server": 0.25}, {"chunks": (1, 3)},
    {"shared_servers": True, "num_slots": 30}, {"arrival_swing": 0.0}, {"arrival_burstiness": 0.0}, {"slot_s": 600.0},
    {"min_schedulable": 1.0}, {"utilities": UtilityMix(insensitive=1.0, sensitive=0.0, critical=0.0)},
]  # fmt: skip


def told(draw, given):
    """Return what is drawn, in short, or why nothing is."""
    drawn = outcome(lambda: draw(given))
    return drawn if isinstance(drawn, str) else short(drawn)


def test_draws_with_every_option_changed():
    cases = [*option_variants(GeneratorOptions, **TINY), *((str(one), {**TINY, **one}) for one in MORE)]
    found = {what: told(lambda one: generate(GeneratorOptions(**one), 3), given) for what, given in cases}
    found |= {
        f"mix {what}": outcome(lambda one=given: parts(UtilityMix(**one)))
        for what, given in option_variants(UtilityMix)
    }
    found["days"] = [short(one) for one in drawn_days(generate(GeneratorOptions(**TINY), 0), 2, 5)]
    assert_kept(KEPT / "draws.json", found)


def test_parts_of_draws():
    def rng():
        return np.random.default_rng(8)

    sides = [draw_servers(TYPES[:number], 5, 30, rng()) for number in (1, 2)]
    found = {
        "arrivals": [draw_arrivals(20, 40, 3600.0, swing=swing, burstiness=burst, rng=rng()) for swing in (0.0, 0.5) for burst in (0.0, 0.7)],
        "durations": draw_durations(5.0, 2.0, 0.5, np.linspace(1, 9, 12), rng()),
        "servers": outcome(lambda: sides), "merged": outcome(lambda: merged(sides[0], sides[1])),
        "types": [outcome(check_types, "types", given) for given in ((), ("nothing",), TYPES[:1])],
        "ranges": [outcome(check_range, "r", given, least=1.0, is_open=is_open) for given in ((1, 2), (2, 1), (0, 3)) for is_open in (False, True)],
    }  # fmt: skip
    assert_kept(KEPT / "parts.json", found)


def test_stress_instances():
    found = {name: short(make()) for name, make in stress.STRESS_INSTANCES.items()}
    found["refused"] = outcome(stress.worker_faster_than_ps)
    found["longer"] = [
        short(stress.density_ladder(steps=2, factor=3.0, per_server=2, num_servers=2, horizon=3)),
        short(stress.blockade(burst=4)),
    ]
    assert_kept(KEPT / "stress.json", found)


def trace_files(folder):
    """Write one trace a format, of 30 jobs."""
    numbers = range(30)
    merged_jobs = [[f"application_{n}", 500 * n, 1 + n % 4, 2000 + 400 * (n % 9), f"vc{n % 2}"] for n in numbers]
    gavel = [
        [f"vc{n % 2}", n, ("A", "B (batch size 2)")[n % 3 == 2], 4000 + 100 * n, 300 * n, (1, 4, 2)[n % 3]]
        for n in numbers
    ]
    pods = [
        pod(
            f"p{n}",
            n % 3,
            1000 if n % 2 else 500,
            (200 * n, 200 * n + 5000, 200 * n + 60),
            ("Running", "Failed", "Succeeded")[n % 3],
        )
        for n in numbers
    ]
    for one in ("philly", "gavel", "alibaba"):
        (folder / one).mkdir()
    return {
        "philly": philly_file(folder / "philly", merged_jobs), "gavel": gavel_file(folder / "gavel", gavel),
        "alibaba": alibaba_file(folder / "alibaba", pods),
    }  # fmt: skip


def test_samples_of_traces_with_every_option_changed(tmp_path):
    files, found = trace_files(tmp_path), {}
    base = {"num_jobs": 5, "num_slots": 24, "slot_minutes": 15.0, "min_schedulable": 0.1}
    more = [
        {"cluster_share": 0.5}, {"num_worker_servers": 3, "num_ps_servers": 2}, {"max_duration_s": 4000.0}, {"window_start_s": 3000.0},
        {"virtual_cluster": "vc1"}, {"virtual_cluster": "none"}, {"gpu_type": "k80"}, {"num_jobs": 500},
    ]  # fmt: skip
    for form, path in files.items():
        cases = [*option_variants(TraceOptions, **base), *((str(one), {**base, **one}) for one in more)]
        for what, given in cases if form == "alibaba" else [cases[0], *cases[-len(more) :]]:
            said = told(lambda one, where=path, kind=form: read_trace(where, kind, TraceOptions(**one), 2), given)
            found[f"{form} {what}"] = said.replace(str(tmp_path), "") if isinstance(said, str) else said
    found["ps"] = [num_ps(gpus, TraceOptions(ps_per_gpu=share)) for gpus in (1, 3, 8) for share in (0.25, 0.5, 2.0)]
    assert_kept(KEPT / "traces.json", found)
