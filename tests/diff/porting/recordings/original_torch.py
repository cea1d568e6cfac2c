"""PyTorch models that are recorded where triglot is not installed."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def generic(model: nn.Module) -> nn.Module:
    """Give biases, scales and running statistics other numbers than 0 and 1."""
    for name, array in [*model.named_parameters(), *model.named_buffers()]:
        if array.dtype.is_floating_point and array.ndim == 1:
            if "var" in name:
                array.data.uniform_(0.5, 2)
            else:
                array.data.add_(torch.randn_like(array) * 0.3)
    return model


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(size, size, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(size)
        self.conv2 = nn.Conv2d(size, size, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(size)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.act(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.act(x + y)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = F.gelu(self.norm(self.stem(x)))
        return self.head(self.blocks(x).mean((2, 3)))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, stride=2),
            nn.SiLU(),
            nn.AvgPool2d(3, 1, 1),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(8 * 4 * 3, 10), nn.ReLU(), nn.Dropout(), nn.Linear(10, 4)
        )

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x))


class Attention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: Any) -> Any:
        batch, time, size = x.shape
        q, k, v = (
            each.view(batch, time, self.heads, -1).transpose(1, 2)
            for each in self.c_attn(x).split(size, dim=2)
        )
        logits = q @ k.transpose(-2, -1) / math.sqrt(size // self.heads)
        later = torch.triu(torch.ones(time, time, dtype=torch.bool), 1)
        weights = F.softmax(logits.masked_fill(later, float("-inf")), -1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(batch, time, size))


class Layer(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attn, self.drop = Attention(size, heads), nn.Dropout(0.1)
        self.c_fc, self.c_proj = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.act = nn.GELU(approximate="tanh")

    def forward(self, x: Any) -> Any:
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.c_proj(self.act(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(31, 16), nn.Embedding(9, 16)
        self.h = nn.ModuleList([Layer(16, 2) for _ in range(2)])
        self.ln_f, self.head = nn.LayerNorm(16), nn.Linear(16, 31, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.h:
            x = layer(x)
        return self.head(self.ln_f(x))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.out = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(F.gelu(self.norm(self.first(x))))


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return generic(kind())


def resnet() -> nn.Module:
    return made(ResNet)


def plain() -> nn.Module:
    return made(Plain)


def gpt() -> nn.Module:
    return made(GPT)


def normed() -> nn.Module:
    return made(Normed)


def broken() -> nn.Module:
    model = made(Plain)
    model.get_parameter("features.0.bias").data[0] = float("nan")
    return model
