"""ResNet, of basic and of bottleneck blocks."""

from typing import Any

import flax.linen as nn
from flax import nnx

from triglot.backends.keras.importing import import_keras
from triglot.core.specs import Box

from ..pair import Bug, Pair

keras = import_keras()
kl = keras.layers

ONE: Any = ((1, 1), (1, 1))


class KerasConvNorm(kl.Layer):
    """A padded convolution and its norm."""

    def __init__(self, width, stride, size=3):
        super().__init__()
        self.pad = kl.ZeroPadding2D(size // 2)
        self.conv = kl.Conv2D(width, size, stride, use_bias=False)
        self.norm = kl.BatchNormalization(momentum=0.9, epsilon=1e-5)

    def call(self, x, training=False):
        x = self.conv(self.pad(x))  # counterpart: same
        return self.norm(x, training=training)  # counterpart: momentum


class KerasBlock(kl.Layer):
    def __init__(self, width, stride, project):
        super().__init__()
        self.first, self.second = KerasConvNorm(width, stride), KerasConvNorm(width, 1)
        self.shortcut = KerasConvNorm(width, stride, 1) if project else None

    def call(self, x, training=False):
        y = keras.ops.relu(self.first(x, training=training))
        y = self.second(y, training=training)
        if self.shortcut is not None:
            x = self.shortcut(x, training=training)
        return keras.ops.relu(x + y)  # counterpart: relu_before_sum


class KerasResNet(keras.Model):
    """He et al. 2015, of basic blocks with a 3 x 3 stem."""

    def __init__(self, widths=(8, 16), blocks=(1, 1), classes=10, image=16):
        super().__init__()
        self.stem, self.blocks, inputs = KerasConvNorm(widths[0], 1), [], widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for index in range(count):
                stride = 2 if stage and not index else 1
                self.blocks.append(KerasBlock(width, stride, stride != 1 or inputs != width))
                inputs = width
        self.pool, self.fc = kl.GlobalAveragePooling2D(), kl.Dense(classes)

    def call(self, x, training=False):
        x = keras.ops.relu(self.stem(x, training=training))
        for block in self.blocks:
            x = block(x, training=training)
        return self.fc(self.pool(x))


def keras_resnet(**size):
    return lambda: KerasResNet(**size)


class LinenBlock(nn.Module):
    """Two convolutions, or three with a bottleneck that is 4 times as narrow."""

    width: int
    stride: int
    bottleneck: bool
    bug: str

    @nn.compact
    def __call__(self, x, train: bool):
        def norm(x, momentum=0.9):
            return nn.BatchNorm(not train, momentum=momentum, epsilon=1e-5)(x)

        inputs, strides = x.shape[-1], (self.stride, self.stride)
        outputs = 4 * self.width if self.bottleneck else self.width
        if self.bottleneck:
            y = nn.relu(norm(nn.Conv(self.width, (1, 1), use_bias=False)(x)))  # counterpart: v1
            y = nn.Conv(self.width, (3, 3), strides, ONE, use_bias=False)(y)  # counterpart: v1
            y = nn.relu(norm(y))
            y = norm(nn.Conv(outputs, (1, 1), use_bias=False)(y))  # counterpart: bn_epsilon
        else:
            padding = "SAME" if self.bug == "same" else ONE  # planted: same
            y = nn.Conv(self.width, (3, 3), strides, padding, use_bias=False)(x)  # planted: same
            y = nn.relu(norm(y, 0.99 if self.bug == "momentum" else 0.9))  # planted: momentum
            y = norm(nn.Conv(outputs, (3, 3), (1, 1), ONE, use_bias=False)(y))
        if self.stride != 1 or inputs != outputs:
            x = norm(nn.Conv(outputs, (1, 1), strides, use_bias=False, name="shortcut")(x))
        if self.bug == "relu_before_sum":
            return x + nn.relu(y)  # planted: relu_before_sum
        return nn.relu(x + y)


class LinenResNet(nn.Module):
    """He et al. 2015, with a 7 x 7 stem and pooling, or a 3 x 3 stem for small images."""

    widths: tuple[int, ...] = (8, 16)
    blocks: tuple[int, ...] = (1, 1)
    classes: int = 10
    image: int = 16
    bottleneck: bool = False
    bug: str = ""

    @nn.compact
    def __call__(self, x, train: bool):
        size, stride = (7, 2) if self.bottleneck else (3, 1)
        padding = ((size // 2, size // 2),) * 2
        x = nn.Conv(self.widths[0], (size, size), (stride, stride), padding, use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(not train, momentum=0.9, epsilon=1e-5)(x))
        if self.bottleneck:
            x = nn.max_pool(x, (3, 3), (2, 2), ONE)  # counterpart: pool
        for stage, (width, count) in enumerate(zip(self.widths, self.blocks, strict=True)):
            for index in range(count):
                stride = 2 if stage and not index else 1
                x = LinenBlock(width, stride, self.bottleneck, self.bug)(x, train)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def linen_bottleneck(image=32, **size):
    return LinenResNet(image=image, bottleneck=True, **size)


def nnx_conv(inputs, outputs, size, stride, rngs):
    padding = ((size // 2, size // 2),) * 2
    how = {"use_bias": False, "padding": padding}
    return nnx.Conv(inputs, outputs, (size, size), (stride, stride), **how, rngs=rngs)


class NNXBottleneck(nnx.Module):
    def __init__(self, inputs, width, stride, bug, rngs):
        first, second = (stride, 1) if bug == "v1" else (1, stride)  # planted: v1
        epsilon = 1e-3 if bug == "bn_epsilon" else 1e-5  # planted: bn_epsilon
        self.conv1 = nnx_conv(inputs, width, 1, first, rngs)
        self.bn1 = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.conv2 = nnx_conv(width, width, 3, second, rngs)
        self.bn2 = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.conv3 = nnx_conv(width, 4 * width, 1, 1, rngs)
        self.bn3 = nnx.BatchNorm(4 * width, momentum=0.9, epsilon=epsilon, rngs=rngs)
        self.downsample = stride != 1 or inputs != 4 * width
        if self.downsample:
            self.conv = nnx_conv(inputs, 4 * width, 1, stride, rngs)
            self.bn = nnx.BatchNorm(4 * width, momentum=0.9, rngs=rngs)

    def __call__(self, x):
        y = nnx.relu(self.bn1(self.conv1(x)))  # planted: v1
        y = nnx.relu(self.bn2(self.conv2(y)))  # planted: v1
        y = self.bn3(self.conv3(y))  # planted: bn_epsilon
        return nnx.relu((self.bn(self.conv(x)) if self.downsample else x) + y)


class NNXResNet(nnx.Module):
    def __init__(self, widths, blocks, classes, bug, rngs):
        self.stem = nnx_conv(3, widths[0], 7, 2, rngs)
        self.norm = nnx.BatchNorm(widths[0], momentum=0.9, rngs=rngs)
        self.blocks, inputs = nnx.List(), widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            for index in range(count):
                stride = 2 if stage and not index else 1
                self.blocks.append(NNXBottleneck(inputs, width, stride, bug, rngs))
                inputs = 4 * width
        self.fc = nnx.Linear(inputs, classes, rngs=rngs)
        self.padding = "SAME" if bug == "pool" else ONE  # planted: pool

    def __call__(self, x):
        x = nnx.relu(self.norm(self.stem(x)))
        x = nnx.max_pool(x, (3, 3), (2, 2), self.padding)  # planted: pool
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((1, 2)))


def nnx_bottleneck(widths=(8, 16), blocks=(1, 1), classes=10, image=32, bug=""):
    return lambda rngs: NNXResNet(widths, blocks, classes, bug, rngs)


def images(image):
    return Box((image, image, 3))


PAIRS = (
    Pair(
        name="resnet",
        source="He et al. 2015",
        libraries=("keras", "linen"),
        one=keras_resnet,
        other=LinenResNet,
        inputs=lambda image=16, **_: images(image),
        bugs=(
            Bug("same", ("padding",), "SAME where stride 2 is padded by 1"),
            Bug("momentum", ("norm_momentum",), "momentum 0.99 for 0.9"),
            Bug("relu_before_sum", ("operation_order",), "ReLU before the sum"),
        ),
        sizes={
            "resnet18": {"widths": (64, 128, 256, 512), "blocks": (2, 2, 2, 2), "image": 32},
        },
    ),
    Pair(
        name="resnet_bottleneck",
        source="He et al. 2015",
        libraries=("linen", "nnx"),
        one=linen_bottleneck,
        other=nnx_bottleneck,
        inputs=lambda image=32, **_: images(image),
        bugs=(
            Bug("v1", ("stride",), "stride in the first 1 x 1 convolution"),
            Bug("pool", ("padding",), "SAME where the max-pooling pads by 1"),
            Bug("bn_epsilon", ("norm_epsilon",), "epsilon 1e-3 in one norm"),
        ),
        sizes={
            "resnet50": {
                "widths": (64, 128, 256, 512),
                "blocks": (3, 4, 6, 3),
                "classes": 1000,
                "image": 224,
            }
        },
    ),
)
