"""States printed by squeue, sacct and kubectl, read and placed on a cluster; and one line for invalid ones."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.workloads.cluster.queue_states import begin_from, read_queue_state
from optim.workloads.traces.queue_state import expand_list

HEADER = "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Timelimit|ReqTRES|AllocTRES|State|Priority|NodeList"
TYPED = Cluster(gpus=np.array([8, 8, 4]), kind=np.array([0, 0, 1]), kinds=("a100", "v100"))
NOON = int(datetime(2026, 11, 2, 12, tzinfo=UTC).timestamp())


def tres(gpus, kind="a100"):
    return f"billing={gpus},cpu={gpus},gres/gpu:{kind}={gpus},gres/gpu={gpus},node=1"


def sacct(tmp_path, *rows):
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


RUNS = f"7|ana|nlp|p|2026-11-02T11:00:00|2026-11-02T11:30:00|Unknown|1800|04:00:00|{tres(8)}|{tres(8)}|RUNNING|9|n2"
STEP = f"7.batch||nlp||2026-11-02T11:30:00|2026-11-02T11:30:00|Unknown|1800||{tres(8)}|{tres(8)}|RUNNING||n2"
WAITS = (
    f"8_[1-3%2]|ben|cv|p|2026-11-02T11:40:00|Unknown|Unknown|0|1-00:00:00|{tres(2, 'v100')}||PENDING|5|None assigned"
)
OVER = f"5|ana|nlp|p|2026-11-02T09:00:00|2026-11-02T09:00:00|2026-11-02T10:00:00|3600|04:00:00|{tres(8)}|{tres(8)}|COMPLETED|9|n1"


def test_sacct_has_running_and_pending_jobs_and_tells_now(tmp_path):
    state = read_queue_state(sacct(tmp_path, OVER, RUNS, STEP, WAITS))
    assert state.now_s == NOON
    assert [job.name for job in state.jobs] == ["7", "8_1", "8_2", "8_3"]
    first, second = state.jobs[:2]
    assert (first.start_s, first.limit_s, first.account, first.nodes) == (NOON - 1800, 4 * 3600, "nlp", (("n2", 0),))
    assert (second.gpus, second.gpu_type, second.start_s, second.priority) == (2, "v100", None, 5)


def test_jobs_are_on_their_type_and_their_limits_are_their_estimates(tmp_path):
    jobs, present, limit_s = begin_from(read_queue_state(sacct(tmp_path, RUNS, WAITS)), TYPED)
    assert present.starts.rows() == [(1800 * 10**6, 0, 0, ((0, 8),))]
    assert present.now_us == 3600 * 10**6
    assert jobs.submit_us.tolist() == [0, *[2400 * 10**6] * 3]
    assert limit_s.tolist() == [14400, *[86400] * 3]
    assert jobs.estimate_us.tolist() == [14400 * 10**6, *[86400 * 10**6] * 3]
    assert (jobs.gpu_type_slowdown_ppm[1] > 0).tolist() == [False, True]
    assert [jobs.accounts[number] for number in jobs.account.tolist()] == ["nlp", "cv", "cv", "cv"]


def squeue(tmp_path, *jobs, last_update=NOON):
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"jobs": jobs, "last_update": {"set": True, "infinite": False, "number": last_update}}))
    return path


def number(value):
    return {"set": True, "infinite": False, "number": value}


RUNNING = {
    "job_id": 7, "job_state": ["RUNNING"], "user_name": "ana", "account": "nlp", "partition": "p,q",
    "submit_time": number(NOON - 3600), "start_time": number(NOON - 1800), "time_limit": number(240), "priority": number(9),
    "nodes": "n[02,10]", "tres_alloc_str": "cpu=16,gres/gpu=12,gres/gpu:a100=12", "tres_req_str": "gres/gpu=12",
    "gres_detail": ["gpu:a100:8(IDX:0-7)", "gpu:a100:4(IDX:0-3)"],
}  # fmt: skip
PENDING = {
    "job_id": 9, "job_state": "PENDING", "user_name": "ben", "submit_time": NOON - 60, "array_job_id": number(9),
    "array_task_string": "2-4,7%1", "time_limit": {"set": True, "infinite": True, "number": 0}, "tres_req_str": "gres/gpu=1",
}  # fmt: skip


def test_squeue_has_gpus_by_machine_arrays_and_no_limit_where_there_is_none(tmp_path):
    held = {**PENDING, "job_id": 10, "state_reason": "JobHeldUser"}
    state = read_queue_state(squeue(tmp_path, RUNNING, PENDING, held, {**PENDING, "tres_req_str": "cpu=1"}))
    assert [job.name for job in state.jobs] == ["7", "9_2", "9_3", "9_4", "9_7"]
    assert state.jobs[0].nodes == (("n02", 8), ("n10", 4))
    assert (state.jobs[0].limit_s, state.jobs[1].limit_s) == (240 * 60, None)
    assert state.dropped == {"held or dependent jobs": 1, "jobs without a GPU": 1}
    _, present, _ = begin_from(state, TYPED)
    assert present.starts.rows()[0][3] == ((0, 8), (1, 4))


def pod(name, gpus, phase="Running", node="", **labels):
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": "2026-11-02T11:00:00Z", "labels": labels},
        "spec": {
            "nodeName": node,
            "nodeSelector": {"nvidia.com/gpu.product": "a100"},
            "containers": [{"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {"phase": phase, "startTime": "2026-11-02T11:30:00Z" if phase == "Running" else None},
    }


def kubectl(tmp_path, *items):
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def test_pods_of_one_gang_are_one_job_that_waits_until_all_run(tmp_path):
    first = [pod(f"a-{rank}", 4, node=f"n{rank}", **{"job-name": "a"}) for rank in (0, 1)]
    second = [pod("b-0", 2, node="n0", **{"job-name": "b"}), pod("b-1", 2, "Pending", **{"job-name": "b"})]
    state = read_queue_state(kubectl(tmp_path, *first, *second, pod("cpu", 0), pod("done", 1, "Succeeded")))
    assert [(job.name, job.gpus, job.start_s) for job in state.jobs] == [("ml/a", 8, NOON - 1800), ("ml/b", 4, None)]
    assert state.jobs[0].nodes == (("n0", 4), ("n1", 4))
    assert (state.dropped, state.now_s) == (
        {"jobs neither running nor pending": 1, "jobs without a GPU": 1},
        NOON - 1800,
    )


def workload_of(name, count, *conditions, selector=None, **metadata):
    template = pod("x", 2)["spec"] | {"nodeName": ""}
    template |= {} if selector is None else {"nodeSelector": selector}
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": "2026-11-02T11:20:00Z"} for kind in conditions]
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": "2026-11-02T11:00:00Z"} | metadata,
        "spec": {"queueName": "team", "priority": 3, "podSets": [{"count": count, "template": {"spec": template}}]},
        "status": {"conditions": conditions},
    }


def test_workloads_count_their_pod_sets_and_leave_their_pods_out(tmp_path):
    workload = workload_of
    items = [workload("a", 4, "QuotaReserved", "Admitted"), workload("b", 1), workload("c", 1, "Admitted", "Finished")]
    state = read_queue_state(kubectl(tmp_path, *items, pod("a-0", 2, **{"kueue.x-k8s.io/queue-name": "team"})))
    told = [(job.name, job.gpus, job.start_s, job.partition, job.priority) for job in state.jobs]
    assert told == [("ml/a", 8, NOON - 2400, "ml/team", 3), ("ml/b", 2, None, "ml/team", 3)]


def test_a_flavor_of_a_workload_names_the_type_on_which_it_runs(tmp_path):
    """Of two flavors, `big` is h100: the admitted workload runs there.

    The waiting one names no flavor, and its own selector has priority.
    """
    flavors = [
        {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"pool": "1", key: product}}}
        for name, key, product in (
            ("small", "nvidia.com/gpu.product", "a100"),
            ("big", "cloud.google.com/gke-accelerator", "h100"),
        )
    ]
    admission = {"admission": {"podSetAssignments": [{"flavors": {"cpu": "small", "nvidia.com/gpu": "big"}}]}}
    runs = workload_of("a", 4, "Admitted", selector={})
    chosen = workload_of("c", 1, "Admitted", selector={"nvidia.com/gpu.product": "a100"})
    for each in (runs, chosen):
        each["status"] |= admission
    state = read_queue_state(kubectl(tmp_path, *flavors, runs, chosen, workload_of("b", 1, selector={})))
    assert {job.name: job.gpu_type for job in state.jobs} == {"ml/a": "h100", "ml/c": "a100", "ml/b": ""}


def test_a_workload_is_called_after_its_owner_where_it_has_one_workload(tmp_path):
    own = {"ownerReferences": [{"kind": "Job", "name": "wide"}]}
    two = {"ownerReferences": [{"kind": "Job", "name": "many"}]}
    items = [workload_of("job-wide-1a2b3", 1, **own), *(workload_of(f"job-many-{nth}", 1, **two) for nth in range(2))]
    state = read_queue_state(kubectl(tmp_path, *items))
    assert [job.name for job in state.jobs] == ["ml/wide", "ml/job-many-0", "ml/job-many-1"]


def test_a_queue_of_kubernetes_is_no_partition(tmp_path):
    """The machines are in partitions, which neither queue nor namespace names."""
    cluster = replace(TYPED, partitions=(("batch",),) * len(TYPED.kinds))
    pods = [pod("a", 8), pod("b", 8, "Pending", **{"kueue.x-k8s.io/queue-name": "team"})]
    jobs, present, _ = begin_from(read_queue_state(kubectl(tmp_path, *pods)), cluster)
    assert jobs.groups == ("ml", "ml/team")
    assert present.starts.rows()[0][3] == ((0, 8),)


def test_the_present_time_can_be_given(tmp_path):
    state = read_queue_state(kubectl(tmp_path, pod("a", 1)), "2026-11-02T12:00:00")
    assert state.now_s == NOON
    with pytest.raises(InvalidOptionError, match=r"state\.now must be a date"):
        read_queue_state(kubectl(tmp_path, pod("a", 1)), "noon")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time_limit": number(-5)}, "time_limit must be a number of at least 0, got '-5.0'"),
        ({"time_limit": number(0)}, "the limit must be above 0 seconds"),
        ({"start_time": number(NOON + 5)}, "the submission must precede the start, and both must precede now"),
        ({"nodes": "n[1-3]"}, "machine 'n3'"),
        ({"tres_alloc_str": "gres/gpu:h100=4,gres/gpu=4", "nodes": ""}, "asks for GPU type 'h100'"),
        (
            {"tres_alloc_str": "gres/gpu:a100=40,gres/gpu=40", "nodes": ""},
            "running jobs have 40 GPUs, but the cluster has 20",
        ),
        (
            {"tres_alloc_str": "gres/gpu:v100=8,gres/gpu=8", "nodes": ""},
            "running jobs have 8 GPUs of type 'v100', but the cluster has 4",
        ),
        (
            {"tres_alloc_str": "gres/gpu:a100=9,gres/gpu=9", "nodes": "n1", "gres_detail": []},
            "runs on 9 GPUs, but its machines",
        ),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, change, said):
    with pytest.raises(InvalidProblemError, match=said) as error:
        begin_from(read_queue_state(squeue(tmp_path, {**RUNNING, **change})), TYPED)
    assert "\n" not in str(error.value)


def test_other_files_and_kinds_are_refused(tmp_path):
    with pytest.raises(InvalidProblemError, match="kind 'Node' is neither Pod, Workload nor ResourceFlavor"):
        read_queue_state(kubectl(tmp_path, {"kind": "Node", "metadata": {"name": "n"}}))
    with pytest.raises(InvalidProblemError, match="listed twice"):
        read_queue_state(squeue(tmp_path, RUNNING, RUNNING))
    with pytest.raises(InvalidProblemError, match="no job with GPUs is running or pending"):
        read_queue_state(squeue(tmp_path))
    path = tmp_path / "other.csv"
    path.write_text("submit,gpus\n1,2\n")
    with pytest.raises(InvalidProblemError, match="not a state; give the output of squeue --json"):
        read_queue_state(path)
    with pytest.raises(InvalidProblemError, match=r"must request an integer number of nvidia\.com/gpu, got '-1'"):
        read_queue_state(kubectl(tmp_path, pod("a", -1)))


def test_lists_of_names_are_slurms():
    assert expand_list("n[1,3-4]x,m,gpu[09-10]") == ["n1x", "n3x", "n4x", "m", "gpu09", "gpu10"]
    assert expand_list("r[0-1]n[08,10],m") == ["r0n08", "r0n10", "r1n08", "r1n10", "m"]
    with pytest.raises(InvalidProblemError, match="more than 100,000"):
        expand_list("r[1-1000]n[1-1000]c[1-1000]")


def test_jobs_without_machines_are_placed_largest_first(tmp_path):
    rows = [{**RUNNING, "job_id": name, "nodes": "", "tres_alloc_str": f"gres/gpu={gpus}", "gres_detail": None}
            for name, gpus in ((1, 2), (2, 8), (3, 6))]  # fmt: skip
    jobs, present, _ = begin_from(read_queue_state(squeue(tmp_path, *rows)), Cluster.grid("2x8"))
    placed = {jobs.ids[job]: places for _, _, job, places in present.starts.rows()}
    assert placed == {"2": ((0, 8),), "3": ((1, 6),), "1": ((1, 2),)}
