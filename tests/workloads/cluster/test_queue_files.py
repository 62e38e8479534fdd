"""Queues from YAML of Kueue and KAI Scheduler, ignored and rejected fields, and writing them."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.quota_tree import (
    NOT_SET,
    UNLIMITED,
    LocalQueue,
    Queueing,
    QueueRules,
    QuotaLedger,
    Reclaim,
    ShareRule,
    WithinQueue,
)
from optim.models.cluster.workload import US
from optim.workloads.cluster.queue_files import read_queues, write_kueue
from tests.support.quota_trees import trees

A = """apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata:
  name: "team-a-cq"
spec:
  namespaceSelector: {} # match all.
  cohort: "team-ab"
  resourceGroups:
  - coveredResources: ["cpu", "nvidia.com/gpu"]
    flavors:
    - name: "default-flavor"
      resources:
      - name: "cpu"
        nominalQuota: 90
      - name: "nvidia.com/gpu"
        nominalQuota: 9
        borrowingLimit: 1
"""
B = (
    A.replace("team-a-cq", "team-b-cq")
    .replace("nominalQuota: 9\n", "nominalQuota: 12\n")
    .replace("borrowingLimit", "lendingLimit")
)
"""The ClusterQueues of Kueue's concepts page, sections BorrowingLimit and LendingLimit."""

COHORTS = """apiVersion: kueue.x-k8s.io/v1alpha1
kind: Cohort
metadata:
  name: "root-cohort"
---
apiVersion: kueue.x-k8s.io/v1alpha1
kind: Cohort
metadata:
  name: "important-org"
spec:
  parent: "root-cohort"
  fairSharing:
    weight: "0.75"
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata:
  name: "regular-org"
spec:
  parentName: "root-cohort"
  fairSharing:
    weight: "0.25"
"""
"""The three cohorts of Kueue's concepts page "Cohort", section Hierarchical Cohorts."""

QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  cohortName: {cohort}
  resourceGroups: [{{coveredResources: [gpu], flavors: [{{name: {flavor}, resources: [{{name: gpu, nominalQuota: {quota}}}]}}]}}]
"""
KAI = """apiVersion: scheduling.run.ai/v2
kind: Queue
metadata:
  name: research-team
spec:
  displayName: "Research Team"
  resources:
    cpu: {quota: 1000, limit: 2000}
    gpu: {quota: 1, limit: 2}
"""
"""The basic queue of KAI Scheduler's page "Scheduling Queues"."""


def read(tmp_path, *texts, gpus=8):
    path = tmp_path / "queues.yaml"
    path.write_text("---\n".join(texts))
    file = read_queues(path)
    return file.tree(gpus), file


def test_the_queues_of_kueues_concepts_page(tmp_path):
    tree, file = read(tmp_path, A, B)
    assert tree.names == ("team-ab", "team-a-cq", "team-b-cq")
    assert tree.nominal[:, 0].tolist() == [0, 9000, 12000]
    assert tree.borrowing[:, 0].tolist() == [UNLIMITED, 1000, UNLIMITED]
    assert tree.lending[:, 0].tolist() == [UNLIMITED, UNLIMITED, 1000]
    assert tree.rules[1] == QueueRules()
    assert file.ignored == ("ClusterQueue.namespaceSelector", "quota of cpu")
    ledger = QuotaLedger(tree)
    assert [ledger.available(row, 0) for row in (1, 2)] == [10_000, 21_000]


def test_the_tree_of_kueues_cohorts(tmp_path):
    queues = [
        QUEUE.format(name=name, cohort=name[2:], flavor="f", quota=0) for name in ("q-important-org", "q-regular-org")
    ]
    tree, _ = read(tmp_path, COHORTS, *queues)
    assert [tree.names[int(parent)] for parent in tree.parent[1:]] == [
        "root-cohort",
        "root-cohort",
        "important-org",
        "regular-org",
    ]
    assert tree.weight.tolist() == [1, 0.75, 0.25, 1, 1]


