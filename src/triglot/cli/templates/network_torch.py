"""Two hidden layers with a skip connection, as a PyTorch module."""

import math

import torch

import triglot


class MyNetwork(torch.nn.Module):
    def __init__(self, num_inputs, num_actions):
        super().__init__()
        self.first = torch.nn.Linear(num_inputs, 64)
        self.second = torch.nn.Linear(64, 64)
        self.logits = torch.nn.Linear(64, num_actions)
        self.value = torch.nn.Linear(64, 1)

    def forward(self, obs):  # a batch of observations [B, ...]
        first = torch.relu(self.first(obs.flatten(1)))
        features = first + torch.relu(self.second(first))
        return {"logits": self.logits(features), "value": self.value(features).squeeze(-1)}


def my_network(obs_spec, action_spec):
    def make():
        return MyNetwork(math.prod(obs_spec.shape), action_spec.num_values)

    return triglot.from_torch(make, obs_spec, name="my_network")
