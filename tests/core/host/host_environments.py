"""Environments of Gymnasium that tests register, each odd in one way."""

from typing import Any

import gymnasium
import jax
import numpy as np

from triglot.envs import gridworld
from triglot.envs.adapting.spaces import space_from_spec

spaces = gymnasium.spaces


class Counter(gymnasium.Env):
    """Show how many steps were taken; terminate after `length`, and pay the count.

    Attributes:
      actions: what it was given in this episode.
    """

    observation_space: Any = spaces.Box(0.0, 1000.0, (2,), np.float64)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, length: int = 4) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.drawn, self.actions = 0, float(self.np_random.integers(1000)), []
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.actions.append(action)
        return self.observe(), self.count, self.count == self.length, False, {}

    def observe(self) -> Any:
        return np.array([self.count, self.drawn])


class Renderable(Counter):
    """Draw the count as the brightness of everything."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as in the base class)

    def __init__(self, length: int = 4, render_mode: str | None = None) -> None:
        super().__init__(length)
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.full((6, 8, 3), 20 * self.count, np.uint8)


class Named(Counter):
    """Show the count in a dictionary, and take a box."""

    observation_space = spaces.Dict(
        {"count": spaces.Discrete(1000), "image": spaces.Box(0, 255, (2, 2), np.uint8)}
    )
    action_space = spaces.Box(-0.3, np.array([0.1, 0.7]), (2,), np.float64)

    def observe(self) -> Any:
        return {"count": self.count, "image": np.full((2, 2), self.count, np.uint8)}


class Hands(Counter):
    """Show the count in a tuple beside texts, and take actions without bounds.

    Args:
      length: steps of an episode.
      unread: a `graph` is in the tuple, or there are `texts` only.
    """

    action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, length: int = 4, unread: str = "") -> None:
        super().__init__(length)
        text, graph = spaces.Text(9), spaces.Graph(spaces.Discrete(2), None)
        hand = (text, spaces.Discrete(5, start=2), spaces.Box(0.0, 9.0, (1,), np.float64))
        signs = spaces.MultiDiscrete([2, 3], start=[1, 0])
        self.observation_space = {
            "": spaces.Dict(hand=spaces.Tuple(hand), signs=signs, task=text),
            "graph": spaces.Dict(hand=spaces.Tuple((text, graph))),
            "texts": spaces.Dict(hand=spaces.Tuple((text,)), task=text),
        }[unread]

    def observe(self) -> Any:
        hand = ("play", np.int64(2 + self.count), np.array([self.count], np.float64))
        return {"hand": hand, "signs": np.array([2, self.count]), "task": "win"}


class Dials(gymnasium.Env):
    """The probe `two-dials` of triglot, written for Gymnasium, whose integers have 64 bits."""

    observation_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space: Any = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(2))
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        right = action == np.array([(0, 2), (1, 0)][self.shown])
        return self.observe(), float(right.mean()), True, False, {}

    def observe(self) -> Any:
        return np.array([2 * self.shown - 1], np.float32)


class Failing(Counter):
    """Do something wrong in the step `when` of the episode; 0 is its start."""

    def __init__(self, what: str = "obs", when: int = 3, length: int = 1000) -> None:
        super().__init__(length)
        self.what, self.when = what, when

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self.when == 0:
            raise RuntimeError("the simulator does not start")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.count == self.when:
            match self.what:
                case "reward":
                    reward = float("nan")
                case "obs":
                    obs = np.array([np.inf, 0.0])
                case "shape":
                    obs = np.zeros(3)
                case "raise":
                    raise RuntimeError("the simulator is gone")
        return obs, reward, terminated, truncated, info


class Lifted(gymnasium.Env):
    """The grid world of triglot, stepped in Python."""

    def __init__(self) -> None:
        self.env = gridworld.make("3x3")
        self.observation_space = space_from_spec(self.env.obs_spec)
        self.action_space = space_from_spec(self.env.action_spec)
        self._step = jax.jit(self.env.step)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        start = self.env.reset(jax.random.key(0))
        self.state = start.state
        return int(start.obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        after = self._step(self.state, np.int32(action), jax.random.key(0))
        self.state = after.state
        flags = bool(after.terminated), bool(after.truncated)
        return int(after.obs), float(after.reward), *flags, {}


made: Any
for made in (Counter, Renderable, Named, Hands, Dials, Failing, Lifted):
    gymnasium.register(f"triglot/{made.__name__}-v0", made)