def test_all_rules_of_a_queue_are_read(tmp_path):
    text = A + (
        "  queueingStrategy: StrictFIFO\n  stopPolicy: Hold\n  fairSharing: {weight: 2}\n"
        "  admissionScope: {admissionMode: UsageBasedFairSharing}\n  flavorFungibility: {whenCanBorrow: Borrow}\n"
        "  preemption:\n    reclaimWithinCohort: Any\n    borrowWithinCohort:\n      policy: LowerPriority\n"
        "      maxPriorityThreshold: 100\n    withinClusterQueue: LowerOrNewerEqualPriority\n"
    )
    configuration = (
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nfairSharing: {enable: true}\nmanager: x\n"
        "admissionFairSharing: {usageHalfLifeTime: 168h}\n"
    )
    flavor = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: default-flavor}\nspec: {nodeLabels: {gpu.product: A100}, nodeTaints: []}\n"
    local = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: jobs, namespace: team-a}\nspec: {clusterQueue: team-a-cq, fairSharing: {weight: '2'}}\n"
    tree, file = read(tmp_path, text, configuration, flavor, local)
    assert tree.rules[1] == QueueRules(
        queueing=Queueing.STRICT_FIFO,
        reclaim=Reclaim.ANY,
        within=WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY,
        borrow_within=True,
        borrow_max_priority=100,
        is_held=True,
        by_usage=True,
    )
    assert (tree.weight[1], tree.shares, tree.half_life_h) == (2, tuple(ShareRule), 168)
    assert tree.labels == {"default-flavor": ("A100",)}
    assert tree.local_queues == dict.fromkeys(("team-a/jobs", "jobs"), LocalQueue(queue="team-a-cq", weight=2.0))
    assert tree.queue_of("jobs") == tree.queue_of("team-a-cq") == 1
    assert set(file.ignored) == {
        *("ClusterQueue.namespaceSelector", "ClusterQueue.flavorFungibility", "quota of cpu"),
        *("ResourceFlavor.nodeTaints", "Configuration.manager"),
    }


def test_a_list_as_kubectl_prints_it_is_read(tmp_path):
    items = "".join("- " + text.replace("\n", "\n  ").rstrip() + "\n" for text in (A, B))
    tree, _ = read(tmp_path, f"apiVersion: v1\nkind: List\nitems:\n{items}")
    assert tree.names == ("team-ab", "team-a-cq", "team-b-cq")


def test_the_queues_of_kais_page(tmp_path):
    """The basic queue as a parent of two: the team has one quota of the two, and the cluster lends at most one more."""
    child = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{parentQueue: research-team, priority: {priority}, resources: {{gpu: {gpu}}}}}\n"
    parent = KAI.replace("quota: 1,", "quota: 3,").replace("limit: 2}\n", "limit: 4}\n") + "  reclaimMinRuntime: 30m\n"
    tree, file = read(
        tmp_path,
        parent,
        child.format(name="ml", priority=200, gpu="{quota: 1, limit: -1, overQuotaWeight: 2}"),
        child.format(name="cv", priority=100, gpu="{quota: 1}"),
    )
    assert tree.names == ("(cluster)", "research-team", "ml", "cv")
    assert tree.nominal[:, 0].tolist() == [5000, 1000, 1000, 1000]
    assert tree.borrowing[:, 0].tolist() == [UNLIMITED, 1000, UNLIMITED, 0]
    assert tree.weight.tolist() == [1, 1, 2, 1]
    assert tree.priority.tolist() == [0, 100, 200, 100]
    assert tree.reclaim_after_us.tolist() == [NOT_SET, 1800 * US, NOT_SET, NOT_SET]
    ledger = QuotaLedger(tree)
    assert [ledger.potential(row, 0) for row in (2, 3)] == [4000, 1000]
    assert file.ignored == ("Queue.displayName", "Queue.resources.cpu")


