"""Every example that a command's help ends with is run, in a folder that holds the files it names."""

import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from optim.cli.commands import EXAMPLES
from optim.cli.messages import ExitCode
from tests.support.sample_files import SAMPLES

ENOUGH_S = 20.0
"""Processor seconds: an example that takes longer may still have correct options; Ctrl-C stops it."""

QUICK = ("solvers",)
"""Commands whose examples are run with every change; the others' before a release."""

MADE_BY = {
    "verify small-0 s.json": "solve small-0 --solver online --out s.json",
    "verify admission mine.json s.json": "solve mine.json --solver online --out s.json",
    "verify run.npz": "simulate cluster --trace mine.csv --gpus 1x8 --policy fifo --log run.npz",
    "run tiny-0 s.json": "solve tiny-0 --solver online --out s.json",
    "i.json": "instance generate admission --jobs 8 --slots 12 --out i.json",
    "mine.json": "instance generate admission --jobs 8 --slots 12 --out mine.json",
    "model.npz": "phases fit --generate 40 --phases 3 --out model.npz",
    "other.npz": "phases fit --generate 40 --phases 3 --seed 1 --out other.npz",
}
"""Commands that create the input of an example, or a file that it names."""


def compressed(text: str) -> bytes:
    """Return a text as the file of a name in .gz."""
    return gzip.compress(text.encode())


def table(header: str, rows: list[str]) -> str:
    """Return a table as text."""
    return "\n".join((header, *rows, ""))


def price_file() -> str:
    """Return ten weeks of prices that swing every half day."""
    days = [f"2015-{4 + day // 28:02d}-{1 + day % 28:02d}" for day in range(70)]
    rows = [
        f"{day}T{hour}:00:00Z,us-east-1a,c3.xlarge,0.0{3 + (k + half) % 5}"
        for k, day in enumerate(days)
        for half, hour in enumerate(("00", "12"))
    ]
    return table("timestamp,zone,instance_type,price_usd_per_hour", rows)


def zone_file() -> str:
    """Return twenty days in which machines of a zone are often there."""
    rows = [
        f"{k},2023-02-{1 + k // 144:02d} {k % 144 // 6:02d}:{k % 6}0:00,us-west-2a,{int(k % 7 > 0)},1.0"
        for k in range(144 * 20)
    ]
    return table("tick,timestamp_local,zone,available,price_usd_per_hour", rows)


def philly_file() -> str:
    """Return jobs of a few days in the format of Philly's merged list."""
    return table(
        "job_id,submit_s,num_gpus,duration_s,vc", [f"{k},{900 * k},{1 + k % 4},{600 + 90 * k},a" for k in range(120)]
    )


def price_list() -> str:
    """Return a response of Amazon's API with a history of spot prices."""
    entry = {
        "AvailabilityZone": "z",
        "InstanceType": "c3.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.1",
    }
    times = [f"2015-03-0{day}T00:00:00Z" for day in (1, 2)]
    return json.dumps({"SpotPriceHistory": [{**entry, "Timestamp": time} for time in times]})


def utilisation_file() -> str:
    """Return the utilisation of two GPUs over four hours, idle after the first."""
    rows = [f"{at},g{gpu},{90 if at < 3600 else 0},ann,train" for at in range(0, 4 * 3600, 600) for gpu in range(2)]
    return table("time_s,gpu,utilisation,user,job", rows)


def utilisation_answer() -> str:
    """Return the same utilisation as Prometheus' response to a range query."""
    found = [
        {
            "metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": str(gpu), "Hostname": "n", "exported_pod": "train"},
            "values": [[at, "90" if at < 3600 else "0"] for at in range(0, 4 * 3600, 60)],
        }
        for gpu in range(2)
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}})


FILES = {
    "gpu_util.csv": utilisation_file().encode(),
    "jobs.csv": b"id,submit,gpus,duration\ntrain,0,2,14400\nnext,600,1,600\n",
    "gpu_util.json": utilisation_answer().encode(),
    "options.toml": b"max_nodes = 20\n",
    "prices.csv.gz": compressed(price_file()),
    "on_demand.csv.gz": compressed("instance_type,on_demand_usd_per_hour\nc3.xlarge,0.21\n"),
    "zones.csv": zone_file().encode(),
    "jobs.csv.gz": compressed(philly_file()),
    "prices.json": price_list().encode(),
    "train.py": (Path(__file__).parents[2] / "examples" / "train_jax.py").read_bytes(),
}


def seconds_of(process: int) -> float:
    """Return a process' processor seconds so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def optim(folder: Path, words: str, most_s: float = 1e9) -> tuple[int, str]:
    """Run a command in a folder as from a shell, with a time limit in seconds; return its exit code and output."""
    told = folder / "told.txt"
    with told.open("w") as file:
        ran = subprocess.Popen(
            [sys.executable, "-m", "optim.cli", *shlex.split(words)],
            cwd=folder,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        while True:
            with suppress(subprocess.TimeoutExpired):
                return ran.wait(timeout=0.2), told.read_text()
            if seconds_of(ran.pid) > most_s:
                ran.send_signal(signal.SIGINT)
                most_s = 1e9


def prepare(folder: Path, words: str) -> None:
    """Put the files that an example reads into a folder."""
    makers = {key: made for key, made in MADE_BY.items() if words.startswith(key)}
    read = re.sub(r"--(?:out|log|report|picture) \S+", "", words)
    named = set(re.findall(r"[\w.]+\.(?:json|csv|npz|toml|py)(?:\.gz)?", read + "".join(makers.values())))
    for name in sorted(named):
        if name in SAMPLES:
            SAMPLES[name](folder / name)
        elif name in FILES:
            (folder / name).write_bytes(FILES[name])
        elif name in MADE_BY:
            makers = {name: MADE_BY[name], **makers}
    for made in makers.values():
        code, told = optim(folder, made)
        assert code == ExitCode.DONE, f"optim {made}: {told}"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(f"{command} {words}".strip(), marks=[] if command in QUICK else pytest.mark.prove)
        for command, three in EXAMPLES.items()
        for words in three
    ],
)
def test_every_example_does_what_it_says(tmp_path: Path, words: str) -> None:
    prepare(tmp_path, words)
    noise = " --accept-noise" if words.startswith("profile --") and "--command" not in words else ""  # of other tests
    code, told = optim(tmp_path, words + noise, ENOUGH_S)
    assert code in {ExitCode.DONE, ExitCode.INTERRUPTED}, told
    assert "optim: error:" not in told.replace("optim: error: interrupted", "")
    for name in re.findall(r"--(?:out|log|report|picture) (\S+)", words):
        assert code == ExitCode.INTERRUPTED or (tmp_path / name).stat().st_size > 0
