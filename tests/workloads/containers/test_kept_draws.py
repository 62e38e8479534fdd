"""What is drawn and read of containers, with every option and cell changed, compared with what is kept."""

import json
from pathlib import Path

import numpy as np
from optim_studies import generator_fit
from optim_studies.faults import FaultKind, inject
from optim_studies.generator_fit import autocorrelation, distance, summary_statistics

from optim.workloads.containers import ContainerOptions, generate_containers, read_containers
from optim.workloads.containers.generator import two_state_chain
from optim.workloads.containers.prometheus import read_prometheus
from tests.support.kept import assert_kept, outcome, short
from tests.support.variants import answers, option_variants
from tests.support.varied_tables import with_cells

KEPT = Path(__file__).parent / "kept"
MORE = (
    {"has_network": True, "idle_share": 0.5},
    {"missing": 0.2, "jitter": 0.3},
    {"drift": 0.5},
    {"idle_share": 0.7, "idle_memory": 0.5},
    {"noise": 0.0},
)


def test_draws_with_every_option_changed():
    found = {}
    for what, given in [
        *option_variants(ContainerOptions, num_containers=3),
        *((str(one), {"num_containers": 3, **one}) for one in MORE),
    ]:
        drawn = outcome(lambda one=given: generate_containers(ContainerOptions(**one), 3))
        found[what] = drawn if isinstance(drawn, str) else short(drawn)
    series = generate_containers(ContainerOptions(num_containers=5), 1)
    for kind in FaultKind:
        for share in (0.0, 0.4, 1.0, 2.0):
            drawn = outcome(inject, series, kind, share, 7)
            found[f"{kind} {share}"] = drawn if isinstance(drawn, str) else short(drawn)
    draws = np.random.default_rng(0).random(60)
    found["chains"] = [
        two_state_chain(high, draws, rise=rise, fall=0.3) for high in (False, True) for rise in (0.0, 0.2, 1.0)
    ]
    found["traits"] = [
        summary_statistics(series),
        summary_statistics(series.select([0, 2])),
        distance(summary_statistics(series), 2 * summary_statistics(series)),
    ]
    found["autocorrelation"] = [autocorrelation(series.values[:50], lag) for lag in (1, 4)]
    assert_kept(KEPT / "draws.json", found)


def test_tables_with_one_cell_changed(tmp_path):
    def read(path):
        return read_containers(path)

    own = [
        ["container", "time_s", "cpu", "memory", "disk", "cpu_limit", "phase"],
        *([f"c{n // 6}", 15 * (n % 6), 0.1 * n, 1 + n, 5, 2, ("run", "start")[n % 2]] for n in range(12)),
    ]
    header = {
        "bitbrains": "Timestamp [ms];\tCPU cores;\tCPU capacity provisioned [MHZ];\tCPU usage [MHZ];\tCPU usage [%];\tMemory capacity provisioned [KB];\tMemory usage [KB]",
    }  # fmt: skip
    del header
    found = {f"own {what}": said for what, said in with_cells(tmp_path / "own.csv", read, own).items()}
    assert_kept(KEPT / "tables.json", found)


def test_answers_of_a_monitor_with_one_field_changed(tmp_path):
    labels = {"namespace": "n", "pod": "p-0", "container": "c"}
    cpu = {
        "metric": {"__name__": "container_cpu_usage_seconds_total", **labels},
        "values": [[15 * k, str(0.5 * k if k < 5 else k - 5)] for k in range(8)],
    }
    memory = {
        "metric": {"__name__": "container_memory_working_set_bytes", **labels},
        "values": [[15 * k, str(1000 + k)] for k in range(8)],
    }

    def said(document):
        path = tmp_path / "answer.json"
        path.write_text(json.dumps(document))
        found = [outcome(read_prometheus, files) for files in ({"": path}, {"cpu": path})]
        return [one.replace(str(tmp_path), "") if isinstance(one, str) else short(one) for one in found]

    document = {"status": "success", "data": {"resultType": "matrix", "result": [cpu, memory]}}
    assert_kept(KEPT / "answers.json", answers(document, said, 2))


def test_rounds_of_a_fit(monkeypatch):
    """Traits that hang together over the knobs, so that one round doesn't do; what is tried is kept in its order."""
    tried = []

    def traits_of(options, seed):
        knobs = [list(values).index(getattr(options, name)) for name, values in generator_fit.PARAMETERS.items()]
        tried.append([*knobs, seed])
        return np.array(
            [[knobs[0] - knobs[1], knobs[1] + knobs[2] - 3.0], [knobs[2] - 2 * knobs[0], knobs[3] - knobs[0]]], float
        )

    monkeypatch.setattr(generator_fit, "drawn_traits", traits_of)
    monkeypatch.setattr(generator_fit, "summary_statistics", lambda series: np.array([[0.0, 0.0], [-1.0, 0.0]]))
    made = generator_fit.fit_generator(generate_containers(ContainerOptions(num_containers=1), 0), 4, 7)
    assert_kept(KEPT / "fit.json", {"made": made, "tried": tried, "number": len(tried)})
