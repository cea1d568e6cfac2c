"""CleanRL's PPO of both kinds of actions, DQN and SAC: statements of its scripts, in PyTorch."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import torch

from triglot.diff.functions.lifting import Batch

from . import parts, tensors
from .parts import Function, Project, Theirs
from .sources import Checkout, SourceFile

BATCH = ("b_obs", "b_actions", "b_logprobs", "b_values", "b_advantages", "b_returns")
ROLLOUT = ("rewards", "values", "dones", "next_done", "next_obs", "agent")


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build CleanRL's parts."""
    ppo, continuous, dqn = (
        checkout.file(f"cleanrl/{name}.py") for name in ("ppo", "ppo_continuous_action", "dqn")
    )
    sac = checkout.file("cleanrl/sac_continuous_action.py")
    args = SimpleNamespace(
        clip_coef=0.2,
        ent_coef=0.01,
        vf_coef=0.5,
        norm_adv=True,
        clip_vloss=True,
        gamma=parts.GAMMA,
        gae_lambda=parts.LAMBDA,
        learning_rate=parts.RATE,
        max_grad_norm=parts.MAX_NORM,
        num_iterations=parts.UPDATES,
    )

    def loss_in(file: SourceFile, agent_of: Callable[[Batch], object]) -> Function:
        arguments = ("agent", *BATCH)
        loss = file.statements(("loss",), arguments, mb_inds=slice(None), args=args)

        def cleanrl_loss(batch: Batch) -> torch.Tensor:
            agent, obs = agent_of(batch), batch.value  # the agent reads no observations
            old = batch.old_log_prob, batch.old_value
            return loss(agent, obs, batch.action, *old, batch.advantage, batch.target)

        return cleanrl_loss

    outputs_of = continuous.function("Agent.get_action_and_value")

    def gaussian_agent(batch: Batch) -> SimpleNamespace:
        networks = SimpleNamespace(
            actor_mean=lambda obs: batch.mean,
            actor_logstd=batch.log_std,
            critic=lambda obs: batch.value[:, None],
        )
        return SimpleNamespace(
            get_action_and_value=lambda obs, action: outputs_of(networks, obs, action)
        )

    gae = ppo.statements(("advantages", "returns"), ROLLOUT, args=args, device="cpu")

    def cleanrl_gae(batch: Batch) -> dict[str, torch.Tensor]:
        args.num_steps = batch.reward.shape[0]
        done = torch.maximum(batch.terminated, batch.truncated)
        starts = torch.cat([torch.zeros_like(done[:1]), done[:-1]])
        agent = SimpleNamespace(get_value=lambda obs: tensors.AsArray(batch.last_value))
        advantage, target = gae(batch.reward, batch.value, starts, done[-1], None, agent)
        return {"advantage": advantage, "target": target}

    optimizer_of = ppo.statements(("optimizer",), ("agent",), optim=tensors.OPTIM, args=args)
    step_of = ppo.calls(
        ("nn.utils.clip_grad_norm_", "optimizer.step"), ("agent", "optimizer"), args=args
    )
    rate = ppo.statements(("lrnow",), ("iteration",), args=args)

    def cleanrl_rate(step):
        return rate(torch.div(step, parts.STEPS_PER_UPDATE, rounding_mode="floor") + 1)

    q_loss = dqn.statements(("loss",), ("data", "q_network", "target_network"), args=args)

    def cleanrl_dqn_loss(batch: Batch) -> torch.Tensor:
        data = SimpleNamespace(
            observations=batch.q,
            next_observations=batch.next_target_q,
            actions=batch.action[:, None].long(),
            rewards=batch.reward[:, None],
            dones=batch.terminated[:, None],
        )
        return q_loss(data, lambda obs: obs, lambda obs: obs)

    def critics(values: torch.Tensor) -> list[Function]:
        return [lambda obs, action, i=i: values[i][:, None] for i in range(2)]

    def drawing(log_prob: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(get_action=lambda obs: (None, log_prob[:, None], None))

    critic_loss = sac.statements(
        ("qf_loss",),
        ("data", "actor", "qf1", "qf2", "qf1_target", "qf2_target", "alpha"),
        args=args,
    )
    actor_loss = sac.statements(("actor_loss",), ("data", "actor", "qf1", "qf2", "alpha"))
    temperature_loss = sac.statements(
        ("alpha_loss",), ("data", "actor", "log_alpha", "target_entropy")
    )

    def cleanrl_critic_loss(batch: Batch) -> torch.Tensor:
        data = SimpleNamespace(
            observations=None,
            next_observations=None,
            actions=None,
            rewards=batch.reward[:, None],
            dones=batch.terminated[:, None],
        )
        networks = (*critics(batch.q), *critics(batch.next_target_q))
        actor = drawing(batch.next_log_prob)
        return critic_loss(data, actor, *networks, batch.log_temperature.exp())

    def cleanrl_actor_loss(batch: Batch) -> torch.Tensor:
        data, actor = SimpleNamespace(observations=None), drawing(batch.log_prob)
        return actor_loss(data, actor, *critics(batch.q), batch.log_temperature.exp())

    def cleanrl_temperature_loss(batch: Batch) -> torch.Tensor:
        data, actor = SimpleNamespace(observations=None), drawing(batch.log_prob)
        return temperature_loss(data, actor, batch.log_temperature, -1.0)

    return {
        "ppo.loss": Theirs(loss_in(ppo, tensors.Outputs.of), ("unbiased_std",)),
        "ppo.continuous": Theirs(loss_in(continuous, gaussian_agent), ("unbiased_std",)),
        "ppo.gae": Theirs(
            cleanrl_gae,
            ("cut_at_truncation",),
            lines={"cut_at_truncation": ("cleanrl/ppo.py", "np.logical_or(terminations")},
        ),
        "ppo.optimizer": Theirs(torch_step(optimizer_of, step_of)),
        "ppo.schedule": Theirs(cleanrl_rate),
        "dqn.loss": Theirs(cleanrl_dqn_loss, ("double_loss",)),
        "sac.critic": Theirs(
            cleanrl_critic_loss,
            ("double_loss",),
            lines={"double_loss": ("cleanrl/sac_continuous_action.py", "qf_loss = qf1_loss")},
        ),
        "sac.actor": Theirs(cleanrl_actor_loss),
        "sac.temperature": Theirs(cleanrl_temperature_loss),
    }


def torch_step(build: Function, step_of: Function) -> Function:
    """Build the function of `ppo.optimizer` from PyTorch code.

    Args:
      build: takes an object with `parameters`, and returns an optimizer.
      step_of: takes both, clips the gradients and takes the step.
    """

    def optimizer_step(batch: Batch, step: int) -> dict[str, torch.Tensor]:
        actor, critic, *of_gradients = (
            batch[column + name]
            for column in ("", "grad_", "mean_", "square_")
            for name in ("actor", "critic")
        )
        gradients, moments = of_gradients[:2], [each.clone() for each in of_gradients[2:]]
        model = tensors.parameters_of(actor, critic, gradients=gradients)
        optimizer = build(model)
        optimizer.begin(moments[:2], moments[2:], step)
        with torch.no_grad():
            step_of(model, optimizer)
        first, second = model.parameters()
        return {"actor": first, "critic": second}

    return optimizer_step


PROJECT = Project(
    "CleanRL", "cleanrl", "https://github.com/vwxyzjn/cleanrl", parts_of, in_torch=True
)
