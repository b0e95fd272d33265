"""Probes of the services that a run uses: Ray, the hub, trackers, and endpoints of models, tools and sandboxes."""

from __future__ import annotations

import base64
import errno
import json
import netrc
import os
import platform
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

from rlctl.checks.here.probing import PATIENCE, Probe, asked, bearer, connects, place_of
from rlctl.checks.problem import Problem, problem
from rlctl.checks.sources import looks_local
from rlctl.common import own_python, packages
from rlctl.common.filenames import expanded
from rlctl.config import Config
from rlctl.config.sections.agents import McpTool
from rlctl.config.sections.output import SwanlabTracker, Tracker, WandbTracker
from rlctl.config.sections.rewards import JudgeReward, ModelReward, SandboxReward
from rlctl.config.sections.rollout import ExternalEngine
from rlctl.documents.paths import KeyPath
from rlctl.planning import arithmetic

HUB = "https://huggingface.co"
WANDB = "https://api.wandb.ai"
SWANLAB = "https://api.swanlab.cn"
YES = ("1", "true", "yes", "on")
MODELSCOPE = ("VERL_USE_MODELSCOPE", "TRINITY_USE_MODELSCOPE", "USE_MODELSCOPE", "VLLM_USE_MODELSCOPE")
"""Variables with which models come from another hub."""
_CLUSTER = (
    "import sys, ray; client = ray._raylet.GcsClient(address=sys.argv[1]); "
    "print(client.internal_kv_get(b'CLUSTER_METADATA', namespace=b'cluster').decode())"
)
"""A program that prints what a Ray cluster says of itself; in its own process, which ends where Ray would wait."""


def probes(config: Config) -> Iterator[Probe]:
    """What is asked of services."""
    address = config.runtime.ray.address or os.environ.get("RAY_ADDRESS", "")
    if address not in ("", "auto", "local"):
        yield Probe(place_of(address), ("runtime", "ray", "address"), partial(ray_cluster, address))
    yield from _hub_probes(config)
    for index, tracker in enumerate(config.tracking):
        key: KeyPath = ("tracking", index)
        if isinstance(tracker, WandbTracker | SwanlabTracker) and (host := tracker_host(config, tracker)):
            yield Probe(place_of(host), key, partial(tracker_login, config, key, tracker, host))
    yield from _endpoint_probes(config)


def ray_cluster(address: str) -> Iterator[Problem]:
    """The Ray cluster of an address answers, with the Ray and Python of this machine."""
    key: KeyPath = ("runtime", "ray", "address")
    place = place_of(address)
    if reason := connects(place):
        yield problem("here-ray", key, address=place, reason=reason)
        return
    here = {"ray": packages.version_of("ray"), "python": platform.python_version()}
    there = _cluster_says(address, place)
    for name, value in there.items():
        own = here[name]
        if own and value and own != value:
            yield problem("here-ray_version", key, address=place, name=name.title(), there=value, here=own)


def _cluster_says(address: str, place: str) -> dict[str, str]:
    """The versions of Ray and Python of a cluster; none at an address that only Ray's client can ask.

    Raises:
        OSError: the cluster does not tell them; the text says why.
    """
    if address.startswith("http"):
        answer = asked(f"{address.rstrip('/')}/api/version")
        told = answer.data()
        if not isinstance(told, dict) or "ray_version" not in told:
            raise OSError(errno.EPROTO, answer.reason or f"HTTP {answer.status}")
        return {"ray": str(told["ray_version"])}
    if "://" in address or packages.version_of("ray") is None:
        return {}
    command, failure = own_python.isolated("-c", _CLUSTER, place), ""
    for mode in _auth_modes():
        try:
            told = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE / 2 + 1, check=False,
                env={**os.environ, "RAY_AUTH_MODE": mode},
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from error
        if told.returncode == 0:
            found = json.loads(told.stdout.splitlines()[-1])
            return {"ray": str(found["ray_version"]), "python": str(found["python_version"])}
        failure = failure or (told.stderr.strip().splitlines() or [""])[-1].partition(" Note: ")[0]
    raise OSError(errno.EPROTO, failure[:200])


def _auth_modes() -> tuple[str, ...]:
    """How a cluster is asked: as the environment says, else with this user's token before without one."""
    if mode := os.environ.get("RAY_AUTH_MODE"):
        return (mode,)
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    has_token = bool(os.environ.get("RAY_AUTH_TOKEN")) or file.is_file()
    return ("token", "disabled") if has_token else ("disabled",)


def _hub_probes(config: Config) -> Iterator[Probe]:
    if any(os.environ.get(name, "").lower() in YES for name in MODELSCOPE):
        return
    told = set()
    for key, kind, name in _named(config):
        if (kind, name) not in told:
            told.add((kind, name))
            yield Probe(place_of(_endpoint()), key, partial(on_hub, key, kind, name))


