"""Small networks in torch, and how torch.onnx exports them: the second half of make_habits.py."""

import numpy
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A residual block with batch norms."""

    def __init__(self, inputs, outputs, step):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, step, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        same = step == 1 and inputs == outputs
        beside = [nn.Conv2d(inputs, outputs, 1, step, bias=False), nn.BatchNorm2d(outputs)]
        self.beside = nn.Identity() if same else nn.Sequential(*beside)

    def forward(self, x):
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.beside(x))


def residual():
    """Five residual blocks, a classifier."""
    stem = [
        nn.Conv2d(3, 32, 7, 2, 3, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    sizes = [(32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 100)]
    return nn.Sequential(*stem, *(Block(*s) for s in sizes), *head)


class Encoder(nn.Module):
    """Two layers of torch's own transformer encoder, with padding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, 192)
        layer = nn.TransformerEncoderLayer(
            192, 6, 768, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids, padding):
        return self.layers(self.embedding(ids), src_key_padding_mask=padding)


class Attention(nn.Module):
    """A causal block: packed heads, scaled_dot_product_attention, SiLU."""

    def __init__(self):
        super().__init__()
        self.norm, self.packed, self.out = (
            nn.LayerNorm(256),
            nn.Linear(256, 768),
            nn.Linear(256, 256),
        )
        self.rest = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 256))

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.packed(self.norm(x)).view(batch, length, 3, 8, 32).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.rest(x)


class Diffusing(nn.Module):
    """A block of a diffusion network: GroupNorm, SiLU, an embedding of time."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)])
        self.first, self.second = (
            nn.Conv2d(inputs, outputs, 3, 1, 1),
            nn.Conv2d(outputs, outputs, 3, 1, 1),
        )
        self.time = nn.Linear(64, outputs)
        self.beside = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, time):
        y = self.first(functional.silu(self.norms[0](x)))
        y = y + self.time(functional.silu(time))[:, :, None, None]
        return self.second(functional.silu(self.norms[1](y))) + self.beside(x)


class UNet(nn.Module):
    """Two scales, attention over the pixels of the lower one."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, 32, 3, 1, 1), nn.Conv2d(32, 4, 3, 1, 1)
        self.blocks = nn.ModuleList([Diffusing(32, 32), Diffusing(64, 64), Diffusing(64, 32)])
        self.down, self.up = nn.Conv2d(32, 64, 3, 2, 1), nn.Conv2d(64, 32, 3, 1, 1)
        self.norm, self.packed = nn.GroupNorm(8, 64), nn.Conv1d(64, 192, 1)

    def forward(self, x, time):
        first = self.blocks[0](self.enter(x), time)
        y = self.blocks[1](self.down(first), time)
        batch, width, height, length = y.shape
        packed = self.packed(self.norm(y).reshape(batch, width, height * length))
        heads = packed.reshape(batch, 4, 48, height * length).transpose(2, 3).chunk(3, dim=-1)
        seen = functional.scaled_dot_product_attention(*heads)
        y = y + seen.transpose(2, 3).reshape(batch, width, height, length)
        y = self.up(functional.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.leave(self.blocks[2](torch.cat([y, first], 1), time))


def models():
    """Name, module, feeds, the axes of each feed that vary."""
    ids, padding = torch.randint(0, 1000, (2, 64)), torch.zeros(2, 64, dtype=torch.bool)
    tokens = {0: "batch", 1: "length"}
    yield "residual", residual(), {"x": torch.randn(1, 3, 160, 160)}, [{0: "batch"}]
    yield "encoder", Encoder(), {"ids": ids, "padding": padding}, [tokens, tokens]
    yield "attention", Attention(), {"x": torch.randn(2, 96, 256)}, [tokens]
    feeds = {"x": torch.randn(1, 4, 32, 32), "time": torch.randn(1, 64)}
    yield "unet", UNet(), feeds, [{0: "batch"}, {0: "batch"}]


def export_all(folder):
    """Write every model in every way."""
    torch.manual_seed(0)
    for name, module, feeds, axes in models():
        module.eval()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2)
        given, names = tuple(feeds.values()), list(feeds)
        varying = tuple(
            {k: torch.export.Dim(v, min=1, max=512) for k, v in a.items()} for a in axes
        )
        dynamo = {"input_names": names, "dynamo": True, "external_data": False, "verbose": False}
        ways = {
            "dynamo": dynamo,
            "dynamic": {**dynamo, "dynamic_shapes": varying},
            "unfolded": {
                "input_names": names, "dynamo": False, "opset_version": 14,
                "dynamic_axes": dict(zip(names, axes, strict=True)),
                "training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False,
            },
        }  # fmt: skip
        for way, settings in ways.items():
            path = folder / f"{name}_{way}.onnx"
            torch.onnx.export(module, given, path, **settings)
            numpy.savez(f"{path}.feeds.npz", **{n: x.numpy() for n, x in feeds.items()})
