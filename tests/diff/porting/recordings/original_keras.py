"""A Keras model that is recorded where triglot is not installed."""

import keras
import numpy as np
from keras import layers


def net() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.1),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(16, activation="gelu"),
            layers.LayerNormalization(),
            layers.Dense(4),
        ]
    )
    random = np.random.default_rng(0)
    arrays = []
    for variable, array in zip(model.weights, model.get_weights(), strict=True):
        noise = random.normal(0, 0.2, array.shape)
        arrays.append(array + (np.abs(noise) if "variance" in variable.path else noise))
    model.set_weights(arrays)
    return model
