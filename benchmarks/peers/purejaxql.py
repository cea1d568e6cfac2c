"""purejaxql (https://github.com/mttga/purejaxql): PQN by its authors, one file per suite.

It is imported from a folder that the user names.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from gymnax.wrappers.compat import LegacyStepAPIWrapper

from .contender import (
    Contender,
    Replacements,
    clone,
    compile_one_program,
    import_files,
    revision_of,
)
from .row import Row

UNUSED: Replacements = {
    "wandb": (),
    "hydra": {"main": lambda **how: lambda function: function},
    "omegaconf": ("OmegaConf",),
}
PATCHES = (
    "wandb, hydra and omegaconf replaced by empty modules: for its command line and logs alone",
    "its LogWrapper wrapped in gymnax's LegacyStepAPIWrapper: it unpacks five values from step, "
    "and gymnax 1.x returns six",
)


def contender(row: Row, total_steps: int, folder: Path | None) -> Contender:
    """Build purejaxql's program.

    Args:
      row: of PQN, on gymnax.
      total_steps: environment steps of each seed.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder does not hold its file.
    """
    has_images = row.env_id.endswith("-MinAtar")
    file = "pqn_minatar" if has_images else "pqn_gymnax"
    folder = clone(folder, "purejaxql", f"purejaxql/{file}.py")
    (module,) = import_files(folder / "purejaxql", UNUSED, file)
    log = module.LogWrapper
    module.LogWrapper = lambda env: LegacyStepAPIWrapper(log(env))
    given, sizes = row.setting, row.setting["hidden_sizes"]
    config = {
        "ENV_NAME": row.env_id,
        "TOTAL_TIMESTEPS": total_steps,
        "TOTAL_TIMESTEPS_DECAY": total_steps,
        "NUM_ENVS": given["num_envs"],
        "NUM_STEPS": given["rollout_length"],
        "NUM_EPOCHS": given["num_epochs"],
        "NUM_MINIBATCHES": given["num_minibatches"],
        "NORM_TYPE": "layer_norm",
        "LR": given["learning_rate"],
        "LR_LINEAR_DECAY": True,
        "MAX_GRAD_NORM": given["max_grad_norm"],
        "GAMMA": given["discount"],
        "LAMBDA": given["q_lambda"],
        "EPS_START": given["epsilon"],
        "EPS_FINISH": given["epsilon_end"],
        "EPS_DECAY": given["epsilon_decay_steps"] / total_steps,
        "WANDB_MODE": "disabled",
    }
    num_actions = module.gymnax.make(row.env_id)[0].num_actions
    if has_images:  # its network is fixed: 16 channels of 3 x 3, and 128 units
        network = module.QNetwork(num_actions)
    else:
        config |= {"HIDDEN_SIZE": sizes[0], "NUM_LAYERS": len(sizes)}
        network = module.QNetwork(num_actions, hidden_size=sizes[0], num_layers=len(sizes))
    train = module.make_train(config)

    def greedy(state: Any, obs: jax.Array) -> jax.Array:
        variables = {"params": state.params, "batch_stats": state.batch_stats}
        return jnp.argmax(network.apply(variables, obs, train=False), axis=-1)

    return Contender(
        compile=compile_one_program(train, lambda out: out["runner_state"][0]),
        act=greedy,
        version=revision_of(folder),
        patches=PATCHES,
    )
