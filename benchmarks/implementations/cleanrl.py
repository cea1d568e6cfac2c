"""CleanRL's PPO, DQN and SAC: statements of its scripts' main programs, in PyTorch."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from . import parts, tensors
from .parts import Project, Theirs
from .sources import Checkout

BATCH = ("b_obs", "b_actions", "b_logprobs", "b_values", "b_advantages", "b_returns")
ROLLOUT = ("rewards", "values", "dones", "next_done", "next_obs", "agent")


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build CleanRL's parts."""
    ppo, dqn = checkout.file("cleanrl/ppo.py"), checkout.file("cleanrl/dqn.py")
    sac = checkout.file("cleanrl/sac_continuous_action.py")

    def settings(defaults: bool) -> Any:
        matched = {
            "clip_coef": 0.2,
            "ent_coef": 0.01,
            "vf_coef": 0.5,
            "norm_adv": True,
            "clip_vloss": True,
            "gamma": parts.GAMMA,
            "gae_lambda": parts.LAMBDA,
            "learning_rate": parts.RATE,
            "max_grad_norm": parts.MAX_NORM,
        }
        if defaults:
            matched = {name: ppo.default(name, scope="Args") for name in matched}
        return SimpleNamespace(**matched)

    def loss(defaults: bool) -> Any:
        theirs = ppo.statements(
            ("loss",), ("agent", *BATCH), mb_inds=slice(None), args=settings(defaults),
        )  # fmt: skip

        def cleanrl_loss(logits, value, action, old_log_prob, old_value, advantage, target):
            agent = tensors.Outputs(logits, value)
            return theirs(agent, logits, action, old_log_prob, old_value, advantage, target)

        return cleanrl_loss

    def gae(defaults: bool) -> Any:
        args = settings(defaults)
        theirs = ppo.statements(("advantages", "returns"), ROLLOUT, args=args, device="cpu")

        def cleanrl_gae(reward, value, last_value, final_value, terminated, truncated):
            args.num_steps = reward.shape[0]
            done = torch.maximum(terminated, truncated)
            starts = torch.cat([torch.zeros_like(done[:1]), done[:-1]])
            agent = SimpleNamespace(get_value=lambda obs: tensors.AsArray(last_value))
            advantage, target = theirs(reward, value, starts, done[-1], None, agent)
            return {"advantage": advantage, "target": target}

        return cleanrl_gae

    def optimizer(defaults: bool) -> Any:
        build = ppo.statements(("optimizer",), ("agent",), optim=tensors.OPTIM,
                               args=settings(defaults))  # fmt: skip
        step_of = ppo.calls(
            ("nn.utils.clip_grad_norm_", "optimizer.step"), ("agent", "optimizer"),
            args=settings(defaults),
        )  # fmt: skip
        return torch_step(build, step_of)

    def schedule(defaults: bool) -> Any:
        args = settings(defaults)
        args.num_iterations = parts.UPDATES
        theirs = ppo.statements(("lrnow",), ("iteration",), args=args)

        def cleanrl_rate(step):
            return theirs(torch.div(step, parts.STEPS_PER_UPDATE, rounding_mode="floor") + 1)

        return cleanrl_rate

    def dqn_loss(defaults: bool) -> Any:
        args = SimpleNamespace(gamma=dqn.default("gamma", scope="Args"))
        theirs = dqn.statements(("loss",), ("data", "q_network", "target_network"), args=args)

        def cleanrl_dqn_loss(q, next_q, next_target_q, action, reward, terminated, truncated):
            data = SimpleNamespace(
                observations=q,
                next_observations=next_target_q,
                actions=action[:, None].long(),
                rewards=reward[:, None],
                dones=terminated[:, None],
            )
            return theirs(data, lambda obs: obs, lambda obs: obs)

        return cleanrl_dqn_loss

    def sac_critic(defaults: bool) -> Any:
        args = SimpleNamespace(gamma=parts.GAMMA)
        theirs = sac.statements(
            ("qf_loss",), ("data", "actor", "qf1", "qf2", "qf1_target", "qf2_target", "alpha"),
            args=args,
        )  # fmt: skip

        def cleanrl_critic_loss(
            q, next_target_q, next_log_prob, log_temperature, reward, terminated, truncated
        ):
            data = SimpleNamespace(
                observations=None,
                next_observations=None,
                actions=None,
                rewards=reward[:, None],
                dones=terminated[:, None],
            )
            critics = [lambda obs, action, i=i: q[i][:, None] for i in range(2)]
            targets = [lambda obs, action, i=i: next_target_q[i][:, None] for i in range(2)]
            actor = SimpleNamespace(get_action=lambda obs: (None, next_log_prob[:, None], None))
            return theirs(data, actor, *critics, *targets, log_temperature.exp())

        return cleanrl_critic_loss

    def sac_actor(defaults: bool) -> Any:
        theirs = sac.statements(("actor_loss",), ("data", "actor", "qf1", "qf2", "alpha"))

        def cleanrl_actor_loss(log_prob, q, log_temperature):
            critics = [lambda obs, action, i=i: q[i][:, None] for i in range(2)]
            actor = SimpleNamespace(get_action=lambda obs: (None, log_prob[:, None], None))
            data = SimpleNamespace(observations=None)
            return theirs(data, actor, *critics, log_temperature.exp())

        return cleanrl_actor_loss

    def sac_temperature(defaults: bool) -> Any:
        theirs = sac.statements(("alpha_loss",), ("data", "actor", "log_alpha", "target_entropy"))

        def cleanrl_temperature_loss(log_temperature, log_prob):
            actor = SimpleNamespace(get_action=lambda obs: (None, log_prob[:, None], None))
            data = SimpleNamespace(observations=None)
            return theirs(data, actor, log_temperature, -1.0)

        return cleanrl_temperature_loss

    return {
        "ppo.loss": Theirs(loss, ("unbiased_std",), "ppo.py, `loss`"),
        "ppo.gae": Theirs(gae, ("cut_at_truncation",), "ppo.py, `advantages`, `returns`",
            lines={"cut_at_truncation": ("cleanrl/ppo.py", "np.logical_or(terminations")}),
        "ppo.optimizer": Theirs(optimizer, (),
                                "ppo.py, `optimizer`, `clip_grad_norm_`, `optimizer.step`"),
        "ppo.schedule": Theirs(schedule, (), "ppo.py, `lrnow`"),
        "dqn.loss": Theirs(dqn_loss, ("double_loss",), "dqn.py, `loss`"),
        "sac.critic": Theirs(sac_critic, ("double_loss",), "sac_continuous_action.py, `qf_loss`",
            lines={"double_loss": ("cleanrl/sac_continuous_action.py", "qf_loss = qf1_loss")}),
        "sac.actor": Theirs(sac_actor, (), "sac_continuous_action.py, `actor_loss`"),
        "sac.temperature": Theirs(sac_temperature, (), "sac_continuous_action.py, `alpha_loss`"),
    }  # fmt: skip


def torch_step(build: Any, step_of: Any) -> Any:
    """Build the function of `ppo.optimizer` from PyTorch code.

    Args:
      build: takes an object with `parameters`, and returns an optimizer.
      step_of: takes both, clips the gradients and takes the step.
    """

    def optimizer_step(
        actor, critic, grad_actor, grad_critic, mean_actor, mean_critic, square_actor,
        square_critic, step,
    ):  # fmt: skip
        model = tensors.parameters_of(actor, critic, gradients=(grad_actor, grad_critic))
        optimizer = build(model)
        means, squares = (mean_actor, mean_critic), (square_actor, square_critic)
        optimizer.begin([m.clone() for m in means], [s.clone() for s in squares], step)
        with torch.no_grad():
            step_of(model, optimizer)
        first, second = model.parameters()
        return {"actor": first, "critic": second}

    return optimizer_step


PROJECT = Project(
    "CleanRL", "cleanrl", "https://github.com/vwxyzjn/cleanrl", parts_of, in_torch=True
)
