"""Two hidden layers with a skip connection, as a Keras model."""

import keras
from keras import layers

import triglot


class MyNetwork(keras.Model):
    def __init__(self, num_actions):
        super().__init__()
        self.flatten = layers.Flatten()
        self.first = layers.Dense(64, activation="relu")
        self.second = layers.Dense(64, activation="relu")
        self.logits = layers.Dense(num_actions)
        self.value = layers.Dense(1)

    def call(self, obs):  # a batch of observations [B, ...]
        first = self.first(self.flatten(obs))
        features = first + self.second(first)
        value = keras.ops.squeeze(self.value(features), axis=-1)
        return {"logits": self.logits(features), "value": value}


def my_network(obs_spec, action_spec):
    def make():  # called once; its initializers draw from the key of each training
        return MyNetwork(action_spec.num_values)

    return triglot.from_keras(make, obs_spec, name="my_network")
