"""Valid inputs of every reader, small, and the commands that read them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import optim
from optim.workloads.instances import find_instance

FILE = "{}"
"""Placeholder of the damaged file in a command."""


@dataclass(frozen=True)
class Kind:
    """One type of file: a valid one, its name, and the commands that read it.

    `beside` contains further files that the commands need, by name. `named` is the file's name if the commands depend on it.
    `seal` corrects the checksum that a file contains, so that a reader checks more than the checksum.
    """

    name: str
    content: bytes
    commands: tuple[str, ...]
    beside: Mapping[str, bytes] = field(default_factory=dict)
    named: str = ""
    seal: Callable[[bytes], bytes] | None = None


def instance_bytes(name: str) -> bytes:
    """Return a reference instance's document."""
    from optim.models.catalogue import problem_of

    instance = find_instance(name)
    return problem_of(instance).write_instance(instance)


def solution_bytes(name: str, solver: str) -> bytes:
    """Return a solution's document."""
    from optim.models.files import write_solution

    instance = find_instance(name)
    return write_solution(optim.solve(instance, solver), instance)


ADMISSION = ("tiny-0", ("online", "fifo", "column-generation", "branch-and-price", "drf", "dorm", "rrh"))
AUCTION = ("auction-tiny-0", ("exact", "greedy"))
BIDDING = ("spot-tiny-windows", ("dinkelbach", "greedy", "exchange"))


def _instances() -> list[Kind]:
    kinds = []
    for name, solvers in (ADMISSION, AUCTION, BIDDING):
        content = instance_bytes(name)
        solves = tuple(f"solve {FILE} --time-limit 1 --solver {solver}" for solver in solvers)
        others = (f"instance describe {FILE}", f"instance describe {FILE} --format json", f"instance convert {FILE}")
        verify = f"verify {FILE} solution.json"
        kinds.append(
            Kind(name, content, (*solves, *others, verify), {"solution.json": solution_bytes(name, solvers[0])})
        )
        for solver in solvers:
            commands = (f"verify {name} {FILE}", f"verify {name} {FILE} --format json")
            kinds.append(Kind(f"{name} by {solver}", solution_bytes(name, solver), commands, {}))
    return kinds


def _table(header: str, rows: list[list[object]]) -> bytes:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows), ""]).encode()


def _prices() -> list[Kind]:
    days = [
        f"2015-03-{day:02}T{hour:02}:{minute}:00Z" for day in range(1, 17) for hour in range(24) for minute in (15, 45)
    ]
    rows = [[time, "us-east-1a", "c3.xlarge", 0.02 + 0.01 * (number % 7)] for number, time in enumerate(days)]
    prices = _table("timestamp,zone,instance_type,price_usd_per_hour", rows)
    on_demand = _table("instance_type,on_demand_usd_per_hour", [["c3.xlarge", 0.209], ["c3.2xlarge", 0.419]])
    entries = [
        {"Timestamp": time, "AvailabilityZone": zone, "InstanceType": kind, "SpotPrice": str(price),
         "ProductDescription": "Linux/UNIX"}
        for time, zone, kind, price in rows
    ]  # fmt: skip
    spot = "simulate spot --starts 1 --processes 1 --job-hours 2 --policy on-demand --policy standard"
    generate = "instance generate bidding --instance-option prices={} --instance-option on_demand=on_demand.csv"
    return [
        Kind("prices", prices, (f"{spot} --prices {FILE} --on-demand on_demand.csv", generate),
             {"on_demand.csv": on_demand}),
        Kind("on demand", on_demand, (f"{spot} --prices prices.csv --on-demand {FILE}",), {"prices.csv": prices}),
        Kind("Amazon's prices", json.dumps({"SpotPriceHistory": entries}).encode(),
             (f"{spot} --prices {FILE} --on-demand on_demand.csv",), {"on_demand.csv": on_demand}),
    ]  # fmt: skip


