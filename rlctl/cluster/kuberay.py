"""The manifest for KubeRay: a ConfigMap with the config and the user's files, and a RayJob that launches it on Ray of its own.

The controller runs on the head, which takes no workers; one worker pod is one node of the plan. Secrets are never in it: the
config reads them from the environment, which a Secret of Kubernetes fills.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from rlctl.cluster.machines import Machines
from rlctl.cluster.package import CONFIG, FILES, Package
from rlctl.common.errors import PlanError, UsageError
from rlctl.common.messages.reasons import said
from rlctl.documents import write_yaml

MOUNT = "/etc/rlctl"
"""Where the ConfigMap is in every pod."""
HOME = f"{MOUNT}/{FILES}"
LONGEST_NAME = 47
"""Characters of a RayJob's name; KubeRay adds its own to it."""
LARGEST_CONFIG_MAP = 1_000_000
"""Bytes that Kubernetes stores in one, with some room for its own."""
WORKER = "ray-worker"
HEAD_CPUS, HEAD_MEMORY = 4, "16Gi"
SUBMITTER = {"cpu": "500m", "memory": "200Mi"}
"""What the pod asks for that submits the job, as KubeRay's own."""
QUEUE = "kueue.x-k8s.io/queue-name"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[KMGTPE]i|[kMGTPE])?")
KEPT_SECONDS = 600
"""How long the pods stay after the run, for whoever wants to look into them."""


@dataclass(frozen=True)
class Manifest:
    """The inputs of a KubeRay manifest."""

    run: str
    folder: str
    """Folder of the run."""
    machines: Machines
    package: Package
    image: str
    volumes: Sequence[tuple[str, str]] = ()
    """Claims of volumes that all pods share, and where each is mounted."""
    secrets: Sequence[str] = ()
    """Secrets whose entries become environment variables."""
    memory: str | None = None
    """Of a worker pod; None sets no limit."""
    retries: int = 0
    """How often a run that did not finish is started again, on new pods; it goes on from its checkpoint."""
    namespace: str | None = None
    authenticate: bool = False
    """Whether Ray asks for a token, which KubeRay makes; from KubeRay 1.5."""
    ray_version: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes that worker pods go to."""
    tolerations: Sequence[Mapping[str, str]] = ()
    """Taints that all pods tolerate; see ``toleration``."""
    pull_secrets: Sequence[str] = ()
    """Secrets with which the image is pulled."""
    service_account: str | None = None
    queue: str | None = None
    """The local queue of Kueue that admits the run."""


def toleration(text: str) -> dict[str, str]:
    """A toleration written as ``KEY``, ``KEY=VALUE`` or either with ``:EFFECT``.

    Raises:
        UsageError: it is none.
    """
    pair, colon, effect = text.partition(":")
    key, equals, value = pair.partition("=")
    if not key or (colon and effect not in EFFECTS):
        raise UsageError(
            said("--toleration {text!r} is not KEY[=VALUE][:EFFECT]", text=text),
            hint=said("EFFECT is {effects}", effects=", ".join(EFFECTS)),
        )
    return {
        "key": key,
        "operator": "Equal" if equals else "Exists",
        **({"value": value} if equals else {}),
        **({"effect": effect} if effect else {}),
    }


def manifest(given: Manifest) -> str:
    """The text of the manifest: two documents.

    Raises:
        UsageError: the run folder is on no volume, or a name is none that Kubernetes allows.
        PlanError: the config and the files are too large for a ConfigMap.
    """
    _check_names(given)
    name = name_of(given.run)
    if not any(PurePosixPath(given.folder).is_relative_to(path) for _, path in given.volumes):
        raise UsageError(
            said("the run folder {folder} is on no volume and would be deleted with its pod", folder=given.folder),
            hint="--volume CLAIM:/PATH mounts a volume that all pods share; put run.folder below it",
        )
    metadata: dict[str, Any] = {"name": name, **({"namespace": given.namespace} if given.namespace else {})}
    texts, items = _texts(given.package)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts}
    labels = {"labels": {QUEUE: given.queue}} if given.queue else {}
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {**metadata, **labels},
        "spec": _spec(given, name, items),
    }
    return f"{write_yaml(config)}---\n{write_yaml(job)}"


def _check_names(given: Manifest) -> None:
    """Refuse what Kubernetes would refuse.

    Raises:
        UsageError: a name or the amount of memory is none that Kubernetes allows.
    """
    named = [("--pull-secret", name) for name in given.pull_secrets] + [("--secret", name) for name in given.secrets]
    named += [("--volume", claim) for claim, _ in given.volumes]
    single = {"--service-account": given.service_account, "--queue": given.queue, "--namespace": given.namespace}
    named += [(option, name) for option, name in single.items() if name is not None]
    for option, name in named:
        if not NAME.fullmatch(name):
            hint = "Kubernetes allows lower-case letters, digits, '-' and '.'"
            raise UsageError(said("{option} {name!r} is not a Kubernetes name", option=option, name=name), hint=hint)
    if given.memory is not None and not QUANTITY.fullmatch(given.memory):
        raise UsageError(
            said("--memory {memory!r} is not an amount of memory", memory=given.memory),
            hint="expected a size such as 512Gi",
        )
    if not given.image.strip():
        raise UsageError("--image is empty", hint="name an image with Ray and rlctl[runtime]")


def name_of(run: str) -> str:
    """A run's name as Kubernetes allows it."""
    return re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:LONGEST_NAME].strip("-") or "run"


