"""Makes `data/references.npz` and `data/decoded.json`: `python -m tests.wheels.make_references`.

Needs onnxruntime, which the tests do not.
"""

from __future__ import annotations

import json
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
        outputs[case] = session.run(None, {session.get_inputs()[0].name: feed})
        decoded[case] = model.decode(session, feed, outputs[case])
        for factor in (1 - OF_LARGEST, 1 + OF_LARGEST):
            moved = [output * np.float32(factor) for output in outputs[case]]
            if not same(model.decode(session, feed, moved), decoded[case]):
                raise SystemExit(f"{model.member} on {case} hangs by a hair: choose another case")
    return outputs, decoded


def main() -> None:
    """Run every model on every case."""
    arrays, decoded = {}, {}
    for name, model in MODELS.items():
        outputs, decoded[name] = run(model)
        for case, values in outputs.items():
            for index, value in enumerate(values):
                for kind, array in describe(value).items():
                    arrays[f"{name}/{case}/{index}/{kind}"] = array
    np.savez_compressed(ARRAYS, **arrays)
    DECODED.write_text("{\n" + ",\n".join(map(_rows, decoded.items())) + "\n}\n", "utf-8")


def _rows(item: tuple[str, Any]) -> str:
    """One model as JSON, a line for each case."""
    name, cases = item
    lines = [f'  "{case}": {json.dumps(found)}' for case, found in cases.items()]
    return f' "{name}": {{\n' + ",\n".join(lines) + "\n }"


if __name__ == "__main__":
    main()
