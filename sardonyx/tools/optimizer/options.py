"""Which fusions to look for: the options of onnxruntime.transformers.optimizer, by its names."""

from __future__ import annotations

import argparse
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import message

#: Taken and not needed: structure alone says what can be fused.
MODEL_TYPES = (
    "bart bert bert_tf bert_keras clip conformer gpt2 gpt2_tf gpt_neox mmdit phi qwen3 sam2 swin t5"
    " tnlr unet vae vit".split()
)
#: Flags of the original that mean something here, without dashes -> help.
SWITCHES = {
    "disable_attention": "leave attention as it is",
    "disable_skip_layer_norm": "leave what is added before a normalisation as it is",
    "disable_embed_layer_norm": "leave embeddings as they are",
    "disable_bias_skip_layer_norm": "leave biases before SkipLayerNormalization as they are",
    "disable_bias_gelu": "leave biases before Gelu and FastGelu as they are",
    "disable_layer_norm": "leave normalisations as they are",
    "disable_gelu": "leave Gelu as it is",
    "enable_gelu_approximation": "make Gelu and BiasGelu FastGelu, which is less exact",
    "enable_gemm_fast_gelu": "make MatMul and FastGelu GemmFastGelu, which GPUs have",
    "use_mask_index": "give Attention the length of each item: its padding must be at the right",
    "use_raw_attention_mask": "give Attention a mask of zeros and ones as it is",
    "no_attention_mask": "leave masks out of attentions",
    "use_multi_head_attention": "make MultiHeadAttention, never Attention",
    "disable_group_norm": "leave group normalisations as they are",
    "disable_skip_group_norm": "leave what is added before a group normalisation as it is",
    "disable_packed_kv": "keep keys and values of MultiHeadAttention apart (they always are)",
    "disable_packed_qkv": "keep queries, keys and values of MultiHeadAttention apart (always so)",
    "disable_bias_add": "leave biases before residual additions as they are",
    "disable_bias_splitgelu": "leave gated GELUs as they are",
    "disable_nhwc_conv": "leave convolutions as they are",
    "use_group_norm_channels_first": "group normalisations keep channels first",
    "disable_rotary_embeddings": "leave rotary embeddings as they are",
}
#: Flags of the original that have no meaning here, with the reason.
_REFUSED = {
    "disable_shape_inference": "fusions are safe only where shapes are known",
    "disable_symbolic_shape_infer": "fusions are safe only where shapes are known",
    "convert_to_packing_mode": "items are not packed",
    "convert_attribute": "attributes are read as they are",
}


class FusionOptions:
    """onnxruntime.transformers.fusion_options.FusionOptions: attributes `enable_...` and others.

    Attributes:
        num_heads: Fuse only attentions of so many heads; 0 for any.
        hidden_size: Fuse only attentions of so many channels; 0 for any.
        use_gpu: Make operators, too, that onnxruntime has for GPUs alone.
    """

    def __init__(self, model_type: str = "bert") -> None:
        check_model_type(model_type)
        self.num_heads = self.hidden_size = 0
        self.use_gpu = False
        for flag in SWITCHES:
            setattr(self, *_attribute(flag, given=False))

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "enable_shape_inference" and not value:
            _refuse("disable_shape_inference")
        known = {_attribute(flag, given=False)[0] for flag in SWITCHES}
        others = ("num_heads", "hidden_size", "use_gpu", "enable_shape_inference")
        if name not in known and name not in others:
            what = f"FusionOptions has no {name!r}"
            raise errors.InvalidArgument(message("optimize", what))
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the flags to a parser."""
        for flag, text in SWITCHES.items():
            parser.add_argument(f"--{flag}", action="store_true", help=text)
        for flag in _REFUSED:
            parser.add_argument(f"--{flag}", action="store_true", help=argparse.SUPPRESS)

    @staticmethod
    def parse(arguments: argparse.Namespace) -> FusionOptions:
        """Options of parsed flags.

        Raises:
            InvalidArgument: A flag has no meaning here.
        """
        for flag in _REFUSED:
            if getattr(arguments, flag, False):
                _refuse(flag)
        options = FusionOptions(getattr(arguments, "model_type", None) or "bert")
        for flag in SWITCHES:
            setattr(options, *_attribute(flag, given=bool(getattr(arguments, flag, False))))
        for name in ("num_heads", "hidden_size", "use_gpu"):
            setattr(options, name, getattr(arguments, name, 0))
        return options


def check_model_type(model_type: str) -> None:
    """Refuse a kind of model that nobody has heard of.

    Raises:
        InvalidArgument: It is none of `MODEL_TYPES`.
    """
    if model_type not in MODEL_TYPES:
        expected = ", ".join(MODEL_TYPES)
        raise errors.InvalidArgument(
            message("model_type", "No such kind of model", expected=expected, got=model_type)
        )


def _attribute(flag: str, *, given: bool) -> tuple[str, bool]:
    if flag.startswith("disable_"):
        return f"enable_{flag.removeprefix('disable_')}", not given
    return flag, given


def _refuse(flag: str) -> None:
    what = f"It has no meaning here: {_REFUSED[flag]}"
    raise errors.InvalidArgument(message(f"--{flag}", what, do="Leave it out"))