def _named(config: Config) -> Iterator[tuple[KeyPath, str, str]]:
    """Models and data sets of a hub: the key, which of the two, and the name."""
    models: list[tuple[KeyPath, str]] = [(("model", "path"), config.model.path)]
    for role, section in (("reference", config.reference), ("critic", config.critic)):
        if section is not None and section.model is not None:
            models.append(((role, "model", "path"), section.model.path))
    for index, reward in enumerate(config.rewards):
        if isinstance(reward, ModelReward):
            models.append((("rewards", index, "path"), reward.path))
        elif isinstance(reward, JudgeReward) and arithmetic.is_served_here(reward):
            models.append((("rewards", index, "model"), reward.model))
    for index, model in enumerate(config.rollout.auxiliary_models):
        if model.base_url is None:
            models.append((("rollout", "auxiliary_models", index, "path"), model.path))
    for key, path in models:
        if _is_hub_name(path):
            yield key, "models", path
    for part in ("train", "eval"):
        for index, source in enumerate(getattr(config.data, part)):
            if source.format == "hub" or (source.format == "auto" and _is_hub_name(source.path)):
                yield ("data", part, index, "path"), "datasets", source.path


def _is_hub_name(path: str) -> bool:
    named = path.count("/") == 1 and not looks_local(path) and "$" not in path
    return named and not expanded(path).exists()


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or HUB


def _hub_home() -> Path:
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")


def _hub_key() -> str:
    """The token with which this machine is logged in; empty without one."""
    if token := os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN"):
        return token.strip()
    try:
        return Path(os.environ.get("HF_TOKEN_PATH") or _hub_home() / "token").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _is_cached(kind: str, name: str) -> bool:
    folder = Path(os.environ.get("HF_HUB_CACHE") or _hub_home() / "hub")
    snapshots = folder / f"{kind}--{name.replace('/', '--')}" / "snapshots"
    return snapshots.is_dir() and any(file.is_file() for each in snapshots.iterdir() for file in each.iterdir())


