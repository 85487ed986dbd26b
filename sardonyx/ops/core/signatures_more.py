"""Signatures of operators; see signatures.py.

Written by `python -m tests.ops.make_signatures`.
"""

from __future__ import annotations

#: Domain -> rows.
TABLES = {
    "ai.onnx.ml": """
ArrayFeatureExtractor 1: X:T Y:int64 -> Z:T; T=double float int32 int64 string
Binarizer 1: X:T -> Y:T; T=double float int32 int64
CastMap 1: X:T1 -> Y:T2; T1=map; T2=float int64 string
CategoryMapper 1: X:T1 -> Y:T2; T1=int64 string; T2=int64 string
DictVectorizer 1: X:T1 -> Y:T2; T1=map; T2=double float int64 string
FeatureVectorizer 1: X:T1+ -> Y:float; T1=double float int32 int64
Imputer 1: X:T -> Y:T; T=double float int32 int64
LabelEncoder 1: X:T1 -> Y:T2; T1=double float int16 int32 int64 string; T2=double float int16 int32
    int64 string
LinearClassifier 1: X:T1 -> Y:T2 Z:float; T1=double float int32 int64; T2=int64 string
LinearRegressor 1: X:T -> Y:float; T=double float int32 int64
Normalizer 1: X:T -> Y:float; T=double float int32 int64
OneHotEncoder 1: X:T -> Y:float; T=double float int32 int64 string
SVMClassifier 1: X:T1 -> Y:T2 Z:float; T1=double float int32 int64; T2=int64 string
SVMRegressor 1: X:T -> Y:float; T=double float int32 int64
Scaler 1: X:T -> Y:float; T=double float int32 int64
TreeEnsemble 5: X:T -> Y:T; T=floats -bfloat16
TreeEnsembleClassifier 1: X:T1 -> Y:T2 Z:float; T1=double float int32 int64; T2=int64 string
TreeEnsembleRegressor 1: X:T -> Y:float; T=double float int32 int64
ZipMap 1: X:float -> Z:T; T=seq
""",
    "ai.onnx.preview": """
FlexAttention 1: Q:T1 K:T1 V:T1 -> Y:T1; T1=floats
""",
    "ai.onnx.preview.training": """
Adagrad 1: R:T1 T:T2 inputs:T3* -> outputs:T3*; T1=double float; T2=int64; T3=double float
Adam 1: R:T1 T:T2 inputs:T3* -> outputs:T3*; T1=double float; T2=int64; T3=double float
Gradient 1: Inputs:T1* -> Outputs:T2*; T1=tensors -bfloat16; T2=floats -bfloat16
Momentum 1: R:T1 T:T2 inputs:T3* -> outputs:T3*; T1=double float; T2=int64; T3=double float
""",
}
