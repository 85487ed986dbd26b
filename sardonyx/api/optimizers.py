"""onnxruntime's optimisers by name, and what of ours programs disable with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sardonyx.api.spelling import nearest
from sardonyx.api.warned import warn
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.notes import note

#: The session-config entry that names them, with semicolons between.
KEY = "optimization.disable_specified_optimizers"

_EQUAL, _NORMS, _JOIN, _SHARE = (
    "merge equal values", "fold batch normalisation", "join products of one factor",
    "read one of equal elements",
)  # fmt: skip

#: What each of onnxruntime's optimisers is here: names of passes (`passes.pipeline`), of planning
#: (`plan.pipeline`), and of what is done to a written model alone (`tools.optimizer.simplify`).
#: They stand here as text: a program that only imports loads none of these.
ACTING: dict[str, tuple[str, ...]] = {
    "CommonSubexpressionElimination": (_EQUAL,),
    "ConstantSharing": (_EQUAL, _SHARE),
    "ConvBNFusion": (_NORMS,),
    "MatMul_BatchNormalization_Fusion": (_NORMS,),
    "AttentionFusion": ("attention", _JOIN),
    "GroupQueryAttentionFusion": ("attention", _JOIN),
    "MatMulNBitsQkvFusion": (_JOIN,),
    "QDQSelectorActionTransformer": ("integers",),
    "MatMulIntegerToFloatFusion": ("integers",),
    "DynamicQuantizeMatMulFusion": ("integers",),
    "NchwcTransformer": ("layouts",),
    "NhwcTransformer": ("layouts",),
    "ConstantFolding": ("fold constants",),
    "ConvAddFusion": ("fold factors of convolutions",),
    "ConvMulFusion": ("fold factors of convolutions",),
    "Pad_Fusion": ("fold pads of convolutions",),
    "MatMulAddFusion": ("join MatMul and Add",),
    "GemmTransposeFusion": ("transpose factors of Gemm",),
    "ReshapeFusion": ("merge Reshapes",),
    "TransposeOptimizer": ("merge Transposes", "layouts"),
}

#: Those whose work no pass does: kernels are made of what nodes compute together, whichever these
#: are, and a layout operation is an index.
GROUPED = tuple(
    """
    Avx2WeightS8ToU8Transformer BiasDropoutFusion BiasGeluFusion BiasSkipLayerNormFusion
    BiasSoftmaxFusion CastChainElimination CastElimination CastFloat16Transformer ClipQuantRewrite
    ConstantFoldIfNode ConstantFoldingDQ ConvActivationFusion ConvAddActivationFusion
    DQMatMulNBitsFusion DivMulFusion DoubleQDQPairsRemover EliminateDropout EliminateIdentity
    EliminateSlice EmbedLayerNormFusion EnsureUniqueDQForNodeUnit ExpandElimination FastGeluFusion
    FreeDimensionOverrideTransformer FuseFp16InitializerToFp32NodeTransformer FuseReluClip
    GatherSliceToSplitFusion GatherToSliceFusion GatherToSplitFusion GeluApproximation GeluFusionL1
    GeluFusionL2 GemmActivationFusion GemmSumFusion GqaValueLayoutTransformer
    GroupQueryAttentionPreNormFusion IsInfReduceSumFusion LabelEncoderFusion LayerNormFusionL1
    LayerNormFusionL2 Level1_RuleBasedTransformer Level2_RuleBasedTransformer MatMulActivationFusion
    MatMulNBitsFusion MatMulNBitsMlpFusion MatMulScaleFusion MatmulTransposeFusion MemcpyTransformer
    NoopElimination NotWhereFusion PreShapeNodeElimination QDQFinalCleanupTransformer
    QDQPropagationTransformer QDQS8ToU8Transformer QuickGeluFusion ReluQuantRewrite
    RemoveDuplicateCastTransformer SimplifiedLayerNormFusion SkipLayerNormFusion
    SliceConcatToSpaceToDepthFusion UnsqueezeElimination WeightBiasQuantization
    """.split()
)


def optimizer_names(given: Any) -> tuple[str, ...]:
    """Names that the argument `disabled_optimizers` gives: a list, a set, or one name.

    Raises:
        InvalidArgument: It is none of these.
    """
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, Iterable):
        listed = [None]
    found = tuple(listed)
    for name in found:
        if not isinstance(name, str):
            raise InvalidArgument(
                message(
                    "disabled_optimizers", "These are no names of optimisers",
                    expected="a list of text", got=repr(given),
                )
            )  # fmt: skip
    return found


def disabled(names: Iterable[str]) -> frozenset[str]:
    """What of ours stands for onnxruntime's optimisers; a name that is none warns."""
    found: set[str] = set()
    for name in names:
        if name in ACTING:
            found.update(ACTING[name])
        elif name in GROUPED:
            note(f"disabled optimiser {name}", "kernels are made of what nodes compute together")
        else:
            do = nearest(name, [*ACTING, *GROUPED])
            text = message(
                "disabled_optimizers", f"There is no optimiser {name!r}: nothing is disabled", do=do
            )
            warn(text)
    return frozenset(found)
