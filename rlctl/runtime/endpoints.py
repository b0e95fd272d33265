"""Servers that a run will ask: judges, sandboxes, an engine that rolls out. Whether they answer is asked before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said
from rlctl.config import Config
from rlctl.config.sections.rewards import JudgeReward, SandboxReward
from rlctl.config.sections.rollout import ExternalEngine
from rlctl.planning.plan import StagePlan

SECONDS = 10.0
"""Of one question."""
ATTEMPTS = 3
PAUSE_SECONDS = 1.0
STARTING = (502, 503, 504)
"""What a gateway answers whose server is not there, or not yet."""
FORBIDDEN = (401, 403)
SHOWN = 200
"""Characters of an answer."""


@dataclass(frozen=True)
class Endpoint:
    """A server, and where the config names it."""

    key: str
    url: str
    secret: str = field(default="", repr=False)
    model: str = ""
    """What it is to serve, where it is OpenAI-compatible."""

    @property
    def asked(self) -> str:
        """The address of a question that costs nothing: which models there are, or the page itself."""
        return f"{self.url.rstrip('/')}/models" if self.model else self.url


def endpoints_of(config: Config, plan: StagePlan) -> Iterator[Endpoint]:
    """Those of a stage."""
    engine = config.rollout.engine
    draws = plan.role("rollout") is not None and config.run.skip.rollout != "replay"
    if draws and isinstance(engine, ExternalEngine) and engine.base_url:
        yield Endpoint(
            "rollout.engine.base_url", engine.base_url, engine.api_key or "", engine.model or config.model.path
        )
    for index, model in enumerate(config.rollout.auxiliary_models):
        if model.base_url and (plan.role("reward") is not None or plan.role("rollout") is not None):
            yield Endpoint(
                f"rollout.auxiliary_models[{index}].base_url", model.base_url, model.api_key or "", model.path
            )
    for index, reward in enumerate(config.rewards if plan.role("reward") is not None else ()):
        if isinstance(reward, JudgeReward) and reward.base_url:
            yield Endpoint(f"rewards[{index}].base_url", reward.base_url, reward.api_key or "", reward.model)
        if isinstance(reward, SandboxReward) and reward.url:
            yield Endpoint(f"rewards[{index}].url", reward.url)


def check_endpoints(config: Config, plan: StagePlan, tell: Callable[[str], None]) -> None:
    """Ask each of them something.

    Args:
        config: the stage's config.
        plan: the stage's plan.
        tell: is told of one that answers, and does not list the model.

    Raises:
        RunError: one cannot be reached, or does not let us in.
    """
    for endpoint in endpoints_of(config, plan):
        answer = _answer(endpoint)
        key = endpoint.key.rpartition(".")[0]
        if answer.status_code in FORBIDDEN:
            given = "rejects its API key" if endpoint.secret else "wants a key"
            raise RunError(
                said(
                    "{key}: {asked} answered {status_code}: it {given}",
                    key=endpoint.key,
                    asked=endpoint.asked,
                    status_code=answer.status_code,
                    given=given,
                ),
                hint=said("set {key}.api_key", key=key),
            )
        served = _models(answer)
        if endpoint.model and served and endpoint.model not in served:
            tell(
                said(
                    "{asked} lists {names}, but not {model} ({key}.model)",
                    asked=endpoint.asked,
                    names=", ".join(served[:5]),
                    model=endpoint.model,
                    key=key,
                )
            )


def _answer(endpoint: Endpoint) -> httpx.Response:
    """What it answers; anything but that it is not there."""
    headers = {"Authorization": f"Bearer {endpoint.secret}"} if endpoint.secret else {}
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        try:
            answer = httpx.get(endpoint.asked, headers=headers, timeout=SECONDS)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise RunError(
                said("{key}: {url!r} is not a valid URL: {error}", key=endpoint.key, url=endpoint.url, error=error),
                hint="write it as http://host:8000/v1",
            ) from error
        except httpx.TimeoutException:
            problem = said("did not answer within {seconds:g} s", seconds=SECONDS)
        except httpx.HTTPError as error:
            problem = said("cannot be reached: {value}", value=str(error) or type(error).__name__)
        else:
            if answer.status_code not in STARTING:
                return answer
            problem = said(
                "answered {status_code}: {text}", status_code=answer.status_code, text=answer.text[:SHOWN].strip()
            )
    if endpoint.secret:
        problem = problem.replace(endpoint.secret, "***")
    raise RunError(
        said(
            "{key}: {asked} {problem} (tried {attempts} times)",
            key=endpoint.key,
            asked=endpoint.asked,
            problem=problem,
            attempts=ATTEMPTS,
        ),
        hint=said(
            "start the server and wait until it answers, or fix {key}; to test: curl {asked}",
            key=endpoint.key,
            asked=endpoint.asked,
        ),
    )


def _models(answer: httpx.Response) -> list[str]:
    """The models that it lists; empty where it does not."""
    try:
        return [str(one["id"]) for one in answer.json()["data"]] if answer.status_code < 400 else []
    except (ValueError, KeyError, TypeError):
        return []
