"""Falling balls, and a game with one of them: a custom environment in one file.

From the repository's root:

    python examples/falling_balls.py                      # simulates 300 balls and draws them
    triglot check examples.falling_balls:FallingBall
    triglot train ppo examples.falling_balls:FallingBall --total-steps 200000 --out runs/balls
    triglot render runs/balls                             # draws an episode of the agent
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from triglot.core.errors import writing
from triglot.envs.gif import write_gif
from triglot.rl import Box, Discrete, TimeStep, TriglotError, first_step

GRAVITY = 9.81  # metres per second squared
DT = 0.1  # seconds
COLOURS = np.array([(0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167)], np.uint8)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Balls:
    """Balls in a vertical plane, as arrays of NumPy or of JAX, float32 of any one shape.

    Attributes:
      x, y: metres to the right and above the ground.
      vx, vy: metres per second.
    """

    x: Any
    y: Any
    vx: Any
    vy: Any


def fall(balls: Balls) -> Balls:
    """Simulate a tenth of a second with the semi-implicit Euler method.

    The code works on NumPy and on JAX arrays.
    """
    vy = balls.vy - DT * GRAVITY
    return Balls(x=balls.x + DT * balls.vx, y=balls.y + DT * vy, vx=balls.vx, vy=vy)


def thrown(num_balls: int, seed: int = 0) -> Balls:
    """Make balls thrown up from one place, as NumPy arrays `[num_balls]`.

    Raises:
      TriglotError: if `num_balls` is less than 1.
    """
    if num_balls < 1:
        raise TriglotError(f"num_balls must be at least 1, got {num_balls}.")
    rng = np.random.default_rng(seed)
    angle, speed = rng.uniform([[-0.17], [25.0]], [[0.17], [49.0]], (2, num_balls))
    start = 0.0 * speed, 0.0 * speed, speed * np.sin(angle), speed * np.cos(angle)
    x, y, vx, vy = (numbers.astype(np.float32) for numbers in start)
    return Balls(x=x, y=y, vx=vx, vy=vy)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class FallingBallState:
    """One ball, the paddle under it, and the time."""

    ball: Balls
    paddle: jax.Array  # float32 [], metres from the middle
    time: jax.Array  # int32 [], steps since the reset


@dataclass(frozen=True)
class FallingBall:
    """Catch a ball repeatedly: a reward of 1 per catch; a miss terminates the episode.

    The actions are 0 left, 1 stay, 2 right. A caught ball flies up again with a new sideways speed;
    the walls reflect it. A flight takes about 29 steps, so 7 catches fit into 200 steps.

    Attributes:
      side: distance from the middle to a wall, in metres.
      height: initial height of the ball, in metres.
      reach: half the length of the paddle, in metres.
      stride: distance that the paddle moves in a step, in metres.
      fastest: maximum sideways speed of the ball, in metres per second.
      max_steps: time limit of an episode.
    """

    side: float = 5.0
    height: float = 10.0
    reach: float = 0.8
    stride: float = 0.5
    fastest: float = 4.0
    max_steps: int = 200

    name = "falling_ball"
    obs_spec = Box((5,))
    action_spec = Discrete(3)
    draw_suffix = ".gif"

    def reset(self, key: jax.Array) -> TimeStep:
        x_key, vx_key = jax.random.split(key)
        ball = Balls(
            x=jax.random.uniform(x_key, (), jnp.float32, -self.side, self.side),
            y=jnp.float32(self.height),
            vx=self._sideways(vx_key),
            vy=jnp.float32(0.0),
        )
        state = FallingBallState(ball=ball, paddle=jnp.float32(0.0), time=jnp.int32(0))
        return first_step(state, self._observe(state))

    def step(self, state: FallingBallState, action: jax.Array, key: jax.Array) -> TimeStep:
        move = self.stride * (action - 1).astype(jnp.float32)
        paddle = jnp.clip(state.paddle + move, -self.side, self.side)
        ball = self._within_walls(fall(state.ball))
        landed = ball.y <= 0.0
        caught = landed & (jnp.abs(ball.x - paddle) <= self.reach)
        missed = landed & ~caught
        up = jnp.float32((2.0 * GRAVITY * self.height) ** 0.5)
        again = Balls(x=ball.x, y=jnp.float32(0.0), vx=self._sideways(key), vy=up)
        ball = jax.tree.map(lambda new, old: jnp.where(caught, new, old), again, ball)
        state = FallingBallState(ball=ball, paddle=paddle, time=state.time + 1)
        return TimeStep(
            state=state,
            obs=self._observe(state),
            reward=caught.astype(jnp.float32),
            terminated=missed,  # the game is over: no bootstrap
            truncated=(state.time >= self.max_steps) & ~missed,  # time limit: bootstrap
        )

    def draw(self, states: FallingBallState, path: str) -> None:
        """Draw states `[T]` as an animated GIF."""
        length = len(states.time)
        each = (jax.tree.map(lambda leaf, t=t: np.asarray(leaf[t]), states) for t in range(length))
        write_gif(path, map(self._frame, each), num_frames=length, milliseconds=50)

    def _frame(self, state: FallingBallState) -> np.ndarray:
        air = paint(state.ball, side=self.side, height=1.2 * self.height, scale=24, radius=6)
        ground = np.full((6, air.shape[1], 3), 230, np.uint8)
        ends = 24 * (self.side + state.paddle + np.array([-self.reach, self.reach]))
        left, right = np.clip(ends, 0, air.shape[1]).astype(int)
        ground[:, left:right] = (213, 94, 0)
        return np.concatenate([air, ground])

    def _sideways(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (), jnp.float32, -self.fastest, self.fastest)

    def _within_walls(self, ball: Balls) -> Balls:
        beyond = jnp.abs(ball.x) > self.side
        mirrored = 2.0 * self.side * jnp.sign(ball.x) - ball.x
        return replace(
            ball,
            x=jnp.where(beyond, mirrored, ball.x),
            vx=jnp.where(beyond, -ball.vx, ball.vx),
        )

    def _observe(self, state: FallingBallState) -> jax.Array:
        ball = state.ball  # every component is scaled to about 1
        return jnp.stack(
            [
                ball.x / self.side,
                ball.y / self.height,
                ball.vx / self.fastest,
                ball.vy / 10.0,
                state.paddle / self.side,
            ]
        )


def paint(balls: Balls, *, side: float, height: float, scale: int, radius: int) -> np.ndarray:
    """Paint balls as discs in an image, uint8 `[height, width, 3]`; parts below the ground are cut.

    Args:
      balls: arrays of any shape.
      side: half the width of the image, in metres.
      height: height of the image, in metres.
      scale: pixels per metre.
      radius: radius of a ball, in pixels.
    """
    image = np.full((int(scale * height), int(2 * scale * side), 3), 255, np.uint8)
    down, right = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    disc = down**2 + right**2 <= radius**2
    x, y = np.ravel(balls.x), np.ravel(balls.y)
    rows = np.rint(image.shape[0] - radius - scale * y).astype(int)[:, None] + down[disc]
    columns = np.rint(scale * (x + side)).astype(int)[:, None] + right[disc]
    seen = (rows >= 0) & (rows < image.shape[0]) & (columns >= 0) & (columns < image.shape[1])
    colours = np.broadcast_to(COLOURS[np.arange(x.size) % 4, None], (*seen.shape, 3))
    image[rows[seen], columns[seen]] = colours[seen]
    return image


def main(num_balls: int = 300, num_steps: int = 100, out: Path = Path("falling_balls.gif")) -> None:
    """Throw balls up and draw their flight, ten frames per second.

    Args:
      num_balls: number of balls.
      num_steps: number of steps of 0.1 s; most balls have landed after 100.
      out: the GIF to write.
    """
    if num_steps < 1 or out.suffix != ".gif":
        raise TriglotError(
            f"num_steps must be at least 1 and out must end in .gif; got {num_steps} and {out}: "
            "write --num-steps 100 --out falling_balls.gif, for example."
        )

    def frames(balls: Balls) -> Iterator[np.ndarray]:
        for _ in range(num_steps):
            yield paint(balls, side=80.0, height=125.0, scale=3, radius=3)
            balls = fall(balls)

    with writing(out):
        write_gif(str(out), frames(thrown(num_balls)), num_frames=num_steps, milliseconds=100)
    print(f"drawn: {out}")


def run(argv: Sequence[str] | None = None) -> int:
    """Run `main` from the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description="Throw balls up and draw their flight as a GIF.")
    parser.add_argument("--num-balls", type=int, default=300)
    parser.add_argument("--num-steps", type=int, default=100, help="steps of 0.1 s")
    parser.add_argument("--out", type=Path, default=Path("falling_balls.gif"))
    try:
        main(**vars(parser.parse_args(argv)))
    except TriglotError as error:
        print(f"falling_balls: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
