"""Environments that OpenEnv servers run, as environments of type python: path ``pkg://rlctl.runtime.agents.openenv``.

Each environment is a session of its own: a WebSocket at ``/ws``, over which a message each resets and steps it. OpenEnv's own
client is not needed, and shares no environment with current releases of vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from rlctl.common.errors import RunError
from rlctl.common.messages.reasons import said

OPENING_SECONDS = 30.0


class OpenEnv:
    """One session of a server."""

    def __init__(
        self,
        url: str,
        action_key: str = "message",
        observation_key: str | None = None,
        reset: Mapping[str, Any] | None = None,
    ) -> None:
        """Open a session.

        Args:
            url: of the server, such as ``http://localhost:8000``.
            action_key: field of the server's actions that gets the model's text.
            observation_key: field of its observations that is shown; None shows all, as JSON.
            reset: what the server's ``reset`` gets besides the seed.

        Raises:
            RunError: there is no such server.
        """
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        self._action_key, self._observation_key, self._reset = action_key, observation_key, dict(reset or {})
        self._session = ExitStack()
        address = url.rstrip("/").replace("http", "ws", 1) if url.startswith("http") else url.rstrip("/")
        try:
            self._socket = self._session.enter_context(
                connect(f"{address}/ws", open_timeout=OPENING_SECONDS, max_size=None)
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            raise RunError(
                said("no OpenEnv server answers at {url}: {error}", url=url, error=error),
                hint="start it, and set url of the environment's args",
            ) from error

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        told = self._asked({"type": "reset", "data": {**self._reset, "seed": seed}})
        return self._shown(told), {}

    def step(self, text: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Send the model's text as an action. ``info`` has the fields of the observation."""
        told = self._asked({"type": "step", "data": {self._action_key: text}})
        info = told["observation"] if isinstance(told["observation"], Mapping) else {}
        return self._shown(told), float(told.get("reward") or 0.0), bool(told.get("done")), False, dict(info)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _asked(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        self._socket.send(json.dumps(message))
        answer = json.loads(self._socket.recv())
        if answer.get("type") == "error":
            refusal = answer["data"]
            raise RuntimeError(
                f"the server refuses {message['type']}: {refusal.get('message')} {refusal.get('errors') or ''}".strip()
            )
        told: Mapping[str, Any] = answer["data"]
        return told

    def _shown(self, told: Mapping[str, Any]) -> Any:
        observation = told["observation"]
        return observation if self._observation_key is None else str(observation[self._observation_key])
