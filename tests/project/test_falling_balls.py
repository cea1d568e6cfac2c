"""The falling balls of the examples: physics, agreement of the three programs, and the game."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from triglot import check_environment

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # examples are not installed

from examples import falling_balls as example  # noqa: E402

GAME = example.FallingBall()
STAY = jnp.int32(1)


def ball(**numbers: float) -> example.Balls:
    """Make one ball as JAX arrays, at rest in the middle except for `numbers`."""
    at_rest = {"x": 0.0, "y": 0.0, "vx": 0.0, "vy": 0.0}
    return example.Balls(**{name: jnp.float32(n) for name, n in (at_rest | numbers).items()})


def simulated(balls: example.Balls, num_steps: int) -> example.Balls:
    """Let balls fall for some steps."""
    for _ in range(num_steps):
        balls = example.fall(balls)
    return balls


def state(time: int = 0, paddle: float = 0.0, **numbers: float) -> example.FallingBallState:
    """Make a state of the game."""
    return example.FallingBallState(
        ball=ball(**numbers), paddle=jnp.float32(paddle), time=jnp.int32(time)
    )


def test_a_ball_falls_as_computed_by_hand() -> None:
    once = example.fall(ball(x=1.0, y=100.0, vx=2.0))
    assert [float(once.x), float(once.vx)] == pytest.approx([1.2, 2.0])
    assert [float(once.y), float(once.vy)] == pytest.approx([99.9019, -0.981])
    # After k steps: vy = -g dt k, and y has fallen by g dt^2 (1 + ... + k).
    later = simulated(ball(y=100.0), 10)
    assert [float(later.y), float(later.vy)] == pytest.approx([100 - 9.81 * 0.01 * 55, -9.81])


def test_numpy_jax_and_compiled_jax_agree() -> None:
    balls = example.thrown(50)
    fallen = simulated(balls, 25)
    assert isinstance(fallen.y, np.ndarray) and fallen.y.dtype == np.float32
    there = jax.tree.map(jnp.asarray, balls)
    for other in (simulated(there, 25), jax.jit(lambda balls: simulated(balls, 25))(there)):
        for name in ("x", "y", "vx", "vy"):
            mine, theirs = getattr(fallen, name), getattr(other, name)
            np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_the_game_passes_its_check() -> None:
    report = check_environment(GAME)
    assert report.passed, str(report)


def test_a_caught_ball_flies_up_again() -> None:
    step = GAME.step(state(x=0.5, y=0.1, vy=-14.0), STAY, jax.random.key(0))
    assert float(step.reward) == 1.0 and not (step.terminated | step.truncated)
    assert float(step.state.ball.y) == 0.0 and float(step.state.ball.vy) > 14.0


def test_a_missed_ball_terminates() -> None:
    late = state(x=2.0, y=0.1, vy=-14.0, time=GAME.max_steps - 1)
    step = GAME.step(late, STAY, jax.random.key(0))
    assert float(step.reward) == 0.0 and step.terminated and not step.truncated


def test_the_time_limit_truncates() -> None:
    step = GAME.step(state(y=5.0, time=GAME.max_steps - 1), STAY, jax.random.key(0))
    assert step.truncated and not step.terminated


def test_a_wall_reflects_the_ball() -> None:
    step = GAME.step(state(x=4.9, y=5.0, vx=3.0), STAY, jax.random.key(0))
    assert float(step.state.ball.x) == pytest.approx(4.8)
    assert float(step.state.ball.vx) == -3.0


def test_the_game_is_drawn(tmp_path: Path) -> None:
    start, end = state(y=10.0), state(y=9.0, paddle=5.0)
    GAME.draw(jax.tree.map(lambda *s: jnp.stack(s), start, end), str(tmp_path / "game.gif"))
    with Image.open(tmp_path / "game.gif") as picture:
        assert (picture.n_frames, picture.size) == (2, (240, 294))  # pyright: ignore


def test_balls_are_drawn_where_they_are_and_not_below_the_ground() -> None:
    seen = example.paint(ball(x=0.0, y=5.0), side=10.0, height=10.0, scale=2, radius=1)
    assert np.argwhere((seen < 255).any(axis=-1)).mean(axis=0).tolist() == [9.0, 20.0]
    sunk = example.paint(ball(y=-2.0), side=10.0, height=10.0, scale=2, radius=1)
    assert sunk.min() == 255


def test_the_example_draws(tmp_path: Path) -> None:
    example.main(num_balls=3, num_steps=2, out=tmp_path / "few.gif")
    with Image.open(tmp_path / "few.gif") as picture:
        assert picture.n_frames == 2  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_balls": 0}, "num_balls must be at least 1, got 0"),
        ({"num_steps": 0}, "num_steps must be at least 1 and out must end in .gif; got 0"),
        ({"out": Path("balls.mp4")}, "out must end in .gif; got 100 and balls.mp4"),
        ({"out": Path("no/where.gif")}, "no/where.gif cannot be written: No such file"),
    ],
)
def test_a_wrong_option_gives_one_sentence(
    arguments: dict,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        word
        for name, value in arguments.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    assert example.run(words) == 1
    assert said in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        example.run(["--help"])
    assert stopped.value.code == 0
    assert "Throw balls up" in capsys.readouterr().out
