"""A correct agent that compiles fast; the broken agents subclass it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from triglot.core.agent import PolicyInput, PolicyOutput, Trajectory
from triglot.core.environment import Environment
from triglot.envs import probes

ENV = probes.make("two-step")
NUM_ACTIONS = 2


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Numbers:
    learning_rate: Any = 0.1
    discount: Any = 0.9


def linear(params: dict[str, jax.Array], obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return logits `[..., A]` and a value `[...]`, linear in the observation and its square."""
    features = jnp.concatenate([obs, obs**2, jnp.ones_like(obs)], axis=-1)
    return features @ params["actor"], features @ params["critic"]


@dataclass(frozen=True)
class ActorCritic:
    """One-step actor-critic, linear in the observation.

    Its state is a dictionary of `params`, `hyper` and a count. Each broken agent replaces one of
    its methods.
    """

    num_envs: int = 2
    rollout_length: int = 4
    hyper: Numbers = Numbers()
    name: ClassVar[str] = "ActorCritic"
    online: ClassVar[bool] = False
    plans: ClassVar[bool] = False
    two_players: ClassVar[bool] = False
    learns_estimates: ClassVar[bool] = False
    learns_absorbing_states: ClassVar[bool] = False
    learns_from_next_obs: ClassVar[bool] = False
    learns_otherwise: ClassVar[str] = ""
    explores_by_parameters: ClassVar[bool] = False
    bootstraps: ClassVar[bool] = True
    learning_starts: ClassVar[int] = 0
    # Members of the Agent protocol that only make_agent uses.
    Config = Hyperparams = network = obs_spec = action_spec = config = optimizer = None
    networks = staticmethod(lambda obs_spec, action_spec, config: {})

    def for_environment(self, options: Any) -> Any:
        return options

    def init(self, key: jax.Array, num_envs: int, hyper: Numbers | None = None) -> Any:
        numbers = jax.tree.map(
            lambda number: jnp.asarray(number, jnp.float32), self.hyper if hyper is None else hyper
        )
        actor_key, critic_key = jax.random.split(key)
        params = {
            "actor": 0.1 * jax.random.normal(actor_key, (3, NUM_ACTIONS)),
            "critic": jax.random.normal(critic_key, (3,)),
        }
        return {"params": params, "hyper": numbers, "count": jnp.zeros((), jnp.int32)}

    def initial_carry(self, state: Any, num_envs: int) -> Any:
        return ()

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        logits = self.logits(state, inputs)
        chosen = jax.random.categorical(key, logits) if explore else jnp.argmax(logits, axis=-1)
        return PolicyOutput(action=chosen.astype(jnp.int32), carry=carry, extras={"logits": logits})

    def logits(self, state: Any, inputs: PolicyInput) -> jax.Array:
        logits, _ = linear(state["params"], inputs.obs)
        if inputs.action_mask is None:
            return logits
        return jnp.where(inputs.action_mask, logits, -1e9)

    def bootstrap(self, trajectory: Trajectory, next_value: jax.Array) -> jax.Array:
        """Return the value that follows each step, `[T, N]`."""
        return jnp.where(trajectory.terminated, 0.0, next_value)

    def loss(self, params: Any, state: Any, trajectory: Trajectory, key: jax.Array) -> jax.Array:
        logits, value = linear(params, trajectory.obs)
        _, next_value = linear(params, trajectory.next_obs)
        follows = self.bootstrap(trajectory, next_value)
        target = jax.lax.stop_gradient(trajectory.reward + state["hyper"].discount * follows)
        error = target - value
        log_prob = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_prob, trajectory.action[..., None], axis=-1)[..., 0]
        return jnp.mean(0.5 * error**2 - jax.lax.stop_gradient(error) * chosen)

    def update(self, state: Any, trajectory: Trajectory, key: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(self.loss)(state["params"], state, trajectory, key)
        rate = state["hyper"].learning_rate
        params = jax.tree.map(lambda p, g: p - rate * g, state["params"], grads)
        return {**state, "params": params, "count": state["count"] + 1}, {"loss": loss}


@dataclass(frozen=True)
class Masked:
    """An environment in which one action is allowed, depending on the observation."""

    env: Environment = ENV

    @property
    def name(self) -> str:
        return f"masked {self.env.name}"

    @property
    def obs_spec(self) -> Any:
        return self.env.obs_spec

    @property
    def action_spec(self) -> Any:
        return self.env.action_spec

    def reset(self, key: jax.Array) -> Any:
        return self._mask(self.env.reset(key))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> Any:
        return self._mask(self.env.step(state, action, key))

    def _mask(self, step: Any) -> Any:
        allowed = jnp.arange(NUM_ACTIONS) == (step.obs[0] > 0.5).astype(jnp.int32)
        return type(step)(**{**vars(step), "action_mask": allowed})