def _texts(package: Package) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The entries of the ConfigMap, whose names know no folders, and the file that each becomes.

    Raises:
        PlanError: a file is no text, or all are too large.
    """
    texts, items = {CONFIG: package.config}, [{"key": CONFIG, "path": CONFIG}]
    for index, (name, content) in enumerate(sorted(package.files.items())):
        key = f"file-{index}-{re.sub(r'[^A-Za-z0-9._-]', '_', PurePosixPath(name).name)}"
        try:
            texts[key] = content.decode("utf-8")
        except UnicodeDecodeError:
            raise PlanError(
                said("{name} is not a text file, so it cannot be put into a ConfigMap", name=name)
            ) from None
        items.append({"key": key, "path": f"{FILES}/{name}"})
    size = sum(len(text.encode()) for text in texts.values())
    if size > LARGEST_CONFIG_MAP:
        raise PlanError(
            said(
                "the config and the code next to it are {size:,} bytes; a ConfigMap holds at most {most:,}",
                size=size,
                most=LARGEST_CONFIG_MAP,
            ),
            hint="put the code into the image or on the shared volume, and use its path there",
        )
    return texts, items


def _spec(given: Manifest, name: str, items: list[dict[str, str]]) -> dict[str, Any]:
    cluster: dict[str, Any] = {
        **({"rayVersion": given.ray_version} if given.ray_version else {}),
        **({"authOptions": {"mode": "token"}} if given.authenticate else {}),
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": _pod("ray-head", given, name, items, {"cpu": str(HEAD_CPUS), "memory": HEAD_MEMORY}),
        },
        "workerGroupSpecs": [
            {
                "groupName": "workers",
                "replicas": given.machines.nodes,
                "minReplicas": given.machines.nodes,
                "maxReplicas": given.machines.nodes,
                "rayStartParams": {"num-cpus": str(given.machines.worker_cpus)},
                "template": _pod(WORKER, given, name, items, _of_worker(given)),
            }
        ],
    }
    return {
        "entrypoint": f"rlctl launch {MOUNT}/{CONFIG} --address auto",
        "backoffLimit": given.retries,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        **_submitter(given),
        "rayClusterSpec": cluster,
    }


def _submitter(given: Manifest) -> dict[str, Any]:
    """The pod that submits the job, if it needs what KubeRay's own does not have."""
    needs = _scheduling(given)
    if not needs:
        return {}
    container = {
        "name": "ray-job-submitter",
        "image": given.image,
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": dict(SUBMITTER)},
    }
    return {"submitterPodTemplate": {"spec": {"containers": [container], "restartPolicy": "Never", **needs}}}


def _scheduling(given: Manifest) -> dict[str, Any]:
    """The fields of a pod's spec by which it is admitted and pulls its image."""
    return {
        **({"imagePullSecrets": [{"name": name} for name in given.pull_secrets]} if given.pull_secrets else {}),
        **({"serviceAccountName": given.service_account} if given.service_account else {}),
        **({"tolerations": [dict(item) for item in given.tolerations]} if given.tolerations else {}),
    }


def _of_worker(given: Manifest) -> dict[str, str]:
    machines = given.machines
    return {
        "cpu": str(machines.cpus_per_node),
        **({"memory": given.memory} if given.memory else {}),
        **({"nvidia.com/gpu": str(machines.gpus_per_node)} if machines.gpus_per_node else {}),
    }


def _pod(
    container: str, given: Manifest, name: str, items: list[dict[str, str]], resources: Mapping[str, str]
) -> dict[str, Any]:
    shared = [(f"shared-{index}", claim, path) for index, (claim, path) in enumerate(given.volumes)]
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": name, "items": items}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        *({"name": title, "persistentVolumeClaim": {"claimName": claim}} for title, claim, _ in shared),
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "config", "mountPath": MOUNT, "readOnly": True},
        {"name": "memory", "mountPath": "/dev/shm"},
        *({"name": title, "mountPath": path} for title, _, path in shared),
    ]
    return {
        "spec": {
            "containers": [
                {
                    "name": container,
                    "image": given.image,
                    "resources": {"limits": dict(resources), "requests": dict(resources)},
                    **(
                        {"envFrom": [{"secretRef": {"name": secret}} for secret in given.secrets]}
                        if given.secrets
                        else {}
                    ),
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
            **_scheduling(given),
            **({"nodeSelector": dict(given.node_selector)} if given.node_selector and container == WORKER else {}),
        }
    }
