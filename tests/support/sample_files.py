"""Small files as readers of the documents might have: jobs, metrics, ratings, an application."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

STEP_S = 15


def write_jobs(path: Path) -> None:
    """Write a table of jobs: submission, run time, GPUs."""
    rng = np.random.default_rng(0)
    submit = np.cumsum(rng.integers(60, 1800, 60)).tolist()
    rows = zip(submit, rng.integers(600, 20_000, 60).tolist(), rng.choice([1, 2, 4, 8], 60).tolist(), strict=True)
    path.write_text("submit,duration,gpus\n" + "".join(f"{at},{length},{gpus}\n" for at, length, gpus in rows))


def consumption(seed: int, containers: int = 40) -> list[tuple[str, np.ndarray]]:
    """Return random CPU and memory consumption of some containers."""
    from optim.workloads.containers import ContainerOptions, generate_containers

    options = ContainerOptions(num_containers=containers, phase_length=4.0)  # of two to six hours
    series = generate_containers(options, seed=seed)
    ends = series.starts + series.lengths
    return [
        (name, series.values[begin:end])
        for name, begin, end in zip(series.containers, series.starts, ends, strict=True)
    ]


def write_metrics(path: Path) -> None:
    """Write a table of samples: container, time, CPU, memory."""
    lines = ["container,time_s,cpu,memory\n"]
    for name, values in consumption(1 if path.stem == "fresh" else 0):
        lines += [f"{name},{STEP_S * at},{cpu:.6f},{memory:.6f}\n" for at, (cpu, memory) in enumerate(values.tolist())]
    path.write_text("".join(lines))


def write_answers(path: Path) -> None:
    """Write Prometheus' answer to a query over a range, of one resource."""
    metric = {"cpu": "container_cpu_usage_seconds_total", "mem": "container_memory_working_set_bytes"}[path.stem]
    found = []
    for name, values in consumption(0):
        told = np.cumsum(values[:, 0]) * STEP_S if path.stem == "cpu" else values[:, 1] * 2**30
        samples = [[STEP_S * at, f"{value:.6f}"] for at, value in enumerate(told.tolist())]
        found.append({"metric": {"__name__": metric, "container": name, "pod": name}, "values": samples})
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}))


def write_ratings(path: Path) -> None:
    """Write ratings of items by users."""
    rng = np.random.default_rng(0)
    pairs = sorted({(int(u), int(i)) for u, i in rng.integers(1, 60, (900, 2))})
    path.write_text("".join(f"{user},{item},{rng.integers(1, 6)}\n" for user, item in pairs))


def write_application(path: Path) -> None:
    """Write a module with a training application."""
    path.write_text(
        "import numpy as np\n"
        "from optim.training.application import UserApplication\n\n\n"
        "class MyApplication(UserApplication):\n"
        "    def sizes(self):\n        return [2, 3]\n\n"
        "    def start(self):\n        return np.zeros(1)\n\n"
        "    def loss(self, parameters, partition, clock):\n"
        "        return float((parameters[0] - partition) ** 2 / 2)\n\n"
        "    def slope(self, parameters, partition, clock):\n        return parameters - partition\n"
    )


def write_instance(path: Path) -> None:
    """Write an admission instance."""
    import optim

    optim.save(optim.reference_instance("tiny-0"), path)


SAMPLES: Mapping[str, Callable[[Path], None]] = MappingProxyType(
    {
        "mine.csv": write_jobs,
        "metrics.csv": write_metrics,
        "fresh.csv": write_metrics,
        "cpu.json": write_answers,
        "mem.json": write_answers,
        "ratings.csv": write_ratings,
        "my_module.py": write_application,
        "huge.json.gz": write_instance,
    }
)
"""How a file of a name is made."""
