"""Balls that fall, and a game with one of them: an environment of one's own in one file.

From the repository's root:

    python examples/falling_balls.py                      # throws 300 balls up and draws them
    triglot check examples.falling_balls:FallingBall
    triglot train ppo examples.falling_balls:FallingBall --total-steps 200000 --out runs/balls
    triglot render runs/balls                             # draws what was learned
    python -m benchmarks.falling_balls                    # NumPy against JAX, compiled and not
"""

import functools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from triglot import Box, Discrete, TimeStep
from triglot.core.environment import first_step
from triglot.core.errors import TriglotError, writing
from triglot.envs.gif import write_gif

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
    """Let a tenth of a second pass, by the semi-implicit Euler method.

    It names no library, so that it works on whichever arrays it is given.
    """
    vy = balls.vy - DT * GRAVITY
    return Balls(x=balls.x + DT * balls.vx, y=balls.y + DT * vy, vx=balls.vx, vy=vy)


def simulate(balls: Balls, num_steps: int) -> Balls:
    """Let `num_steps` steps pass, in a loop of Python's."""
    for _ in range(num_steps):
        balls = fall(balls)
    return balls


@functools.partial(jax.jit, static_argnames="num_steps")
def simulate_compiled(balls: Balls, num_steps: int) -> Balls:
    """Let `num_steps` steps pass, compiled, with a walk through memory for each ten of them."""
    fallen, _ = jax.lax.scan(lambda now, _: (fall(now), None), balls, length=num_steps, unroll=10)
    return fallen


def thrown(num_balls: int, seed: int = 0) -> Balls:
    """Throw balls up from one place, as arrays of NumPy `[num_balls]`.

    Raises:
      TriglotError: if there is none.
    """
    if num_balls < 1:
        raise TriglotError(f"num_balls counts what is thrown, from 1; got {num_balls}.")
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
    """Catch the ball again and again: 1 for each time, and a miss ends the game.

    The actions are 0 left, 1 stay, 2 right. What is caught flies up again, to another side; the
    walls throw the ball back. Each flight takes some 29 steps, so that 7 catches fit into 200.

    Attributes:
      side: from the middle to a wall, in metres.
      height: that the ball falls from, in metres.
      reach: from the paddle's middle to its end, in metres.
      stride: what the paddle moves in a step, in metres.
      fastest: greatest speed of the ball to either side, in metres per second.
      max_steps: the game is cut here.
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
            terminated=missed,  # the game is lost: nothing follows
            truncated=(state.time >= self.max_steps) & ~missed,  # only cut: it would go on
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
        ball = state.ball  # everything about as large as 1
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
    """Paint balls of any shape as discs, uint8 `[height, width, 3]`; none below the ground.

    Args:
      balls: where they are.
      side: from the middle to the picture's left and right, in metres.
      height: of the picture, in metres.
      scale: pixels to a metre.
      radius: of a ball, in pixels.
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
    """Throw balls up and draw how they fall, ten pictures to a second.

    Args:
      num_balls: how many.
      num_steps: of a tenth of a second; most have landed after 100.
      out: the GIF to write.
    """
    if num_steps < 1 or out.suffix != ".gif":
        raise TriglotError(
            f"at least 1 step is drawn, as a .gif; got {num_steps} and {out}: write, say, "
            "--num-steps 100 --out falling_balls.gif."
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
    try:
        tyro.cli(main, args=argv)
    except TriglotError as error:
        print(f"falling_balls: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
