"""A ResNet, a vision transformer and a GPT-2, small, in PyTorch, with names as usual there."""

import torch
from torch import nn

from triglot.backends.torch.lifting import from_torch
from triglot.core.network import Network
from triglot.core.specs import Box

WIDTHS = (8, 16)


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inputs != width:
            shortcut = nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.bn1(self.conv1(images)).relu()
        features = self.bn2(self.conv2(features))
        if self.downsample is not None:
            images = self.downsample(images)
        return (features + images).relu()


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 8, 1))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16, 1))
        self.fc = nn.Linear(WIDTHS[1], 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.layer2(self.layer1(self.bn1(self.conv1(images)).relu()))
        return self.fc(features.mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, width: int, epsilon: float, causal: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=epsilon)
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=epsilon)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.causal = causal

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = None
        if self.causal:
            size = tokens.shape[1]
            mask = torch.triu(torch.ones(size, size), 1) > 0.5
        features = self.ln_1(tokens)
        attended = self.attn(features, features, features, attn_mask=mask, need_weights=False)[0]
        tokens = tokens + attended
        return tokens + self.mlp(self.ln_2(tokens))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 8, 8)
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, 16))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 17, 16))
        self.blocks = nn.Sequential(Encoder(16, 1e-6, False), Encoder(16, 1e-6, False))
        self.norm = nn.LayerNorm(16, eps=1e-6)
        self.head = nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.embed(images).flatten(2).transpose(1, 2)
        token = self.class_token.expand(len(patches), -1, -1)
        tokens = torch.cat([token, patches], 1) + self.positions
        return self.head(self.norm(self.blocks(tokens))[:, 0])


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(40, 16), nn.Embedding(12, 16)
        self.h = nn.Sequential(Encoder(16, 1e-5, True), Encoder(16, 1e-5, True))
        self.ln_f = nn.LayerNorm(16, eps=1e-5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        tokens = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        return self.ln_f(self.h(tokens)) @ self.wte.weight.T


def resnet(obs_spec: Box) -> Network:
    return from_torch(ResNet, obs_spec, channels_first=True)


def vit(obs_spec: Box) -> Network:
    return from_torch(ViT, obs_spec, channels_first=True)


gpt = GPT
