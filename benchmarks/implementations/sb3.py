"""Stable-Baselines3's PPO of both kinds of actions, DQN and SAC: statements of `train`, in PyTorch.

And methods of its buffer, its distributions and the base of its algorithms.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from gymnasium import spaces

from triglot.diff.functions.lifting import Batch

from . import parts, tensors
from .cleanrl import torch_step
from .parts import Function, Project, Theirs
from .sources import Checkout

PACKAGE = "stable_baselines3"


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build Stable-Baselines3's parts."""
    ppo, dqn, sac = (checkout.file(f"{PACKAGE}/{n}/{n}.py") for n in ("ppo", "dqn", "sac"))
    buffers, policies, distributions, utils, base = (
        checkout.file(f"{PACKAGE}/common/{name}.py")
        for name in ("buffers", "policies", "distributions", "utils", "base_class")
    )
    equal = {
        "clip_range": 0.2,
        "clip_range_vf": 0.2,
        "ent_coef": 0.01,
        "vf_coef": 0.5,
        "normalize_advantage": True,
        "max_grad_norm": parts.MAX_NORM,
    }

    def loss_of(
        agent_of: Callable[[Batch], object], actions: spaces.Space, values: Mapping[str, Any]
    ) -> Function:
        loss = ppo.statements(
            ("loss",),
            ("self", "rollout_data"),
            scope="PPO.train",
            clip_range=values["clip_range"],
            clip_range_vf=values["clip_range_vf"],
        )

        def sb3_loss(batch: Batch) -> torch.Tensor:
            algorithm = SimpleNamespace(**values, policy=agent_of(batch), action_space=actions)
            samples = SimpleNamespace(
                observations=None,
                actions=batch.action,
                old_log_prob=batch.old_log_prob,
                old_values=batch.old_value,
                advantages=batch.advantage,
                returns=batch.target,
            )
            return loss(algorithm, samples)

        return sb3_loss

    sums = distributions.function("sum_independent_dims")
    build, log_prob, entropy = (
        distributions.function(f"DiagGaussianDistribution.{name}", sum_independent_dims=sums)
        for name in ("proba_distribution", "log_prob", "entropy")
    )

    def gaussian_agent(batch: Batch) -> tensors.Outputs:
        gaussian = build(SimpleNamespace(), batch.mean, batch.log_std)
        policy = SimpleNamespace(
            log_prob=lambda action: log_prob(gaussian, action), entropy=lambda: entropy(gaussian)
        )
        return tensors.Outputs(policy, batch.value)

    gae = buffers.function("RolloutBuffer.compute_returns_and_advantage")

    def sb3_gae(batch: Batch) -> dict[str, torch.Tensor]:
        cut = batch.truncated * (1 - batch.terminated)
        done = torch.maximum(batch.terminated, batch.truncated)
        buffer = SimpleNamespace(
            buffer_size=batch.reward.shape[0],
            # As `OnPolicyAlgorithm.collect_rollouts` stores the rewards of time limits.
            rewards=batch.reward + parts.GAMMA * cut * batch.final_value,
            values=batch.value,
            episode_starts=torch.cat([torch.zeros_like(done[:1]), done[:-1]]),
            advantages=torch.zeros_like(batch.reward),
            gamma=parts.GAMMA,
            gae_lambda=parts.LAMBDA,
        )
        gae(buffer, tensors.AsArray(batch.last_value), tensors.AsArray(done[-1]))
        return {"advantage": buffer.advantages, "target": buffer.returns}

    progress = base.function(
        "BaseAlgorithm._update_current_progress_remaining", float=lambda number: number
    )

    def sb3_rate(step: torch.Tensor) -> torch.Tensor:
        """Return the linear rate of the guide of theirs."""
        # `OnPolicyAlgorithm.learn` collects a rollout, counts its steps, and then trains.
        collected = torch.div(step, parts.STEPS_PER_UPDATE, rounding_mode="floor") + 1
        algorithm = SimpleNamespace()
        progress(algorithm, collected, parts.UPDATES)
        return algorithm._current_progress_remaining * parts.RATE

    rate_of = utils.function("ConstantSchedule.__call__")
    default_rate = SimpleNamespace(val=ppo.default("learning_rate", scope="PPO.__init__"))

    def sb3_constant_rate(step: torch.Tensor) -> torch.Tensor:
        return torch.tensor(rate_of(default_rate, 1.0))

    options_of = policies.statements(
        ("optimizer_kwargs",), ("optimizer_class",), scope="ActorCriticPolicy.__init__"
    )
    step_of = ppo.calls(
        ("th.nn.utils.clip_grad_norm_", "self.policy.optimizer.step"),
        ("self",),
        scope="PPO.train",
    )

    def optimizer(model):
        options = options_of(torch.optim.Adam)
        return tensors.Adam(model.parameters(), lr=parts.RATE, **options)

    def step(model, optimizer):
        policy = SimpleNamespace(parameters=model.parameters, optimizer=optimizer)
        step_of(SimpleNamespace(policy=policy, max_grad_norm=parts.MAX_NORM))

    q_loss = dqn.statements(("loss",), ("self", "replay_data", "discounts"), scope="DQN.train")

    def sb3_dqn_loss(batch: Batch) -> torch.Tensor:
        algorithm = SimpleNamespace(q_net=lambda obs: obs, q_net_target=lambda obs: obs)
        samples = SimpleNamespace(
            observations=batch.q,
            next_observations=batch.next_target_q,
            actions=batch.action[:, None],
            rewards=batch.reward[:, None],
            dones=batch.terminated[:, None],
        )
        return q_loss(algorithm, samples, parts.GAMMA)

    def critic_of(values: torch.Tensor) -> Callable[..., tuple[torch.Tensor, ...]]:
        return lambda obs, action: tuple(each[:, None] for each in values)

    def drawing(log_prob: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(action_log_prob=lambda obs: (None, log_prob))

    critic_loss = sac.statements(
        ("critic_loss",), ("self", "replay_data", "discounts", "ent_coef"), scope="SAC.train"
    )

    def sb3_critic_loss(batch: Batch) -> torch.Tensor:
        algorithm = SimpleNamespace(
            actor=drawing(batch.next_log_prob),
            critic=critic_of(batch.q),
            critic_target=critic_of(batch.next_target_q),
        )
        samples = SimpleNamespace(
            observations=None,
            next_observations=None,
            actions=None,
            rewards=batch.reward[:, None],
            dones=batch.terminated[:, None],
        )
        return critic_loss(algorithm, samples, parts.GAMMA, batch.log_temperature.exp())

    def soft(batch: Batch, **more: object) -> SimpleNamespace:
        return SimpleNamespace(
            use_sde=False,
            actor=drawing(batch.log_prob),
            ent_coef_optimizer=True,
            target_entropy=-1.0,
            **more,
        )

    actor_loss = sac.statements(
        ("actor_loss",), ("self", "replay_data", "ent_coef"), scope="SAC.train"
    )
    temperature_loss = sac.statements(
        ("ent_coef_loss",), ("self", "replay_data"), scope="SAC.train"
    )
    no_observations = SimpleNamespace(observations=None)

    def sb3_actor_loss(batch: Batch) -> torch.Tensor:
        algorithm = soft(batch, critic=critic_of(batch.q))
        return actor_loss(algorithm, no_observations, batch.log_temperature.exp())

    def sb3_temperature_loss(batch: Batch) -> torch.Tensor:
        algorithm = soft(batch, log_ent_coef=batch.log_temperature)
        return temperature_loss(algorithm, no_observations)

    discrete, box = spaces.Discrete(3), spaces.Box(-1, 1, (2,))
    defaults = {name: ppo.default(name, scope="PPO.__init__") for name in equal}
    of_ppo = ("unbiased_std", "double_value_loss", "clipped_value_alone")
    at_rollout = (
        f"{PACKAGE}/common/on_policy_algorithm.py", "self._update_current_progress_remaining(",
    )  # fmt: skip
    rate = (f"{PACKAGE}/ppo/ppo.py", "learning_rate: float")
    return {
        "ppo.loss": Theirs(
            loss_of(tensors.Outputs.of, discrete, equal),
            of_ppo,
            defaults=Theirs(
                loss_of(tensors.Outputs.of, discrete, defaults),
                ("unbiased_std", "double_value_loss", "no_value_clip", "no_entropy"),
                lines={"no_entropy": (f"{PACKAGE}/ppo/ppo.py", "ent_coef: float = 0.0")},
            ),
        ),
        "ppo.continuous": Theirs(loss_of(gaussian_agent, box, equal), of_ppo),
        "ppo.schedule": Theirs(
            sb3_rate,
            ("rate_after_rollout",),
            lines={"rate_after_rollout": at_rollout},
            defaults=Theirs(
                sb3_constant_rate,
                ("constant_rate", "larger_rate"),
                lines={"constant_rate": rate, "larger_rate": rate},
            ),
        ),
        "ppo.gae": Theirs(sb3_gae),
        "ppo.optimizer": Theirs(torch_step(optimizer, step)),
        "dqn.loss": Theirs(sb3_dqn_loss, ("huber",)),
        "sac.critic": Theirs(sb3_critic_loss),
        "sac.actor": Theirs(sb3_actor_loss),
        "sac.temperature": Theirs(sb3_temperature_loss, ("log_temperature_loss",)),
    }


PROJECT = Project(
    "Stable-Baselines3", "stable-baselines3", "https://github.com/DLR-RM/stable-baselines3",
    parts_of, in_torch=True,
)  # fmt: skip