def test_kais_quota_of_minus_one_is_the_whole_cluster(tmp_path):
    tree, _ = read(tmp_path, KAI.replace("gpu: {quota: 1, limit: 2}", "gpu: {quota: -1, limit: -1}"), gpus=16)
    assert tree.nominal[:, 0].tolist() == [0, 16_000]
    assert tree.borrowing[1, 0] == UNLIMITED


def test_a_queue_of_kai_that_says_nothing_of_gpus_has_no_quota_and_no_limit(tmp_path):
    tree, _ = read(tmp_path, re.sub(r"    gpu: .*\n", "", KAI))
    assert (tree.nominal[1, 0], tree.borrowing[1, 0]) == (0, UNLIMITED)


CYCLE = COHORTS.replace('name: "root-cohort"\n', 'name: "root-cohort"\nspec: {parent: regular-org}\n', 1)


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ((CYCLE, A), "cohort 'root-cohort' is an ancestor of itself, by 'root-cohort of regular-org'"),
        ((KAI + "  parentQueue: research-team\n",), "Queue 'research-team' is an ancestor of itself"),
        ((KAI + "  parentQueue: nowhere\n",), "names parentQueue 'nowhere'"),
        ((A, A), "ClusterQueue 'team-a-cq' appears twice"),
        ((A, KAI), "both Kueue's"),
        ((COHORTS,), "neither a ClusterQueue nor a Queue"),
        ((A.replace("kind: ClusterQueue", "kind: Deployment"),), "of kind 'Deployment' of 'kueue"),
        ((A.replace("kueue.x-k8s.io/v1beta1", "apps/v1"),), "of kind 'ClusterQueue' of 'apps/v1'"),
        ((A.replace('name: "team-a-cq"', "labels: {}"),), "no metadata.name"),
        (("- 1\n",), "isn't a mapping"),
        (("a\n",), "isn't a mapping"),
        ((A.replace("nominalQuota: 9\n", "nominalQuota: -9\n"),), "nominalQuota must be an amount of GPUs"),
        ((A.replace("nominalQuota: 9\n", "nominalQuota: many\n"),), "got 'many'"),
        ((A.replace("nominalQuota: 9\n", "nominalQuota: 9999999999999\n"),), "of at most 1099511627"),
        ((A.replace("        nominalQuota: 9\n", ""),), "has no nominalQuota"),
        ((A.replace("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"),), "no quota of GPUs"),
        ((A.replace('- name: "cpu"', "- name: amd.com/gpu"),), "counts GPUs as amd.com/gpu and as nvidia.com/gpu"),
        (
            (A.replace("namespaceSelector: {}", "queueingStrategy: Random"),),
            "StrictFIFO or BestEffortFIFO, got 'Random'",
        ),
        ((A.replace("namespaceSelector: {}", "stopPolicy: Maybe"),), "stopPolicy must be"),
        ((A.replace("namespaceSelector: {}", "preemption: [1]"),), "preemption must be a mapping"),
        ((A.replace("namespaceSelector: {}", "fairSharing: {weight: heavy}"),), "weight must be a number"),
        ((KAI.replace("limit: 2}\n", "limit: 0.5}\n"),), "limit below its quota"),
        ((KAI + "  reclaimMinRuntime: soon\n",), "a duration such as 30m"),
        ((KAI + "  priority: high\n",), "priority must be a 32-bit integer"),
        (
            (
                A,
                "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: l}\nspec: {clusterQueue: zzz}\n",
            ),
            "'zzz', which isn't in the file",
        ),
        (
            (
                A,
                "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\nadmissionFairSharing: {usageHalfLifeTime: 1 week}\n",
            ),
            "a duration such as 168h",
        ),
        ((A.replace("spec:", "spec: 7\nx:"),), "spec must be a mapping"),
        (("a: &a [1]\nb: *a\n",), "has an alias"),
    ],
)
def test_what_contradicts_itself_is_refused_in_a_line(tmp_path, texts, cause):
    with pytest.raises(InvalidProblemError, match=re.escape(cause)) as caught:
        read(tmp_path, *texts)
    assert str(caught.value).startswith(f"{tmp_path / 'queues.yaml'}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) - len(str(tmp_path)) < 230


rules = st.builds(
    QueueRules,
    queueing=st.sampled_from(Queueing),
    reclaim=st.sampled_from(Reclaim),
    within=st.sampled_from(WithinQueue),
    borrow_within=st.just(True),
    borrow_max_priority=st.one_of(st.none(), st.integers(-5, 5)),
    by_usage=st.booleans(),
    is_held=st.booleans(),
)


@settings(max_examples=20)
@given(trees(), st.data())
def test_queues_that_are_written_for_kueue_come_back(tmp_path_factory, tree, data):
    flavors = ("fast", "slow")
    queue_rules = [data.draw(rules) if is_queue else QueueRules() for is_queue in tree.is_queue]
    local = {f"team-{row}/jobs-{row}": LocalQueue(queue=name, weight=2.5) for name, row in tree.queues.items()}
    local |= {name.partition("/")[2]: each for name, each in local.items()}
    drawn = replace(
        tree,
        flavors=flavors,
        **{name: np.repeat(getattr(tree, name), 2, axis=1) for name in ("nominal", "borrowing", "lending", "covers")},
        rules=tuple(queue_rules),
        weight=np.array([data.draw(st.sampled_from([0.25, 1, 3])) for _ in tree.names]),
        labels={"fast": ("A100", 'gpu pool: "é"'), "slow": ()},
        label_keys={"fast": ("nvidia.com/gpu.product", "pool"), "slow": ()},
        local_queues=local,
        shares=data.draw(st.sampled_from([(), (ShareRule.FINAL_SHARE,), tuple(ShareRule)])),
        half_life_h=data.draw(st.sampled_from([0.0, 168.0])),
    )
    path = tmp_path_factory.mktemp("kueue") / "queues.yaml"
    text, untranslated = write_kueue(drawn)
    path.write_text(text)
    again = read_queues(path).tree(8)
    order = [again.names.index(name) for name in drawn.names]
    assert sorted(order) == list(range(len(order)))
    for name in ("nominal", "borrowing", "lending", "covers", "weight", "is_queue"):
        assert getattr(again, name)[order].tolist() == getattr(drawn, name).tolist()
    parents = [again.names[int(again.parent[row])] if again.parent[row] >= 0 else "" for row in order]
    assert parents == [drawn.names[int(row)] if row >= 0 else "" for row in drawn.parent]
    assert [again.rules[row] for row in order] == list(drawn.rules)
    for name in ("flavors", "labels", "label_keys", "local_queues", "shares", "half_life_h"):
        assert getattr(again, name) == getattr(drawn, name)
    assert bool(untranslated) == (bool(drawn.half_life_h) and not any(each.by_usage for each in queue_rules))


def test_labels_of_flavors_keep_their_keys_or_it_is_said(tmp_path):
    flavor = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: default-flavor}\n"
    tree, _ = read(tmp_path, A, flavor + 'spec: {nodeLabels: {nvidia.com/gpu.product: A100, zone: "1"}}\n')
    text, untranslated = write_kueue(tree)
    assert 'nvidia.com/gpu.product: "A100"' in text.replace('"nvidia.com/gpu.product"', "nvidia.com/gpu.product")
    assert untranslated == ()
    text, untranslated = write_kueue(replace(tree, label_keys={}))
    assert "label-0" in text
    assert [each.partition(":")[0] for each in untranslated] == ["keys of the node labels of flavor default-flavor"]


def test_what_kueue_cannot_say_is_named(tmp_path):
    tree, _ = read(tmp_path, KAI + "  reclaimMinRuntime: 30m\n  priority: 7\n")
    assert [each.partition(":")[0] for each in write_kueue(tree)[1]] == [
        "priorities of queues",
        "minimum run times before a job is stopped",
    ]
