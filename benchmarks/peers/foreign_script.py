"""Train CleanRL or Stable-Baselines3 once per line of input; their own interpreter runs this file.

    PYTHON -m benchmarks.peers.foreign_script CLONE/cleanrl/ppo.py    # a script of CleanRL
    PYTHON -m benchmarks.peers.foreign_script                         # Stable-Baselines3

A line holds the script's options, or the setting in triglot's words, as a JSON object. The reply is
a JSON list of the policy's layers, `[kernel [in, out], bias [out]]` each. The first reply, before
any line, has the versions.
"""

import contextlib
import functools
import importlib.metadata
import os
import runpy
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from ..child import serve

Layers: TypeAlias = list[list[list[Any]]]  # kernels `[in, out]` and biases `[out]`


def cleanrl(script: Path, options: dict[str, Any]) -> Layers:
    """Run a script, and return the layers of the policy among the names that it defined."""
    sys.argv = [str(script), *(f"--{name}={value}" for name, value in options.items())]
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        os.chdir(folder)  # its logs go to ./runs
        with contextlib.redirect_stdout(nowhere):
            names = runpy.run_path(str(script), run_name="__main__")
        os.chdir(script.parent)
    if "agent" in names:
        return torch_layers(names["agent"].actor)
    found = names["q_state"].params["params"].values()
    return [[one["kernel"].tolist(), one["bias"].tolist()] for one in found]


def sb3(given: dict[str, Any]) -> Layers:
    """Train PPO, and return the layers of the policy."""
    import torch  # pyright: ignore[reportMissingImports]
    from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common import env_util  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)  # the fastest at this size
    num_envs, length = given["num_envs"], given["rollout_length"]
    model = PPO(
        "MlpPolicy",
        env_util.make_vec_env(given["env-id"], num_envs, seed=given["seed"]),
        n_steps=length,
        batch_size=num_envs * length // given["num_minibatches"],
        n_epochs=given["num_epochs"],
        learning_rate=given["learning_rate"],
        gamma=given["discount"],
        gae_lambda=given["gae_lambda"],
        clip_range=given["clip_epsilon"],
        clip_range_vf=given["clip_epsilon"] if given["clip_value"] else None,
        ent_coef=given["entropy_coef"],
        vf_coef=given["value_coef"],
        max_grad_norm=given["max_grad_norm"],
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
        seed=given["seed"],
        device="cpu",
    )
    model.learn(given["total-timesteps"])
    model.env.close()
    return torch_layers([*model.policy.mlp_extractor.policy_net, model.policy.action_net])


def torch_layers(modules: Iterable[Any]) -> Layers:
    """Read the layers among modules of PyTorch."""
    return [[m.weight.T.tolist(), m.bias.tolist()] for m in modules if hasattr(m, "weight")]


def main(script: str | None = None) -> None:
    """Answer until the input ends."""
    del sys.path[0]  # the checkout, whose folders have common names
    packages = ["torch", "gymnasium"]
    if script is None:
        train, packages = sb3, ["stable-baselines3", *packages]
    else:
        sys.path.insert(0, str(Path(script).parents[1]))  # scripts import cleanrl_utils
        train = functools.partial(cleanrl, Path(script))
    serve(train, hello=lambda: {name: importlib.metadata.version(name) for name in packages})


if __name__ == "__main__":
    main(*sys.argv[1:])