def _availability() -> list[Kind]:
    spot = "simulate spot --starts 1 --processes 1 --job-hours 2 --deadline-hours 6 --changeover-hours 0.1 --on-demand 3.06"
    rows = [
        [tick, f"2023-02-15T{tick // 6:02}:{tick % 6}0:00", "us-west-2a", int(tick % 5 > 0), 0.9] for tick in range(140)
    ]
    other = [["spot", 1, "c1", "us-west-2a", "v100_1", 600, tick, int(tick % 4 > 0)] for tick in range(140)]
    recording = {
        "metadata": {"gap_seconds": 600, "start_time": "2022-10-26T00:00:00Z"},
        "data": [int(tick % 5 == 0) for tick in range(140)],
        "prices": [0.9] * 140,
    }
    return [
        Kind("availability", _table("tick,timestamp_local,zone,available,price_usd_per_hour", rows),
             (f"{spot} --availability {FILE} --zone us-west-2a",), {}),
        Kind("availability of campaigns", _table("kind,nodes,campaign,zone,resource,gap_seconds,tick,value", other),
             (f"{spot} --availability {FILE} --zone c1/us-west-2a/v100_1/spot",), {}),
        Kind("availability as JSON", json.dumps(recording).encode(),
             (f"{spot} --availability {FILE} --polarity unavailable",), {}, "recording.json"),
    ]  # fmt: skip


def _traces() -> list[Kind]:
    def command(form: str, *options: str) -> tuple[str, ...]:
        more = "".join(f" --instance-option {option}" for option in options)
        return (f"instance convert --trace {FILE} --trace-format {form} --jobs 5 --slots 48 --slot-minutes 30{more}",)

    merged = [[f"application_{n}", 600 * n, 1 + n % 4, 3000 + 500 * (n % 9), "vc1"] for n in range(60)]
    pollux = [[f"2017-10-03 {n // 6:02}:{n % 6}0:00", 3000 + 100 * n, 1 + n % 4, "philly"] for n in range(60)]
    gavel = [["vc1", n, "ResNet-18 (batch size 64)", 10_000 + n, 600 * n, 1 + n % 2] for n in range(60)]
    table = {"v100": {f"('ResNet-18 (batch size 64)', {gpus})": {"null": 20.0 * gpus} for gpus in (1, 2, 4)}}
    pods = [[f"pod-{n}", 4000, 8192, 1, 1000, "Succeeded", 600 * n, 600 * n + 5000, 600 * n + 10] for n in range(60)]
    nodes = [[64_000, 262_144, 4, "V100M16"], [96_000, 393_216, 8, "G2"], [32_000, 131_072, 0, ""]]
    pod_header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,pod_phase,creation_time,deletion_time,scheduled_time"
    gavel_table = _table("vc,idx,job_type,total_steps,arrival_s,scale_factor", gavel)
    pod_table, node_table = _table(pod_header, pods), _table("cpu_milli,memory_mib,gpu,model", nodes)
    rates = json.dumps(table).encode()
    return [
        Kind("philly", _table("job_id,submit_s,num_gpus,duration_s,vc", merged), command("philly"), {}),
        Kind("pollux", _table("timestamp,duration,num_gpus,cluster", pollux), command("philly"), {}),
        Kind("gavel", gavel_table, command("gavel", "throughputs=rates.json"), {"rates.json": rates}),
        Kind("gavel's rates", rates,
             ("instance convert --trace jobs.csv --trace-format gavel --jobs 5 --slots 48 --slot-minutes 30 --instance-option throughputs={}",), {"jobs.csv": gavel_table}),
        Kind("alibaba", pod_table, command("alibaba", "nodes=nodes.csv"), {"nodes.csv": node_table}),
        Kind("alibaba's nodes", node_table,
             ("instance convert --trace pods.csv --trace-format alibaba --jobs 5 --slots 48 --slot-minutes 30 --instance-option nodes={}",), {"pods.csv": pod_table}),
    ]  # fmt: skip


def _runs(run: Callable[[str], object]) -> list[Kind]:
    """Return a user's table of jobs, and the record of a run."""
    simulate = "simulate cluster --gpus 2x8 --policy fifo,srtf"
    run(f"{simulate} --generate philly --jobs 20 --log run.npz")
    jobs = [
        [n % 5, f"j{n}", 60 * n, 1 + n % 4, 600 + 50 * n, f"vc{n % 2}", f"u{n % 3}", "COMPLETED"] for n in range(40)
    ]
    return [
        Kind("own jobs", _table("priority,id,submit,gpus,duration,vc,user,status", jobs),
             (f"{simulate} --trace {FILE} --trace-format csv",)),
        Kind("run", Path("run.npz").read_bytes(), (f"verify {FILE}",), named="spoilt.npz"),
    ]  # fmt: skip


