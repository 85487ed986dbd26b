"""Quantise a language model's weights with onnxruntime's own quantisers.

    python benchmarks/make_language_quantised.py gpt2_decode.onnx OUTPUT_FOLDER

writes one file for each form that users have:

* `int4`: `MatMulNBits`, blocks of 32, no zero points, float32 arithmetic asked for (onnxruntime's
  default);
* `int4_zero`: blocks of 128 with zero points;
* `int4_level4`: like `int4`, activations may be rounded to 8 bits;
* `dynamic`: `quantize_dynamic`: DynamicQuantizeLinear, MatMulInteger, Cast, Mul.

Gemm nodes become MatMul and Add before, since the quantiser of `MatMulNBits` looks at MatMul alone.
Needs onnx, onnxruntime, onnx-ir and sympy.
"""

import argparse
import tempfile
from pathlib import Path

import numpy
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

INT4 = {
    "int4": {"block_size": 32, "is_symmetric": True},
    "int4_zero": {"block_size": 128, "is_symmetric": False},
    "int4_level4": {"block_size": 32, "is_symmetric": True, "accuracy_level": 4},
}


def split_gemms(model: onnx.ModelProto) -> None:
    """Write every Gemm without factors as MatMul and Add, in place."""
    weights = {w.name: w for w in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        facts = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        scaled = facts.get("alpha", 1.0) != 1.0 or facts.get("beta", 1.0) != 1.0
        if node.op_type != "Gemm" or scaled or facts.get("transA") or node.input[1] not in weights:
            nodes.append(node)
            continue
        left, right, *bias = node.input
        if facts.get("transB"):
            transposed = f"{right}_turned"
            if transposed not in weights:
                array = numpy_helper.to_array(weights[right]).T
                tensor = numpy_helper.from_array(numpy.ascontiguousarray(array), transposed)
                weights[transposed] = tensor
                model.graph.initializer.append(tensor)
            right = transposed
        product = f"{node.output[0]}_product" if bias else node.output[0]
        nodes.append(helper.make_node("MatMul", [left, right], [product], f"{node.name}_product"))
        if bias:
            sum_ = helper.make_node("Add", [product, *bias], list(node.output), f"{node.name}_bias")
            nodes.append(sum_)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [w for w in model.graph.initializer if w.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def make(source: Path, folder: Path, names: list[str]) -> None:
    """Write `folder / <source>_<form>.onnx` for each form in `names`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        target = folder / f"{source.stem}_{name}.onnx"
        model = onnx.load(source)
        split_gemms(model)
        if name == "dynamic":
            with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
                onnx.save(model, file.name)
                quantize_dynamic(file.name, str(target))
            continue
        quantiser = MatMulNBitsQuantizer(model, **INT4[name])
        quantiser.process()
        onnx.save(quantiser.model.model, str(target))


if __name__ == "__main__":
    forms = [*INT4, "dynamic"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--forms", nargs="*", default=forms, choices=forms)
    arguments = parser.parse_args()
    make(arguments.model, arguments.folder, arguments.forms)
