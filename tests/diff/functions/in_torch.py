"""Losses in PyTorch, one of them with a module."""

import torch
from torch import nn


def ppo(logits, value, action, log_prob, old_value, advantage, target, correction=0):
    policy = torch.distributions.Categorical(logits=logits)
    new, entropy = policy.log_prob(action), policy.entropy()
    return surrogate(new, entropy, value, log_prob, old_value, advantage, target, correction)


def continuous(batch):
    policy = torch.distributions.Normal(batch.mean, batch.log_std.exp())
    new, entropy = policy.log_prob(batch.action).sum(1), policy.entropy().sum(1)
    old = batch.old_log_prob, batch.old_value
    return surrogate(new, entropy, batch.value, *old, batch.advantage, batch.target)


def surrogate(new, entropy, value, log_prob, old_value, advantage, target, correction=0):
    ratio = (new - log_prob).exp()
    deviation = advantage.std(correction=correction) + 1e-8
    advantage = (advantage - advantage.mean()) / deviation
    policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
    clipped = old_value + torch.clamp(value - old_value, -0.2, 0.2)
    errors = torch.max((value - target) ** 2, (clipped - target) ** 2)
    return policy_loss - 0.01 * entropy.mean() + 0.25 * errors.mean()


def shipped(logits, value, action, old_log_prob, old_value, advantage, target):
    loss = ppo(logits, value, action, old_log_prob, old_value, advantage, target)
    return loss, {"value": value.mean()}


def unbiased(logits, value, action, old_log_prob, old_value, advantage, target):
    return ppo(logits, value, action, old_log_prob, old_value, advantage, target, 1)


def dqn(model, obs, action, target):
    q = model(obs).gather(1, action[:, None].long())[:, 0]
    return ((q - target) ** 2).mean()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, obs):
        return self.out(obs)


def shipped_alone(batch):
    old = batch.old_log_prob, batch.old_value
    return ppo(batch.logits, batch.value, batch.action, *old, batch.advantage, batch.target)