def _clusters() -> list[Kind]:
    """Return clusters as files, of all forms, with and without the resources that jobs or hosts need."""
    machines = [
        {"gpus": 4, "count": 3, "kind": "V100", "rack": 0, "cpus": 64.0, "memory_gb": 256.0, "partitions": ["a", "b"]},
        {"gpus": 8, "count": 2, "kind": "A100", "rack": 1, "partitions": ["b"]},
    ]
    topology = json.dumps({"schema": "optim/cluster/1", "machines_a_rack": 4, "machines": machines}).encode()
    plain = json.dumps({"schema": "optim/cluster/1", "machines": [{"gpus": 8, "count": 4}]}).encode()
    jobs = [
        [60 * n, 1 + n % 4, 600 + 50 * n, "ab"[n % 2], ("V100", "V100|A100" if n % 2 else "V100")[n % 3 > 0]]
        for n in range(30)
    ]
    switches = _table("num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node", [[2, 4, 8, 64, 256]])
    nodes = _table(
        "sn,cpu_milli,memory_mib,gpu,model", [[f"n{n}", 64_000, 262_144, 4 * n, "V100M16"] for n in range(4)]
    )
    generated = f"simulate cluster --generate themis --apps 4 --policy fifo,tiresias --gpus {FILE}"
    traced = f"simulate cluster --trace jobs.csv --policy fifo --gpus {FILE}"
    return [
        Kind("topology with types", topology, (traced,), {"jobs.csv": _table("submit,gpus,duration,partition,gpu_type", jobs)},
             named="spoilt.json"),
        Kind("topology", plain, (generated,), named="spoilt.json"),
        Kind("racks, machines and GPUs", switches, (generated,)),
        Kind("nodes of a cluster", nodes, (generated,)),
    ]  # fmt: skip


def _sacct() -> list[Kind]:
    header = (
        "JobID|JobName|User|Account|Partition|Submit|Start|End|ElapsedRaw|ReqTRES|AllocTRES|State|Timelimit|Priority"
    )
    states = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 7", "RUNNING", "PENDING")
    rows = []
    for n in range(60):
        day, asked = f"2024-01-02T{n // 12:02}:{n % 12 * 5:02}", f"cpu=4,mem=16G,gres/gpu={1 + n % 4}"
        given = f"billing=9,{asked},gres/gpu:{('v100', 'a100')[n % 2]}={1 + n % 4},node=1"
        rows += [
            f"{n}|train|u{n % 3}|lab|gpu|{day}:00|{day}:30|2024-01-03T00:00:00|{600 + 50 * n}|{asked}|{given}|"
            f"{states[n % 7 % 6]}|1-00:00:00|{n % 5}",
            f"{n}.batch|batch||||{day}:30|{day}:30|2024-01-03T00:00:00|{600 + 50 * n}||cpu=4|COMPLETED||",
        ]
    shape = "--jobs 5 --slots 48 --slot-minutes 30"
    return [
        Kind("sacct", "\n".join([header, *rows, ""]).encode(),
             (f"instance convert --trace {FILE} --trace-format sacct {shape}",
              f"simulate cluster --gpus 4x8 --policy fifo,srtf --trace {FILE} --trace-format sacct")),
    ]  # fmt: skip


def _logs() -> list[Kind]:
    """Return jobs in the other forms that authors published."""
    attempts = [
        {"start_time": f"2017-10-03 {n // 6:02}:{n % 6}5:00", "end_time": f"2017-10-03 {5 + n // 6:02}:{n % 6}0:00",
         "detail": [{"ip": f"m{n % 5}", "gpus": ["gpu0", "gpu1"][: 1 + n % 2]}]}
        for n in range(60)
    ]  # fmt: skip
    log = [
        {"jobid": f"application_{n}", "submitted_time": f"2017-10-03 {n // 6:02}:{n % 6}0:00", "vc": f"vc{n % 2}",
         "status": ("Pass", "Failed", "Killed")[n % 3], "user": f"u{n % 4}", "attempts": [attempt] * (1 + n % 2)}
        for n, attempt in enumerate(attempts)
    ]  # fmt: skip
    simulated = [[n, 1 + n % 4, 600 * n, 100 + n, "resnet50", 3000 + 500 * (n % 9), 30] for n in range(60)]
    plain = _table("job_id,num_gpu,submit_time,iterations,model_name,duration,interval", simulated)
    shape = "--jobs 5 --slots 48 --slot-minutes 30"
    return [
        Kind("Philly's log", json.dumps(log).encode(),
             (f"instance convert --trace {FILE} --trace-format philly {shape}",), named="spoilt.json"),
        Kind("tiresias", plain, (f"instance convert --trace {FILE} --trace-format tiresias {shape}",)),
    ]  # fmt: skip


