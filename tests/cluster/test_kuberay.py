"""The manifest is a ConfigMap and a RayJob, valid by what KubeRay's own definition of a RayJob asks for, and it holds the run.

The schema below is written from that definition (``ray.io/v1``): its names, their types, what is required; nothing else is let in.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from rlctl.cluster.kuberay import HOME, Manifest, manifest, name_of, toleration
from rlctl.cluster.machines import Machines
from rlctl.cluster.package import Package, pack
from rlctl.common.errors import PlanError, UsageError
from rlctl.config import Loaded, config_from, load
from rlctl.documents import read_yaml

TEXT, NUMBER, YES = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def record(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def several(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


METADATA = record(
    "name", name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,45}[a-z0-9])?$"}, namespace=TEXT, labels=TEXTS
)
CONTAINER = record(
    "name image",
    name=TEXT,
    image=TEXT,
    resources=record("", limits=TEXTS, requests=TEXTS),
    envFrom=several(record("", secretRef=record("name", name=TEXT))),
    volumeMounts=several(record("name mountPath", name=TEXT, mountPath=TEXT, readOnly=YES)),
)
VOLUME = record(
    "name",
    name=TEXT,
    configMap=record("name", name=TEXT, items=several(record("key path", key=TEXT, path=TEXT))),
    emptyDir=record("", medium=TEXT),
    persistentVolumeClaim=record("claimName", claimName=TEXT),
)
POD = record(
    "",
    spec=record(
        "containers",
        containers=several(CONTAINER),
        volumes=several(VOLUME),
        imagePullSecrets=several(record("name", name=TEXT)),
        serviceAccountName=TEXT,
        nodeSelector=TEXTS,
        tolerations=several(record("", key=TEXT, operator={"enum": ["Equal", "Exists"]}, value=TEXT, effect=TEXT)),
        restartPolicy={"enum": ["Always", "OnFailure", "Never"]},
    ),
)
WORKERS = record(
    "groupName minReplicas maxReplicas template",
    groupName=TEXT,
    replicas=NUMBER,
    minReplicas=NUMBER,
    maxReplicas=NUMBER,
    rayStartParams=TEXTS,
    template=POD,
)
CLUSTER = record(
    "headGroupSpec",
    rayVersion=TEXT,
    authOptions=record("", mode={"enum": ["disabled", "token"]}),
    headGroupSpec=record("template", rayStartParams=TEXTS, template=POD),
    workerGroupSpecs=several(WORKERS),
)
JOB = record(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=METADATA,
    spec=record(
        "entrypoint rayClusterSpec",
        entrypoint=TEXT,
        backoffLimit=NUMBER,
        shutdownAfterJobFinishes=YES,
        ttlSecondsAfterFinished=NUMBER,
        submitterPodTemplate=POD,
        rayClusterSpec=CLUSTER,
    ),
)
CONFIG_MAP = record(
    "apiVersion kind metadata data",
    apiVersion={"const": "v1"},
    kind={"const": "ConfigMap"},
    metadata=METADATA,
    data={"type": "object", "additionalProperties": False, "patternProperties": {"^[-._a-zA-Z0-9]+$": TEXT}},
)


@pytest.fixture
def given(tmp_path: Path) -> Manifest:
    (tmp_path / "reward.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("X = '''\n---\n'''\n")
    plain = {
        "run": {"name": "My Run", "folder": "/shared/runs"},
        "model": {"path": "a/b"},
        "rewards": [{"type": "function", "path": str(tmp_path / "reward.py")}],
    }
    return Manifest(
        run="My Run",
        folder="/shared/runs/My Run",
        machines=Machines(2, "cuda", 8, 16),
        package=pack(Loaded(config_from(plain)), home=HOME),
        image="registry/rlctl:1",
        volumes=[("claim", "/shared")],
    )


def documents(text: str) -> tuple[Any, Any]:
    config, job = YAML(typ="safe").load_all(text)
    return config, job


SCHEDULED: dict[str, Any] = {
    "node_selector": {"pool": "h100"},
    "tolerations": [toleration("nvidia.com/gpu"), toleration("team=rl:NoSchedule")],
    "pull_secrets": ["registry"],
    "service_account": "trainer",
    "queue": "research",
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"authenticate": True, "namespace": "rl", "ray_version": "2.60.0", "retries": 3},
        {"secrets": ["wandb", "hf"], "memory": "512Gi", "volumes": [("claim", "/shared"), ("models", "/models")]},
        {"machines": Machines(1, "cpu", 4, 4)},
        SCHEDULED,
    ],
    ids=["plain", "auth", "secrets", "cpu", "scheduled"],
)
def test_it_is_valid(given: Manifest, more: dict[str, Any]) -> None:
    config, job = documents(manifest(Manifest(**{**vars(given), **more})))
    jsonschema.validate(config, CONFIG_MAP)
    jsonschema.validate(job, JOB)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**job, "spec": {**job["spec"], "entryPoint": "x"}}, JOB)


def test_a_node_of_the_plan_is_a_worker_pod(given: Manifest) -> None:
    _, job = documents(manifest(given))
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (2, 2, 2)
    (container,) = workers["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "18", "nvidia.com/gpu": "8"}
    assert workers["rayStartParams"] == {"num-cpus": "16"}
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert job["metadata"]["name"] == "my-run"


def test_pods_go_where_they_may_and_can_pull_their_image(given: Manifest) -> None:
    _, job = documents(manifest(Manifest(**{**vars(given), **SCHEDULED})))
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "research"}
    cluster = job["spec"]["rayClusterSpec"]
    head, worker = cluster["headGroupSpec"]["template"]["spec"], cluster["workerGroupSpecs"][0]["template"]["spec"]
    submitter = job["spec"]["submitterPodTemplate"]["spec"]
    for pod in (head, worker, submitter):
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["serviceAccountName"] == "trainer"
        assert pod["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "team", "operator": "Equal", "value": "rl", "effect": "NoSchedule"},
        ]
    assert worker["nodeSelector"] == {"pool": "h100"}
    assert "nodeSelector" not in head
    assert submitter["restartPolicy"] == "Never"
    for wrong in ("", "=x", "key:Never"):
        with pytest.raises(UsageError, match="--toleration"):
            toleration(wrong)


def test_config_and_code_are_where_the_run_looks_for_them(given: Manifest) -> None:
    config, job = documents(manifest(given))
    pods = [job["spec"]["rayClusterSpec"]["headGroupSpec"], *job["spec"]["rayClusterSpec"]["workerGroupSpecs"]]
    for pod in pods:
        spec = pod["template"]["spec"]
        mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert set(mounts) == set(volumes)
        assert mounts["shared-0"] == "/shared"
        mounted = volumes["config"]["configMap"]
        assert mounted["name"] == config["metadata"]["name"]
        found = {f"{mounts['config']}/{item['path']}": config["data"][item["key"]] for item in mounted["items"]}
        assert len(found) == len(config["data"]) == 3
        loaded, _ = load(read_yaml(found["/etc/rlctl/run.yaml"], "run.yaml"))
        assert loaded is not None
        reward = loaded.config.rewards[0].path  # type: ignore[union-attr]
        assert found[reward] == "import helper\n"
        assert found[str(Path(reward).with_name("helper.py"))] == "X = '''\n---\n'''\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"pull_secrets": ["Bad_Name"]},
        {"secrets": ["x: y"]},
        {"service_account": ""},
        {"queue": "a b"},
        {"namespace": "-a"},
        {"volumes": [("Claim", "/shared")]},
        {"memory": "lots"},
        {"image": " "},
    ],
)
def test_a_name_that_kubernetes_does_not_allow_is_refused(given: Manifest, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--"):
        manifest(replace(given, **wrong))


def test_what_kubernetes_would_lose_or_refuse_is_refused(given: Manifest) -> None:
    with pytest.raises(UsageError, match="is on no volume"):
        manifest(Manifest(**{**vars(given), "volumes": [("claim", "/share")]}))
    for files, told in (({"0/a.py": b"\xff"}, "is not a text file"), ({"0/a.py": b"#" * 2**20}, "a ConfigMap holds")):
        with pytest.raises(PlanError, match=told):
            manifest(Manifest(**{**vars(given), "package": Package("", HOME, files)}))


@pytest.mark.parametrize(("run", "name"), [("GSM8K_grpo.1", "gsm8k-grpo-1"), ("--", "run"), ("a" * 60, "a" * 47)])
def test_a_name_is_one_that_kubernetes_allows(run: str, name: str) -> None:
    assert name_of(run) == name
