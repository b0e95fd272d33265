"""A number to guess, served by OpenEnv: ``guess.py PORT``, in an environment with openenv."""

import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class Guess(Action):
    message: str


class Hint(Observation):
    text: str


class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.number, self.turns = 0, 0

    def reset(self, seed=None, episode_id=None, **_):
        self.number, self.turns = (seed or 0) % 9 + 1, 0
        return Hint(text="Guess a number from 1 to 9.")

    def step(self, action, timeout_s=None, **_):
        self.turns += 1
        if action.message.strip() == str(self.number):
            return Hint(text="Right.", reward=1.0, done=True)
        return Hint(text="Wrong.", reward=-0.1, done=False)

    @property
    def state(self):
        return State(step_count=self.turns)


app = create_fastapi_app(Game, Guess, Hint, max_concurrent_envs=8)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
