"""A row of the comparison: a setting in triglot's words, and the peers' words for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triglot.rl import schedule

Options = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One algorithm on one environment at one setting.

    Attributes:
      algorithm: the name that all frameworks give it.
      env_id: of gymnax, and of Gymnasium.
      suites: of the environment that triglot trains in, one program each.
      total_steps: environment steps of each seed in one run.
      num_seeds: seeds in one program.
      rounds: default number of rounds, chosen so that a row takes less than 3 minutes.
      config: of `make_agent`.
      hyper: of `make_agent`.
      whole_process: whether each run is a process, from Python's start.
      peers: the frameworks that take part.
      differences: what is not equal, whatever the options.
    """

    algorithm: str
    env_id: str
    total_steps: int
    num_seeds: int = 1
    suites: tuple[str, ...] = ("gymnax",)
    rounds: int
    config: Options
    hyper: Options = field(default_factory=dict)
    whole_process: bool = False
    peers: tuple[str, ...]
    differences: tuple[str, ...] = ()

    @property
    def is_played(self) -> bool:
        """Whether gymnax has the environment, in which greedy episodes are played."""
        return set(self.suites) <= {"gymnax", "gymnasium"}

    @property
    def setting(self) -> dict[str, Any]:
        """All options, of both kinds, in numbers.

        A schedule, which peers write otherwise, is its start; that of epsilon also has
        `epsilon_end` and `epsilon_decay_steps`.
        """
        options = {**self.config, **self.hyper}
        for name, value in self.hyper.items():
            if not isinstance(value, str):
                continue
            ramp = schedule(value)
            options[name] = ramp.values[0]
            if name == "epsilon":
                options |= {"epsilon_end": ramp.values[1], "epsilon_decay_steps": ramp.counts[0]}
        return options

    def given(self, peer: str) -> dict[str, Any]:
        """Give the options that a peer has, by its names."""
        column = PEERS.index(peer)
        named = {NAMES[name][column]: v for name, v in self.setting.items() if name in NAMES}
        return {name: value for name, value in named.items() if name is not None}


PEERS = ("PureJaxRL", "rejax", "Stoix", "CleanRL")
# How they call triglot's options; None where they have no such option.
NAMES = {
    "num_envs": ("NUM_ENVS", "num_envs", "arch.total_num_envs", "num-envs"),
    "rollout_length": ("NUM_STEPS", "num_steps", "system.rollout_length", "num-steps"),
    "num_epochs": ("UPDATE_EPOCHS", "num_epochs", "system.epochs", None),
    "num_minibatches": ("NUM_MINIBATCHES", "num_minibatches", "system.num_minibatches", None),
    "num_gradient_steps": (None, "num_epochs", "system.epochs", None),
    "learning_rate": ("LR", "learning_rate", None, "learning-rate"),
    "discount": ("GAMMA", "gamma", "system.gamma", None),
    "gae_lambda": ("GAE_LAMBDA", "gae_lambda", "system.gae_lambda", None),
    "td_lambda": (None, None, "system.gae_lambda", None),
    "clip_epsilon": ("CLIP_EPS", "clip_eps", "system.clip_eps", None),
    "value_coef": ("VF_COEF", "vf_coef", "system.vf_coef", None),
    "entropy_coef": ("ENT_COEF", "ent_coef", "system.ent_coef", None),
    "max_grad_norm": ("MAX_GRAD_NORM", "max_grad_norm", "system.max_grad_norm", None),
    "batch_size": ("BUFFER_BATCH_SIZE", "batch_size", "system.total_batch_size", None),
    "buffer_size": ("BUFFER_SIZE", "buffer_size", "system.total_buffer_size", None),
    "learning_starts": ("LEARNING_STARTS", "fill_buffer", None, None),
    "epsilon": (None, None, "system.training_epsilon", None),
    "epsilon_decay_steps": ("EPSILON_ANNEAL_TIME", None, None, None),
    "exploration_noise": (None, None, "system.exploration_noise", None),
    "double": (None, "ddqn", None, None),
    "policy_delay": (None, "policy_delay", None, None),
    "q_lambda": (None, "td_lambda", None, None),
    "n_step": (None, None, "system.n_step", None),
    "num_atoms": (None, None, "system.num_atoms", None),
    "v_min": (None, None, "system.vmin", None),
    "v_max": (None, None, "system.vmax", None),
    "initial_noise": (None, None, "system.sigma_zero", None),
    "num_quantiles": (None, None, "system.num_quantiles", None),
    "num_tau": (None, "num_tau_samples", None, None),
    "num_target_tau": (None, "num_tau_prime_samples", None, None),
    "huber_threshold": (None, "kappa", "system.huber_loss_parameter", None),
    "priority_exponent": (None, None, "system.priority_exponent", None),
    "priority_eta": (None, None, "system.priority_eta", None),
    "importance_sampling_exponent": (None, None, "system.importance_sampling_exponent", None),
    "burn_in_length": (None, None, "system.burn_in_length", None),
    "cell_size": (None, None, "network.actor_network.rnn_layer.hidden_state_dim", None),
    "tau": ("TAU", None, "system.tau", None),
    "num_actions": (None, None, "system.num_samples", None),
    "dual_learning_rate": (None, None, "system.dual_lr", None),
    "temperature_bound": (None, None, "system.epsilon", None),
    "policy_bound": (None, None, "system.epsilon_policy", None),
    "mean_bound": (None, None, "system.epsilon_mean", None),
    "std_bound": (None, None, "system.epsilon_stddev", None),
    "num_simulations": (None, None, "system.num_simulations", None),
    "normalize_obs": (None, "normalize_observations", None, None),
}