def _price_lists() -> list[Kind]:
    """Return current price lists, and the cost of moves between regions."""
    azure = {
        "Items": [
            {"currencyCode": "USD", "retailPrice": 0.9 + 0.1 * n, "armRegionName": f"r{n % 2}", "armSkuName": "Standard_NC6",
             "productName": "Virtual Machines NC Series", "skuName": f"NC6{' Spot' * (n % 3 > 0)}", "unitOfMeasure": "1 Hour",
             "effectiveStartDate": f"2023-0{1 + n % 3}-01T00:00:00Z", "type": "Consumption"}
            for n in range(12)
        ]
    }  # fmt: skip
    google = {
        "skus": [
            {"description": f"{'Spot Preemptible ' * (n % 2)}N1 Predefined Instance Core running in Iowa",
             "category": {"resourceGroup": "N1Standard", "usageType": ("OnDemand", "Preemptible")[n % 2]},
             "serviceRegions": [f"us-central{n % 3}"],
             "pricingInfo": [{"effectiveTime": "2023-01-01T00:00:00Z", "pricingExpression": {"usageUnit": "h", "tieredRates": [
                 {"unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 31_000_000 + n}}]}}]}
            for n in range(8)
        ]
    }  # fmt: skip
    describe = (f"instance describe {FILE}", f"instance describe {FILE} --format json")
    rows = [[tick, f"2023-02-15T{tick // 6:02}:{tick % 6}0:00", zone, int((tick + k) % 5 > 0), 0.9]
            for tick in range(140) for k, zone in enumerate(("us-west-2a", "us-east-1a"))]  # fmt: skip
    zones = "--availability zones.csv --zone us-west-2a,us-east-1a --on-demand 3.06"
    return [
        Kind("Azure's prices", json.dumps(azure).encode(), describe),
        Kind("Google's prices", json.dumps(google).encode(), describe),
        Kind("egress", _table("from,to,usd_per_gb", [["us-west-2", "us-east-1", 0.02], ["us-east-1", "us-west-2", 0.02]]),
             (f"simulate spot --starts 1 --processes 1 --job-hours 2 --deadline-hours 6 {zones} --egress {FILE}",),
             {"zones.csv": _table("tick,timestamp_local,zone,available,price_usd_per_hour", rows)}),
    ]  # fmt: skip


def _training(run: Callable[[str], object]) -> list[Kind]:
    """Return a checkpoint of training, and examples to train on."""
    train = "run --application logistic-regression --workers 1 --clocks 2"
    examples = "\n".join(f"{n % 3} 1:{0.1 * n:.1f} {2 + n % 5}:{n % 7}" for n in range(40)).encode()
    run(f"{train} --checkpoint kept")
    newest = max(Path("kept").glob("checkpoint-*.npz"))
    return [
        Kind("checkpoint", newest.read_bytes(), (f"{train} --checkpoint .",), named=newest.name, seal=_sealed),
        Kind("examples", examples, (f"{train} --data {FILE}",)),
    ]


def _sealed(content: bytes) -> bytes:
    """Give a damaged checkpoint a valid checksum."""
    import io

    import numpy as np

    from optim.training.checkpoints import _checksum

    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name != "checksum"}
        arrays["checksum"] = np.array(_checksum(arrays))
    except Exception:  # an unreadable file has no content
        return content
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _forecasts() -> list[Kind]:
    from optim.solvers.admission.posted_prices.forecast import PriceForecast

    instance = find_instance("tiny-0")
    PriceForecast.fit([instance], instance).save("forecast.json")
    solve = f"solve tiny-0 --solver online-learned --option history={FILE}"
    bench = f"bench admission --instance tiny-0 --solver online-learned --no-report --history {FILE}"
    return [Kind("forecast", Path("forecast.json").read_bytes(), (solve, bench))]


def _containers(folder: Path) -> list[Kind]:
    from optim.phases.model import PhaseModel, save_model
    from optim.workloads.containers import read_containers

    own = [[f"c{c}", 15 * t, 0.2 + 0.7 * ((t // 20) % 2) + 0.01 * c, 1 + 0.5 * ((t // 20) % 2)] for c in range(6)
           for t in range(90)]  # fmt: skip
    ai4dl = [[15 * t, "s", f"p{c}", 0.5 + (t // 20) % 2, 2**30, 2**31] for c in range(6) for t in range(90)]
    job = [[15 * t, 50 + 40 * ((t // 20) % 2), 2**20] for t in range(200)]
    vms = [[f"vm{c}", 15 * t, 4, 2000 + 900 * ((t // 20) % 2), 8000, 2**20, 2**22] for c in range(6) for t in range(90)]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {"__name__": "container_memory_working_set_bytes", "pod": f"p{c}", "container": "main"},
         "values": [[1_600_000_000 + 15 * t, str(2**30 + t)] for t in range(90)]} for c in range(6)]}}  # fmt: skip
    simulate = f"simulate containers --input {FILE} --policy prev-step-rules --multipliers 1,2"
    watch = f"phases encode model.npz --input {FILE}"
    table = _table("container,time_s,cpu,memory", own)
    (folder / "own.csv").write_bytes(table)
    model = PhaseModel(encoder="window-statistics", num_phases=2).fit(read_containers(folder / "own.csv"))
    save_model(model, folder / "model.npz")
    beside = {"model.npz": (folder / "model.npz").read_bytes(), "own.csv": table}
    return [
        Kind("containers", table, (simulate, watch), beside),
        Kind("AI4DL's containers", _table("timestamp,service,pod.id,cpu.usage.cores,mem.working.set,mem.limit", ai4dl),
             (simulate, watch), beside),
        Kind("Supercloud's job", _table("EpochTime,CPUUtilization,RSS", job), (watch,), beside),
        Kind("Bitbrains' machines", _table("vm,t_s,cores,cpu_mhz,cpu_cap_mhz,mem_kb,mem_cap_kb", vms), (simulate, watch),
             beside),
        Kind("answer.json", json.dumps(answer).encode(), (simulate,), beside, named="spoilt.json"),
        *_phase_models(folder, beside),
    ]  # fmt: skip


def _phase_models(folder: Path, beside: Mapping[str, bytes]) -> list[Kind]:
    """Return a model with each encoder."""
    from optim.phases.encoders import ENCODERS
    from optim.phases.model import PhaseModel, save_model
    from optim.workloads.containers import read_containers

    commands = (
        f"phases encode {FILE} --input own.csv",
        f"phases graph {FILE}",
        f"phases forecast {FILE} --input own.csv",
        f"phases watch {FILE} --input own.csv",
    )
    kinds = []
    for encoder in ENCODERS:
        model = PhaseModel(encoder=encoder, num_phases=2).fit(read_containers(folder / "own.csv"))
        save_model(model, folder / "other.npz")
        kinds.append(Kind(f"phase model, {encoder}", (folder / "other.npz").read_bytes(), commands, beside))
    return kinds


def _others() -> list[Kind]:
    from optim.profiling.document import write_profiles
    from optim.workloads.profiles import published_profiles

    path = Path("published.json")
    write_profiles(published_profiles(), path)
    toml = b'price = "exponential"\nstrict = true\neps = 0.1\nbounds = "estimated"\nsample_share = 0.5\nupper_scale = 2.0\n'
    bench = "bench admission --instance tiny-0 --solver fifo --no-report"
    return [
        Kind("profiles", path.read_bytes(),
             (f"bench admission --profile {FILE} --solver fifo --jobs 4 --slots 12 --no-report",), {}),
        Kind("options", toml, (f"solve tiny-0 --solver online --options-file {FILE}",), {}),
        Kind("golden", Path("results/bench.jsonl").read_bytes() if Path("results/bench.jsonl").exists() else b"{}\n",
             (f"{bench} --compare {FILE}", f"{bench} --results {FILE}"), {}),
    ]  # fmt: skip


def all_kinds(folder: Path, run: Callable[[str], object]) -> list[Kind]:
    """Return every type of file; `run` runs a command in the current folder, which must be `folder`."""
    run("bench admission --instance tiny-0 --solver fifo --no-report")
    return [
        *_instances(), *_prices(), *_availability(), *_traces(), *_runs(run), *_containers(folder), *_others(), *_clusters(),
        *_sacct(), *_logs(), *_price_lists(), *_training(run), *_forecasts(),
    ]  # fmt: skip
