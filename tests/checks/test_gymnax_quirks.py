"""gymnax without the corrections of its adapter: the checker finds the known quirks only."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnax as library
import jax
import jax.numpy as jnp
import pytest

from triglot.checks.environment.check import check_environment
from triglot.core.environment import TimeStep, first_step
from triglot.envs import adapting, gymnax
from triglot.envs.adapting import construction, library_promotion, strong

pytestmark = pytest.mark.optimized

QUIRKS = {
    "BernoulliBandit-misc": ("reward",),
    "Catch-bsuite": ("observation",),
    "DeepSea-bsuite": ("one end",),
    "FourRooms-misc": ("observation",),
    "GaussianBandit-misc": ("declared bounds",),
    "MemoryChain-bsuite": ("declared bounds",),
    "MetaMaze-misc": ("declared bounds",),
    "UmbrellaChain-bsuite": ("reward", "declared bounds"),
}
FAST = {"Catch-bsuite"}


@dataclass(frozen=True)
class Uncorrected(adapting.Adapted):
    """gymnax's own reward and flags; its counters still have dtypes."""

    def made(self) -> tuple[Any, Any]:
        with construction():  # FourRooms and MetaMaze compute, and promote, when they are made
            return library.make(self.env_id)

    def reset(self, key: jax.Array) -> TimeStep:
        env, params = self.made()
        with library_promotion():
            obs, state = env.reset_env(key, params)
        return first_step(strong(state), strong(obs))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        env, params = self.made()
        with library_promotion():
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            truncated = env.is_truncated(state, params)
        return TimeStep(
            state=strong(state),
            obs=strong(obs),
            reward=strong(reward),
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(truncated),
        )


@pytest.fixture
def without_corrections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gymnax, "_OUT_OF_BOUNDS", set())
    monkeypatch.setattr(gymnax, "as_returned", lambda spec, returned: spec)
    adapting._adapter.cache_clear()
    yield
    adapting._adapter.cache_clear()


@pytest.mark.parametrize(
    "env_id",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in gymnax.names()],
)
def test_the_checker_finds_the_quirks_of_gymnax_itself(
    env_id: str, without_corrections: None
) -> None:
    report = check_environment(Uncorrected("gymnax", env_id, (), gymnax._build))
    assert report.failed == QUIRKS.get(env_id, ()), str(report)