def on_hub(key: KeyPath, kind: str, name: str) -> Iterator[Problem]:
    """A model or data set is in this machine's cache, or its hub gives it to whoever is logged in here."""
    if _is_cached(kind, name):
        return
    if any(os.environ.get(each, "").lower() in YES for each in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")):
        yield problem("here-hub_offline", key, name=name)
        return
    endpoint, token = _endpoint(), _hub_key()
    place = place_of(endpoint)
    answer = asked(f"{endpoint}/api/{kind}/{quote(name)}", headers=bearer(token))
    if not answer.status:
        yield problem("here-hub", key, name=name, place=place, reason=answer.reason)
    elif answer.refuses:
        yield problem("here-hub_login", key, name=name, place=place, login="no" if not token else "yes")
    elif answer.status == 404:
        yield problem("here-hub_unknown", key, name=name, place=place)
    elif answer.status >= 500:
        yield problem("here-hub", key, name=name, place=place, reason=f"HTTP {answer.status}")
    elif kind == "models" and isinstance(told := answer.data(), dict) and told.get("gated"):
        page = asked(f"{endpoint}/{quote(name)}/resolve/main/config.json", method="HEAD", headers=bearer(token))
        if page.refuses:
            yield problem("here-hub_login", key, name=name, place=place, login="no" if not token else "yes")


def _variable(config: Config, name: str) -> str:
    return str(config.runtime.env_vars.get(name) or os.environ.get(name, ""))


def tracker_host(config: Config, tracker: Tracker) -> str:
    """The server of a tracker; empty where it needs none."""
    if isinstance(tracker, WandbTracker):
        mode = _variable(config, "WANDB_MODE") or tracker.mode
        return "" if mode != "online" else (tracker.base_url or _variable(config, "WANDB_BASE_URL") or WANDB)
    mode = _variable(config, "SWANLAB_MODE") or getattr(tracker, "mode", "")
    return (_variable(config, "SWANLAB_API_HOST") or SWANLAB) if mode in ("cloud", "online") else ""


def tracker_login(config: Config, key: KeyPath, tracker: Tracker, host: str) -> Iterator[Problem]:
    """The server of a tracker takes the key that the run will send."""
    name = "Weights & Biases" if isinstance(tracker, WandbTracker) else "SwanLab"
    place, host = place_of(host), host.rstrip("/")
    variable = "WANDB_API_KEY" if isinstance(tracker, WandbTracker) else "SWANLAB_API_KEY"
    own = getattr(tracker, "api_key", None) or _variable(config, variable) or _from_netrc(tracker, host)
    if not own:
        yield problem("here-tracker", key, tracker=name, variable=variable)
        return
    if isinstance(tracker, WandbTracker):
        body = json.dumps({"query": "query Viewer { viewer { id } }"}).encode()
        login = base64.b64encode(f"api:{own}".encode()).decode()
        headers = {"Content-Type": "application/json", "Authorization": f"Basic {login}"}
        answer = asked(f"{host}/graphql", method="POST", headers=headers, body=body)
        told = answer.data()
        is_refused = answer.refuses or (isinstance(told, dict) and (told.get("data") or {}).get("viewer", 0) is None)
    else:
        base = host if host.endswith("/api") else f"{host}/api"
        answer = asked(f"{base}/login/api_key", method="POST", headers={"authorization": own}, body=b"")
        is_refused = answer.refuses
    if is_refused:
        yield problem("here-tracker_refused", key, tracker=name, place=place, variable=variable)
    elif not answer.status or answer.status >= 500:
        reason = answer.reason or f"HTTP {answer.status}"
        yield problem("here-tracker_unreached", key, tracker=name, place=place, reason=reason)


def _from_netrc(tracker: Tracker, host: str) -> str:
    """The key that a login left in a file."""
    if isinstance(tracker, WandbTracker):
        files, machine = [Path(os.environ.get("NETRC") or Path.home() / ".netrc")], urlsplit(host).hostname or ""
    else:
        folders = (Path.cwd() / ".swanlab", Path(os.environ.get("SWANLAB_SAVE_DIR") or Path.home() / ".swanlab"))
        files, machine = [folder / ".netrc" for folder in folders], ""
    for file in files:
        try:
            known = netrc.netrc(str(file)).hosts
        except (OSError, netrc.NetrcParseError):
            continue
        for name, (_, _, password) in known.items():
            if password and machine in ("", name):
                return password
    return ""


def _endpoint_probes(config: Config) -> Iterator[Probe]:
    """Endpoints that answer questions of the run: of models, tools and sandboxes."""
    engine = config.rollout.engine
    served: list[tuple[KeyPath, str | None, str | None, str]] = []
    if isinstance(engine, ExternalEngine):
        served.append((("rollout", "engine"), engine.base_url, engine.api_key, engine.model or config.model.path))
    served += [
        (("rollout", "auxiliary_models", index), model.base_url, model.api_key, model.path)
        for index, model in enumerate(config.rollout.auxiliary_models)
    ]
    served += [
        (("rewards", index), reward.base_url, reward.api_key, reward.model)
        for index, reward in enumerate(config.rewards)
        if isinstance(reward, JudgeReward)
    ]
    for key, url, token, model in served:
        if url:
            yield Probe(
                place_of(url), (*key, "base_url"), partial(model_endpoint, (*key, "base_url"), url, token, model)
            )
    plain: list[tuple[KeyPath, str | None]] = [
        (("rewards", index, "url"), reward.url)
        for index, reward in enumerate(config.rewards)
        if isinstance(reward, SandboxReward)
    ]
    for place, agent in enumerate(config.rollout.agents):
        plain += [
            (("rollout", "agents", place, "tools", index, "url"), tool.url)
            for index, tool in enumerate(getattr(agent, "tools", ()))
            if isinstance(tool, McpTool)
        ]
    if config.service.data_juicer is not None:
        plain.append((("service", "data_juicer", "url"), config.service.data_juicer.url))
    for key, url in plain:
        if url and "$" not in url:
            yield Probe(place_of(url), key, partial(listens, key, url))


def model_endpoint(key: KeyPath, url: str, token: str | None, model: str) -> Iterator[Problem]:
    """An OpenAI-compatible endpoint answers, takes the key, and serves the model."""
    place = place_of(url)
    answer = asked(f"{url.rstrip('/')}/models", headers=bearer(token))
    if not answer.status:
        yield problem("here-endpoint", key, place=place, reason=answer.reason)
    elif answer.refuses:
        yield problem("here-endpoint_refused", key, place=place, status=answer.status)
    elif answer.status >= 500:
        yield problem("here-endpoint", key, place=place, reason=f"HTTP {answer.status}")
    told = answer.data()
    listed = told.get("data") if isinstance(told, dict) else None
    if isinstance(listed, list) and listed and model:
        names = [str(each.get("id")) for each in listed if isinstance(each, dict)]
        if model not in names:
            yield problem("here-endpoint_model", key, place=place, model=model, served=", ".join(names[:5]))


def listens(key: KeyPath, url: str) -> Iterator[Problem]:
    """Something listens at the address of a service; it is asked nothing, as an answer may cost or change something."""
    if reason := connects(place_of(url)):
        yield problem("here-endpoint", key, place=place_of(url), reason=reason)
