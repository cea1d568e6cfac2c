"""A reader's networks in Flax Linen: one for images, and one with the heads of PPO."""

import flax.linen as nn
import jax


class Images(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(8, (8, 8), strides=4, padding="VALID")(obs))
        return nn.Dense(6)(x.reshape(len(x), -1))


class ActorCritic(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> dict[str, jax.Array]:
        sides = {}
        for side, size in (("logits", 2), ("value", 1)):
            x = nn.tanh(nn.Dense(64, name=f"{side}_0")(obs))
            x = nn.tanh(nn.Dense(64, name=f"{side}_1")(x))
            sides[side] = nn.Dense(size, name=side)(x)
        return {"logits": sides["logits"], "value": sides["value"][:, 0]}


cnn, actor_critic = Images(), ActorCritic()
