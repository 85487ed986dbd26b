"""A pipeline of scikit-learn through `onnxruntime.backend`, as skl2onnx's documentation does it."""

import json

import numpy as np
import onnxruntime.backend as backend
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from skl2onnx import to_onnx
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

x, y = load_iris(return_X_y=True)
x = x.astype(np.float32)
scale = ColumnTransformer([("a", StandardScaler(), [0, 1]), ("b", MinMaxScaler(), [2, 3])])
differences = []
forest = RandomForestClassifier(20, random_state=0)  # alone: it compares with float32's numbers
for steps in ((scale, LogisticRegression()), (forest,)):
    pipeline = make_pipeline(*steps).fit(x, y)
    model = to_onnx(pipeline, x[:1], target_opset=18)
    prepared = backend.prepare(model, "CPU")
    label, probabilities = prepared.run(x)
    again = backend.run(model, x, "CPU")
    assert (again[0] == label).all() and (label == pipeline.predict(x)).all()
    found = np.array([[row[k] for k in range(3)] for row in probabilities])
    differences.append(float(abs(found - pipeline.predict_proba(x)).max()))
try:
    prepared.run(x[:, :3])
    refused = ""
except (RuntimeError, InvalidArgument) as error:
    refused = type(error).__name__
print(json.dumps([differences, refused, backend.supports_device("CPU")]))
