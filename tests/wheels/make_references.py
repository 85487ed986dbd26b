"""Makes `data/references.npz` and `data/decoded.json`: `python -m tests.wheels.make_references`.

Models named after that are made anew alone. Needs onnxruntime, which the tests do not.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import onnxruntime

from tests.wheels.models import MODELS, Model
from tests.wheels.references import ARRAYS, DECODED, OF_LARGEST, describe, same


def run(model: Model) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """All outputs of all cases, and what is read off them."""
    session = onnxruntime.InferenceSession(model.read(), providers=["CPUExecutionProvider"])
    outputs, decoded = {}, {}
    for case, make in model.cases.items():
        feed = make()
        outputs[case] = model.run(session, feed)
        decoded[case] = model.decode(session, feed, outputs[case])
        for factor in (1 - OF_LARGEST, 1 + OF_LARGEST):
            moved = [_scaled(output, factor) for output in outputs[case]]
            if not same(model.decode(session, feed, moved), decoded[case]):
                raise SystemExit(f"{model.member} on {case} hangs by a hair: choose another case")
    return outputs, decoded


def _scaled(output: Any, factor: float) -> Any:
    return output * np.float32(factor) if output.dtype.kind == "f" else output


def main(names: list[str]) -> None:
    """Run the named models on every case and keep what is stored of the others; no name: all."""
    arrays: dict[str, Any] = {}
    decoded: dict[str, Any] = {}
    if names:
        with np.load(ARRAYS) as stored:
            arrays = {key: stored[key] for key in stored if key.split("/")[0] not in names}
        decoded = json.loads(DECODED.read_text("utf-8"))
    for name in names or MODELS:
        outputs, decoded[name] = run(MODELS[name])
        for case, values in outputs.items():
            for index, value in enumerate(values):
                for kind, array in describe(value).items():
                    arrays[f"{name}/{case}/{index}/{kind}"] = array
    np.savez_compressed(ARRAYS, **arrays)
    rows = [_rows(name, decoded[name]) for name in MODELS]
    DECODED.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")


def _rows(name: str, cases: dict[str, Any]) -> str:
    """One model as JSON, a line for each case."""
    lines = [f'  "{case}": {json.dumps(found)}' for case, found in cases.items()]
    return f' "{name}": {{\n' + ",\n".join(lines) + "\n }"


if __name__ == "__main__":
    main(sys.argv[1:])
