"""Single-player games of textarena, as environments of type python: path ``pkg://rlctl.runtime.agents.textarena``.

textarena's own observations repeat the whole game; these say only what is new, because the conversation keeps the rest.
"""

from __future__ import annotations

from typing import Any

from rlctl.common.errors import MissingDependency, RunError
from rlctl.common.messages.reasons import said

PLAYER = 0


class TextArena:
    """A game of textarena's registry, played alone. The reward comes with the last turn."""

    def __init__(self, id: str, **options: Any) -> None:
        """Make the game.

        Args:
            id: its id, such as ``TowerOfHanoi-v0``.
            options: arguments of the game.

        Raises:
            MissingDependency: textarena is not installed.
            RunError: there is no such game.
        """
        try:
            import textarena
        except ImportError as error:
            raise MissingDependency(
                said("the game {id} needs textarena, which is not installed", id=id),
                hint="pip install textarena==0.7.4",
            ) from error
        self._echo = textarena.ObservationType.PLAYER_ACTION
        try:
            self._game = textarena.make(f"{id.removesuffix('-raw')}-raw", **options)
        except ValueError as error:
            raise RunError(
                said("textarena: {error}", error=error), hint="see textarena's list of games; omit -raw and -train"
            ) from error

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin a game."""
        self._game.reset(num_players=1, seed=seed)
        return self._news(), {}

    def step(self, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Give the model's text to the game. ``info`` has ``success``, and what the game says at its end."""
        over, _ = self._game.step(text)
        if not over:
            return self._news(), 0.0, False, False, {}
        rewards, told = self._game.close()
        reward = float(rewards[PLAYER])
        outcome = told[PLAYER]
        return str(outcome.get("reason") or ""), reward, True, False, {**outcome, "success": reward >= 1}

    def _news(self) -> str:
        """What the game has said since the last observation."""
        _, outcome = self._game.get_observation()
        return "\n".join(text.strip() for _, text, kind in outcome if kind is not self._echo)
