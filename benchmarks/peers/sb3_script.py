"""Train PPO of Stable-Baselines3 once per line of input; an interpreter that has it runs this file.

A line holds the setting in triglot's words, as JSON. The reply is a JSON list of the policy's
layers, `[kernel [in, out], bias [out]]` each. The first reply, before any line, has the versions.
"""

import importlib.metadata
import json
import os
import sys

import torch  # pyright: ignore[reportMissingImports]
from stable_baselines3 import PPO  # pyright: ignore[reportMissingImports]
from stable_baselines3.common import env_util  # pyright: ignore[reportMissingImports]


def train(given: dict) -> list:
    """Train, and return the layers of the policy."""
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
    layers = [*model.policy.mlp_extractor.policy_net, model.policy.action_net]
    return [[m.weight.T.tolist(), m.bias.tolist()] for m in layers if hasattr(m, "weight")]


def main() -> None:
    """Answer until the input ends."""
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)  # the fastest at this size
    packages = ("stable-baselines3", "torch", "gymnasium")
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps(versions), file=reply, flush=True)
    for line in sys.stdin:
        print(json.dumps(train(json.loads(line))), file=reply, flush=True)


if __name__ == "__main__":
    main()
