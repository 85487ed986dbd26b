"""The tables of ONNX's messages: numbers and kinds of the fields that this engine reads or writes.

A kind ends in `*` where the field is repeated, in `**` where its elements are decoded only when
they are asked for, in `*+` where many elements may be held as one `LongList`, and in `*=` where
equal short messages may be one record. `span` is a byte field that may stay in the file.
"""

from __future__ import annotations

from sardonyx.loader.wire import Message

MODEL = Message("ModelProto")
GRAPH = Message("GraphProto")
NODE = Message("NodeProto")
ATTRIBUTE = Message("AttributeProto")
TENSOR = Message("TensorProto")
SPARSE_TENSOR = Message("SparseTensorProto")
SEGMENT = Message("TensorProto.Segment")
VALUE_INFO = Message("ValueInfoProto")
TYPE = Message("TypeProto")
TENSOR_TYPE = Message("TypeProto.Tensor")
SEQUENCE_TYPE = Message("TypeProto.Sequence")
OPTIONAL_TYPE = Message("TypeProto.Optional")
MAP_TYPE = Message("TypeProto.Map")
OPAQUE_TYPE = Message("TypeProto.Opaque")
SHAPE = Message("TensorShapeProto")
DIMENSION = Message("TensorShapeProto.Dimension")
OPERATOR_SET = Message("OperatorSetIdProto")
FUNCTION = Message("FunctionProto")
ENTRY = Message("StringStringEntryProto")

MODEL.fields(
    ir_version=(1, "int64"),
    producer_name=(2, "string"),
    producer_version=(3, "string"),
    domain=(4, "string"),
    model_version=(5, "int64"),
    doc_string=(6, "string"),
    graph=(7, "message", GRAPH),
    opset_import=(8, "message*", OPERATOR_SET),
    metadata_props=(14, "message*", ENTRY),
    functions=(25, "message*", FUNCTION),
)
GRAPH.fields(
    node=(1, "message*", NODE),
    name=(2, "string"),
    initializer=(5, "message*", TENSOR),
    doc_string=(10, "string"),
    input=(11, "message*", VALUE_INFO),
    output=(12, "message*", VALUE_INFO),
    value_info=(13, "message*", VALUE_INFO),
    sparse_initializer=(15, "message*", SPARSE_TENSOR),
)
NODE.fields(
    input=(1, "string*"),
    output=(2, "string*"),
    name=(3, "string"),
    op_type=(4, "string"),
    attribute=(5, "message*=", ATTRIBUTE),
    doc_string=(6, "bytes"),
    domain=(7, "string"),
    overload=(8, "string"),
)
ATTRIBUTE.fields(
    name=(1, "string"),
    f=(2, "float"),
    i=(3, "int64"),
    s=(4, "bytes"),
    t=(5, "message", TENSOR),
    g=(6, "message", GRAPH),
    floats=(7, "float*+"),
    ints=(8, "int64*+"),
    strings=(9, "bytes*+"),
    tensors=(10, "message*", TENSOR),
    graphs=(11, "message*", GRAPH),
    tp=(14, "message", TYPE),
    type_protos=(15, "message*", TYPE),
    type=(20, "int32"),
    ref_attr_name=(21, "string"),
    sparse_tensor=(22, "message", SPARSE_TENSOR),
    sparse_tensors=(23, "message*", SPARSE_TENSOR),
)
TENSOR.fields(
    dims=(1, "int64*"),
    data_type=(2, "int32"),
    segment=(3, "message", SEGMENT),
    float_data=(4, "float**"),
    int32_data=(5, "int32**"),
    string_data=(6, "bytes*"),
    int64_data=(7, "int64**"),
    name=(8, "string"),
    raw_data=(9, "span"),
    double_data=(10, "double**"),
    uint64_data=(11, "uint64**"),
    external_data=(13, "message*", ENTRY),
    data_location=(14, "int32"),
)
SEGMENT.fields(begin=(1, "int64"), end=(2, "int64"))
SPARSE_TENSOR.fields(
    values=(1, "message", TENSOR), indices=(2, "message", TENSOR), dims=(3, "int64*")
)
VALUE_INFO.fields(name=(1, "string"), type=(2, "message", TYPE), doc_string=(3, "string"))
TYPE.fields(
    tensor_type=(1, "message", TENSOR_TYPE),
    sequence_type=(4, "message", SEQUENCE_TYPE),
    map_type=(5, "message", MAP_TYPE),
    denotation=(6, "string"),
    opaque_type=(7, "message", OPAQUE_TYPE),
    sparse_tensor_type=(8, "message", TENSOR_TYPE),
    optional_type=(9, "message", OPTIONAL_TYPE),
)
TENSOR_TYPE.fields(elem_type=(1, "int32"), shape=(2, "message", SHAPE))
SEQUENCE_TYPE.fields(elem_type=(1, "message", TYPE))
OPTIONAL_TYPE.fields(elem_type=(1, "message", TYPE))
MAP_TYPE.fields(key_type=(1, "int32"), value_type=(2, "message", TYPE))
OPAQUE_TYPE.fields(domain=(1, "string"), name=(2, "string"))
SHAPE.fields(dim=(1, "message*", DIMENSION))
DIMENSION.fields(dim_value=(1, "int64"), dim_param=(2, "string"), denotation=(3, "string"))
OPERATOR_SET.fields(domain=(1, "string"), version=(2, "int64"))
FUNCTION.fields(
    name=(1, "string"),
    input=(4, "string*"),
    output=(5, "string*"),
    attribute=(6, "string*"),
    node=(7, "message*", NODE),
    doc_string=(8, "string"),
    opset_import=(9, "message*", OPERATOR_SET),
    domain=(10, "string"),
    attribute_proto=(11, "message*", ATTRIBUTE),
    value_info=(12, "message*", VALUE_INFO),
    overload=(13, "string"),
)
ENTRY.fields(key=(1, "string"), value=(2, "string"))

#: AttributeProto.type: number -> (name, field).
ATTRIBUTE_TYPES = {
    1: ("FLOAT", "f"),
    2: ("INT", "i"),
    3: ("STRING", "s"),
    4: ("TENSOR", "t"),
    5: ("GRAPH", "g"),
    6: ("FLOATS", "floats"),
    7: ("INTS", "ints"),
    8: ("STRINGS", "strings"),
    9: ("TENSORS", "tensors"),
    10: ("GRAPHS", "graphs"),
    11: ("SPARSE_TENSOR", "sparse_tensor"),
    12: ("SPARSE_TENSORS", "sparse_tensors"),
    13: ("TYPE_PROTO", "tp"),
    14: ("TYPE_PROTOS", "type_protos"),
}
#: TensorProto.DataLocation.EXTERNAL
EXTERNAL = 1
#: Versions of the format that are read, first and last.
IR_VERSIONS = (0, 14)
#: The newest version of ONNX's own operators that was looked at.
NEWEST_OPSET = 28
