"""Stable-Baselines3's PPO, DQN and SAC: statements of `train`, a buffer's method, in PyTorch."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from gymnasium import spaces

from . import parts, tensors
from .cleanrl import torch_step
from .parts import Project, Theirs
from .sources import Checkout

PACKAGE = "stable_baselines3"


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build Stable-Baselines3's parts."""
    ppo, dqn, sac = (checkout.file(f"{PACKAGE}/{n}/{n}.py") for n in ("ppo", "dqn", "sac"))
    buffers = checkout.file(f"{PACKAGE}/common/buffers.py")
    policies = checkout.file(f"{PACKAGE}/common/policies.py")

    def settings(defaults: bool) -> dict[str, Any]:
        matched = {
            "clip_range": 0.2,
            "clip_range_vf": 0.2,
            "ent_coef": 0.01,
            "vf_coef": 0.5,
            "normalize_advantage": True,
            "max_grad_norm": parts.MAX_NORM,
        }
        if defaults:
            return {name: ppo.default(name, scope="PPO.__init__") for name in matched}
        return matched

    def loss(defaults: bool) -> Any:
        values = settings(defaults)
        theirs = ppo.statements(
            ("loss",), ("self", "rollout_data"), scope="PPO.train",
            clip_range=values["clip_range"], clip_range_vf=values["clip_range_vf"],
        )  # fmt: skip

        def sb3_loss(logits, value, action, old_log_prob, old_value, advantage, target):
            algorithm = SimpleNamespace(
                **values, policy=tensors.Outputs(logits, value), action_space=spaces.Discrete(3)
            )
            batch = SimpleNamespace(
                observations=None,
                actions=action,
                old_log_prob=old_log_prob,
                old_values=old_value,
                advantages=advantage,
                returns=target,
            )
            return theirs(algorithm, batch)

        return sb3_loss

    def gae(defaults: bool) -> Any:
        theirs = buffers.function("RolloutBuffer.compute_returns_and_advantage")

        def sb3_gae(reward, value, last_value, final_value, terminated, truncated):
            cut = truncated * (1 - terminated)
            done = torch.maximum(terminated, truncated)
            buffer = SimpleNamespace(
                buffer_size=reward.shape[0],
                # As `OnPolicyAlgorithm.collect_rollouts` stores the rewards of time limits.
                rewards=reward + parts.GAMMA * cut * final_value,
                values=value,
                episode_starts=torch.cat([torch.zeros_like(done[:1]), done[:-1]]),
                advantages=torch.zeros_like(reward),
                gamma=parts.GAMMA,
                gae_lambda=parts.LAMBDA,
            )
            theirs(buffer, tensors.AsArray(last_value), tensors.AsArray(done[-1]))
            return {"advantage": buffer.advantages, "target": buffer.returns}

        return sb3_gae

    def optimizer(defaults: bool) -> Any:
        options_of = policies.statements(
            ("optimizer_kwargs",), ("optimizer_class",), scope="ActorCriticPolicy.__init__"
        )
        options = options_of(torch.optim.Adam)
        step_of = ppo.calls(
            ("th.nn.utils.clip_grad_norm_", "self.policy.optimizer.step"), ("self",),
            scope="PPO.train",
        )  # fmt: skip
        limit = settings(defaults)["max_grad_norm"]

        def build(model):
            return tensors.Adam(model.parameters(), lr=parts.RATE, **options)

        def step(model, optimizer):
            policy = SimpleNamespace(parameters=model.parameters, optimizer=optimizer)
            step_of(SimpleNamespace(policy=policy, max_grad_norm=limit))

        return torch_step(build, step)

    def dqn_loss(defaults: bool) -> Any:
        gamma = dqn.default("gamma", scope="DQN.__init__")
        theirs = dqn.statements(("loss",), ("self", "replay_data", "discounts"), scope="DQN.train")

        def sb3_dqn_loss(q, next_q, next_target_q, action, reward, terminated, truncated):
            algorithm = SimpleNamespace(q_net=lambda obs: obs, q_net_target=lambda obs: obs)
            batch = SimpleNamespace(
                observations=q,
                next_observations=next_target_q,
                actions=action[:, None],
                rewards=reward[:, None],
                dones=terminated[:, None],
            )
            return theirs(algorithm, batch, gamma)

        return sb3_dqn_loss

    def sac_critic(defaults: bool) -> Any:
        theirs = sac.statements(
            ("critic_loss",), ("self", "replay_data", "discounts", "ent_coef"), scope="SAC.train"
        )

        def sb3_critic_loss(
            q, next_target_q, next_log_prob, log_temperature, reward, terminated, truncated
        ):
            algorithm = SimpleNamespace(
                actor=SimpleNamespace(action_log_prob=lambda obs: (None, next_log_prob)),
                critic=lambda obs, action: tuple(each[:, None] for each in q),
                critic_target=lambda obs, action: tuple(each[:, None] for each in next_target_q),
            )
            batch = SimpleNamespace(
                observations=None,
                next_observations=None,
                actions=None,
                rewards=reward[:, None],
                dones=terminated[:, None],
            )
            return theirs(algorithm, batch, parts.GAMMA, log_temperature.exp())

        return sb3_critic_loss

    def soft(log_prob, q) -> Any:
        return SimpleNamespace(
            use_sde=False,
            actor=SimpleNamespace(action_log_prob=lambda obs: (None, log_prob)),
            critic=lambda obs, action: tuple(each[:, None] for each in q),
            ent_coef_optimizer=True,
            target_entropy=-1.0,
        )

    def sac_actor(defaults: bool) -> Any:
        theirs = sac.statements(
            ("actor_loss",), ("self", "replay_data", "ent_coef"), scope="SAC.train"
        )

        def sb3_actor_loss(log_prob, q, log_temperature):
            batch = SimpleNamespace(observations=None)
            return theirs(soft(log_prob, q), batch, log_temperature.exp())

        return sb3_actor_loss

    def sac_temperature(defaults: bool) -> Any:
        theirs = sac.statements(("ent_coef_loss",), ("self", "replay_data"), scope="SAC.train")

        def sb3_temperature_loss(log_temperature, log_prob):
            algorithm = soft(log_prob, ())
            algorithm.log_ent_coef = log_temperature
            return theirs(algorithm, SimpleNamespace(observations=None))

        return sb3_temperature_loss

    return {
        "ppo.loss": Theirs(
            loss, ("unbiased_std", "double_value_loss", "clipped_value_alone"), "ppo.py, `loss`",
            of_defaults=("unbiased_std", "double_value_loss", "no_value_clip", "no_entropy"),
            lines={"no_entropy": (f"{PACKAGE}/ppo/ppo.py", "ent_coef: float = 0.0")},
        ),
        "ppo.gae": Theirs(gae, (), "buffers.py, `compute_returns_and_advantage`"),
        "ppo.optimizer": Theirs(optimizer, (),
                                "policies.py, `optimizer_kwargs`; ppo.py, `clip_grad_norm_`"),
        "dqn.loss": Theirs(dqn_loss, ("huber",), "dqn.py, `loss`"),
        "sac.critic": Theirs(sac_critic, (), "sac.py, `critic_loss`"),
        "sac.actor": Theirs(sac_actor, (), "sac.py, `actor_loss`"),
        "sac.temperature": Theirs(sac_temperature, ("log_temperature_loss",),
                                  "sac.py, `ent_coef_loss`"),
    }  # fmt: skip


PROJECT = Project(
    "Stable-Baselines3", "stable-baselines3", "https://github.com/DLR-RM/stable-baselines3",
    parts_of, in_torch=True,
)  # fmt: skip
