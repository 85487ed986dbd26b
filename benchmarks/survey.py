"""Single operators and short chains beside onnxruntime, on one thread: where are cliffs?

    python benchmarks/survey.py [PART OF A NAME ...]

Printed for each case: onnxruntime's time over ours (below 1 we are slower), both times, and whether
results differ. Times are minima of interleaved rounds, so that a machine with other work will do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from onnx import numpy_helper, parser

import sardonyx

Array = np.ndarray[Any, Any]
F = np.float32
rng = np.random.default_rng(0)
_NAMES = {
    "float32": "float", "int64": "int64", "bool": "bool", "float16": "float16", "uint8": "uint8",
    "int32": "int32", "int8": "int8", "float64": "double",
}  # fmt: skip


@dataclass
class Case:
    """A graph by its text, what it is fed, and its weights."""

    name: str
    body: str
    feeds: dict[str, Array]
    weights: dict[str, Any] = field(default_factory=dict)
    output: str = "float[] y"
    opset: int = 17

    def model(self) -> bytes:
        """The model, serialised."""
        inputs = ", ".join(
            f"{_NAMES[v.dtype.name]}[{','.join(map(str, v.shape))}] {k}"
            if v.ndim
            else f"{_NAMES[v.dtype.name]} {k}"
            for k, v in self.feeds.items()
        )
        text = f"""<ir_version: 9, opset_import: ["" : {self.opset}]> g ({inputs}) => ({self.output})
            {{ {self.body} }}"""
        model = parser.parse_model(text)
        for name, value in self.weights.items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        data: bytes = model.SerializeToString()
        return data


def W(*shape: int) -> Array:
    """Small random weights."""
    return (rng.standard_normal(shape) * 0.1).astype(F)


def X(*shape: int) -> Array:
    """Random elements."""
    return rng.standard_normal(shape).astype(F)


def whole(*values: int) -> Array:
    """Whole numbers."""
    return np.array(values, np.int64)


CASES: list[Case] = []


def case(
    name: str,
    body: str,
    feeds: dict[str, Array],
    weights: dict[str, Any] | None = None,
    out: str = "float[] y",
    opset: int = 17,
) -> None:
    """Add one."""
    CASES.append(Case(name, body, feeds, weights or {}, out, opset))


def conv(name: str, x: tuple[int, ...], w: tuple[int, ...], attributes: str = "") -> None:
    """Add a convolution with a bias."""
    given = f"<{attributes}>" if attributes else ""
    case(name, f"y = Conv{given}(x,w,b)", {"x": X(*x)}, {"w": W(*w), "b": W(w[0])})


def chain(name: str, body: str, x: Array, weights: dict[str, Any]) -> None:
    """Add a few operators."""
    case(name, body, {"x": x}, weights)


def resnext(groups: int, channels: int, extent: int, out: int = 256) -> None:
    """Add a block of ResNeXt."""
    chain(
        f"resnext block g{groups} c{channels} {extent}",
        "a = Conv(x,w1,b1) a1 = Relu(a)"
        f" b = Conv<pads=[1,1,1,1],group={groups}>(a1,w2,b2) c1 = Relu(b)"
        " d = Conv(c1,w3,b3) e = Add(d,x) y = Relu(e)",
        X(1, out, extent, extent),
        {"w1": W(channels, out, 1, 1), "b1": W(channels),
         "w2": W(channels, channels // groups, 3, 3), "b2": W(channels),
         "w3": W(out, channels, 1, 1), "b3": W(out)},
    )  # fmt: skip


# fmt: off
# A table: one case to a line, whatever its length, by makers of one capital letter.
# ruff: noqa: E501, N802
# convolutions
conv('conv3x3 64 56',(1,64,56,56),(64,64,3,3),'pads=[1,1,1,1]')
conv('conv3x3 s2 64-128 56',(1,64,56,56),(128,64,3,3),'pads=[1,1,1,1],strides=[2,2]')
conv('conv3x3 dil2 128 28',(1,128,28,28),(128,128,3,3),'pads=[2,2,2,2],dilations=[2,2]')
conv('conv5x5 32 56',(1,32,56,56),(32,32,5,5),'pads=[2,2,2,2]')
conv('conv7x7 s2 rgb 224',(1,3,224,224),(64,3,7,7),'pads=[3,3,3,3],strides=[2,2]')
conv('conv1x1 256-64 56',(1,256,56,56),(64,256,1,1))
conv('conv1x1 s2 256-512 28',(1,256,28,28),(512,256,1,1),'strides=[2,2]')
conv('conv1x1 17-33 ch 28',(1,17,28,28),(33,17,1,1))
conv('dw3x3 96 56',(1,96,56,56),(96,1,3,3),'pads=[1,1,1,1],group=96')
conv('dw3x3 s2 96 56',(1,96,56,56),(96,1,3,3),'pads=[1,1,1,1],group=96,strides=[2,2]')
conv('dw5x5 240 28',(1,240,28,28),(240,1,5,5),'pads=[2,2,2,2],group=240')
conv('dw7x7 96 56',(1,96,56,56),(96,1,7,7),'pads=[3,3,3,3],group=96')
conv('dw31x31 32 28',(1,32,28,28),(32,1,31,31),'pads=[15,15,15,15],group=32')
conv('dw mult2 32 56',(1,32,56,56),(64,1,3,3),'pads=[1,1,1,1],group=32')
conv('group4 64 28',(1,64,28,28),(64,16,3,3),'pads=[1,1,1,1],group=4')
conv('group32 128 28 (4 ch)',(1,128,28,28),(128,4,3,3),'pads=[1,1,1,1],group=32')
conv('conv1d 64 k9 1000',(1,64,1000),(64,64,9),'pads=[4,4]')
conv('conv1d 80-384 k3 3000',(1,80,3000),(384,80,3),'pads=[1,1]')
conv('conv1d dw k31 256 500',(1,256,500),(256,1,31),'pads=[15,15],group=256')
conv('conv1d rgb k10 s5 16000',(1,1,16000),(512,1,10),'strides=[5]')
conv('conv3d 16 k3 16x32x32',(1,16,16,32,32),(16,16,3,3,3),'pads=[1,1,1,1,1,1]')
conv('conv3x3 batch8 32 28',(8,32,28,28),(64,32,3,3),'pads=[1,1,1,1]')
conv('conv3x3 512 7',(1,512,7,7),(512,512,3,3),'pads=[1,1,1,1]')
conv('conv4x4 s4 patch 3-96',(1,3,224,224),(96,3,4,4),'strides=[4,4]')
conv('conv16x16 s16 patch 3-768',(1,3,224,224),(768,3,16,16),'strides=[16,16]')
case('convT 4x4 s2 64-32 28','y = ConvTranspose<strides=[2,2],pads=[1,1,1,1]>(x,w)',{'x':X(1,64,28,28)},{'w':W(64,32,4,4)})
case('convT 2x2 s2 128-64 28','y = ConvTranspose<strides=[2,2]>(x,w)',{'x':X(1,128,28,28)},{'w':W(128,64,2,2)})
case('convT 2x2 s2 128-64 28 b8','y = ConvTranspose<strides=[2,2]>(x,w)',{'x':X(8,128,28,28)},{'w':W(128,64,2,2)})
case('conv 5x5 600-20 9x10','y = Conv(x,w)',{'x':X(1,600,9,10)},{'w':W(20,600,5,5)})
case('convT1d 16 s8 256-128 100','y = ConvTranspose<strides=[8],pads=[4,4]>(x,w)',{'x':X(1,256,100)},{'w':W(256,128,16)})
case('conv weight from input','y = Conv<pads=[1,1,1,1]>(x,w)',{'x':X(1,64,28,28),'w':W(64,64,3,3)})
case('conv weight dequantized','q = DequantizeLinear(w,sc) y = Conv<pads=[1,1,1,1]>(x,q)',{'x':X(1,64,28,28)},{'w':rng.integers(-127,127,(64,64,3,3)).astype(np.int8),'sc':F(0.01)})
case('conv BN relu','c = Conv<pads=[1,1,1,1]>(x,w) n = BatchNormalization(c,s,b,m,v) y = Relu(n)',{'x':X(1,64,28,28)},{'w':W(64,64,3,3),'s':W(64),'b':W(64),'m':W(64),'v':np.abs(W(64))+1})
case('conv silu','c = Conv<pads=[1,1,1,1]>(x,w) g = Sigmoid(c) y = Mul(c,g)',{'x':X(1,32,56,56)},{'w':W(32,32,3,3)})
# matrices
for m,k,n in ((1,768,768),(1,4096,4096),(4,768,3072),(16,512,512),(128,768,768),(128,768,3072),(197,768,2304),(512,512,512),(100,100,100),(1000,17,33),(33,1000,7),(50,64,50)):
    case(f'matmul {m}x{k}x{n}','y = MatMul(x,w)',{'x':X(m,k)},{'w':W(k,n)})
case('matmul no const 256','y = MatMul(x,w)',{'x':X(256,256),'w':X(256,256)})
case('matmul batch 12x128x64x128','y = MatMul(x,w)',{'x':X(12,128,64),'w':X(12,64,128)})
case('matmul batch 64 small 16x16','y = MatMul(x,w)',{'x':X(256,16,16),'w':X(256,16,16)})
case('matmul transposed const','t = Transpose<perm=[1,0]>(w) y = MatMul(x,t)',{'x':X(64,512)},{'w':W(1024,512)})
case('gemm transB bias relu','g = Gemm<transB=1>(x,w,b) y = Relu(g)',{'x':X(32,512)},{'w':W(1024,512),'b':W(1024)})
case('gemm transA','y = Gemm<transA=1>(x,w)',{'x':X(256,128)},{'w':W(256,256)})
case('gemm no const transB','y = Gemm<transB=1>(x,w)',{'x':X(200,300),'w':X(250,300)})
case('matmul fp16 weights cast','c = Cast<to=1>(w) y = MatMul(x,c)',{'x':X(16,768)},{'w':W(768,768).astype(np.float16)})
case('matmul float64','y = MatMul(x,w)',{'x':X(128,256).astype(float)},{'w':W(256,256).astype(float)},'double[] y')
case('einsum bhid,bhjd->bhij','y = Einsum<equation="bhid,bhjd->bhij">(x,w)',{'x':X(1,8,128,64),'w':X(1,8,128,64)})
case('einsum bij,jk','y = Einsum<equation="bij,jk->bik">(x,w)',{'x':X(4,64,256)},{'w':W(256,256)})
# pointwise and rows
B=X(1,64,112,112)
R=X(128,768)
for op in 'Relu Sigmoid Tanh Exp Erf Sqrt Abs Neg Floor HardSwish Elu Softplus Log Sin Gelu'.split():
    x=np.abs(B)+0.1 if op in('Log','Sqrt') else B
    case(f'{op} 0.8M',f'y = {op}(x)',{'x':x},opset=20)
case('Add 0.8M','y = Add(x,z)',{'x':B,'z':B})
case('Add channel bias','y = Add(x,z)',{'x':B},{'z':W(64,1,1)})
case('Mul row bias','y = Mul(x,z)',{'x':R},{'z':W(768)})
case('Pow 2','y = Pow(x,z)',{'x':B},{'z':F(2)})
case('Pow 0.5','y = Pow(x,z)',{'x':np.abs(B)},{'z':F(0.5)})
case('Pow general','y = Pow(x,z)',{'x':np.abs(B[:,:8])+.1,'z':B[:,:8]})
case('Clip','y = Clip(x,a,b)',{'x':B},{'a':F(0),'b':F(6)})
case('Where','c = Greater(x,z) y = Where(c,x,z)',{'x':B,'z':B})
case('Div','y = Div(x,z)',{'x':B,'z':np.abs(B)+1})
case('Cast f32-f16-f32','a = Cast<to=10>(x) y = Cast<to=1>(a)',{'x':B})
case('Cast i64-f32','y = Cast<to=1>(x)',{'x':rng.integers(0,99,800000)})
case('Softmax 128x768','y = Softmax<axis=-1>(x)',{'x':R})
case('Softmax axis1 nchw','y = Softmax<axis=1>(x)',{'x':X(1,21,128,128)})
case('LogSoftmax 32x30000','y = LogSoftmax<axis=-1>(x)',{'x':X(32,30000)})
case('LayerNorm 128x768','y = LayerNormalization(x,s,b)',{'x':R},{'s':W(768),'b':W(768)})
case('LayerNorm decomposed','m = ReduceMean<axes=[-1]>(x) d = Sub(x,m) q = Mul(d,d) v = ReduceMean<axes=[-1]>(q) e = Add(v,eps) r = Sqrt(e) n = Div(d,r) y = Mul(n,s)',{'x':R},{'s':W(768),'eps':F(1e-5)})
case('InstanceNorm 64 112','y = InstanceNormalization(x,s,b)',{'x':B},{'s':W(64),'b':W(64)})
case('GroupNorm by reshape','r = Reshape(x,sh) i = InstanceNormalization(r,s,b) y = Reshape(i,so)',{'x':B},{'s':W(32),'b':W(32),'sh':whole(1,32,-1),'so':whole(1,64,112,112)})
case('BatchNorm alone','y = BatchNormalization(x,s,b,m,v)',{'x':B},{'s':W(64),'b':W(64),'m':W(64),'v':np.abs(W(64))+1})
case('LRN','y = LRN<size=5>(x)',{'x':X(1,64,56,56)})
case('LpNorm','y = LpNormalization<axis=1>(x)',{'x':R})
for ax,nm in ((-1,'last'),(0,'first'),(1,'mid')):
    case(f'ReduceMean {nm}',f'y = ReduceMean<axes=[{ax}]>(x)',{'x':X(128,128,128)})
    case(f'ReduceMax {nm}',f'y = ReduceMax<axes=[{ax}]>(x)',{'x':X(128,128,128)})
    case(f'ArgMax {nm}',f'y = ArgMax<axis={ax}>(x)',{'x':X(128,128,64)},out='int64[] y')
case('ReduceSum all','y = ReduceSum<keepdims=0>(x)',{'x':B})
case('GlobalAveragePool','y = GlobalAveragePool(x)',{'x':B})
case('CumSum last','y = CumSum(x,a)',{'x':X(256,1000)},{'a':whole(1)[0]})
case('CumSum first','y = CumSum(x,a)',{'x':X(1000,256)},{'a':whole(0)[0]})
# pooling, resize
case('MaxPool 3x3 s2','y = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(x)',{'x':B})
case('MaxPool 5x5 s1','y = MaxPool<kernel_shape=[5,5],pads=[2,2,2,2]>(x)',{'x':X(1,128,20,20)})
case('MaxPool 2x2 s2','y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)',{'x':B})
case('AvgPool 3x3 s1','y = AveragePool<kernel_shape=[3,3],pads=[1,1,1,1]>(x)',{'x':X(1,64,56,56)})
case('AvgPool 7x7','y = AveragePool<kernel_shape=[7,7]>(x)',{'x':X(1,512,7,7)})
case('Resize nearest 2x','y = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">(x,,sc)',{'x':X(1,64,56,56)},{'sc':np.array([1,1,2,2],F)})
case('Resize linear 2x','y = Resize<mode="linear",coordinate_transformation_mode="half_pixel">(x,,sc)',{'x':X(1,64,56,56)},{'sc':np.array([1,1,2,2],F)})
case('Resize linear align','y = Resize<mode="linear",coordinate_transformation_mode="align_corners">(x,,,sz)',{'x':X(1,19,64,64)},{'sz':whole(1,19,512,512)})
case('Resize cubic','y = Resize<mode="cubic">(x,,sc)',{'x':X(1,3,128,128)},{'sc':np.array([1,1,2,2],F)})
case('Resize down antialias','y = Resize<mode="linear",antialias=1>(x,,,sz)',{'x':X(1,3,512,512)},{'sz':whole(1,3,224,224)},opset=18)
# data movement
case('Transpose 0213','y = Transpose<perm=[0,2,1,3]>(x)',{'x':X(1,128,12,64)})
case('Transpose 2d','y = Transpose<perm=[1,0]>(x)',{'x':X(1000,1000)})
case('Transpose nchw-nhwc','y = Transpose<perm=[0,2,3,1]>(x)',{'x':B})
case('Transpose nhwc-nchw','y = Transpose<perm=[0,3,1,2]>(x)',{'x':X(1,112,112,64)})
case('Transpose 012345','y = Transpose<perm=[0,1,4,2,5,3]>(x)',{'x':X(1,16,32,2,32,2)})
case('Concat ch','y = Concat<axis=1>(x,z)',{'x':B,'z':B})
case('Concat last','y = Concat<axis=-1>(x,z)',{'x':X(1000,100),'z':X(1000,28)})
case('Split','a,y = Split<axis=1>(x)',{'x':B})
case('Slice step2','y = Slice(x,a,b,c,d)',{'x':B},{'a':whole(0,0),'b':whole(999,999),'c':whole(2,3),'d':whole(2,2)})
case('Pad reflect','y = Pad<mode="reflect">(x,p)',{'x':X(1,64,56,56)},{'p':whole(0,0,3,3,0,0,3,3)})
case('Pad const','y = Pad(x,p)',{'x':X(1,64,56,56)},{'p':whole(0,0,1,1,0,0,1,1)})
case('Expand','y = Expand(x,p)',{'x':X(64,1,56)},{'p':whole(64,56,56)})
case('Tile','y = Tile(x,p)',{'x':X(1,64,56)},{'p':whole(32,1,1)})
case('Gather rows 30000x768','y = Gather(w,i)',{'i':rng.integers(0,30000,(1,128))},{'w':W(30000,768)})
case('Gather last axis','y = Gather<axis=-1>(x,i)',{'x':X(512,512),'i':rng.integers(0,512,300)})
case('GatherElements','y = GatherElements<axis=1>(x,i)',{'x':X(500,500),'i':rng.integers(0,500,(500,500))})
case('GatherND','y = GatherND(x,i)',{'x':X(100,100,64),'i':rng.integers(0,100,(5000,2))})
case('ScatterND','y = ScatterND(x,i,u)',{'x':X(100,100,64),'i':rng.integers(0,100,(500,2)),'u':X(500,64)})
case('ScatterElements','y = ScatterElements<axis=1>(x,i,u)',{'x':X(500,500),'i':rng.integers(0,500,(500,100)),'u':X(500,100)})
case('DepthToSpace','y = DepthToSpace<blocksize=2>(x)',{'x':X(1,64,112,112)})
case('SpaceToDepth','y = SpaceToDepth<blocksize=2>(x)',{'x':X(1,16,224,224)})
case('TopK 100 of 8400','y,i = TopK<axis=-1>(x,k)',{'x':X(1,80,8400)},{'k':whole(100)})
case('TopK 1000 of 1M','y,i = TopK<axis=-1>(x,k)',{'x':X(1,1000000)},{'k':whole(1000)})
case('NonZero','y = NonZero(x)',{'x':(rng.random((1000,300))>.9)},out='int64[] y')
case('OneHot','y = OneHot(i,d,v)',{'i':rng.integers(0,1000,256)},{'d':whole(1000)[0],'v':np.array([0,1],F)})
case('NMS 2000','y = NonMaxSuppression(b,s,m,t,q)',{'b':np.sort(rng.random((1,2000,4)).astype(F),-1)[...,[0,1,2,3]],'s':rng.random((1,1,2000)).astype(F)},{'m':whole(200),'t':np.array([.5],F),'q':np.array([.3],F)},'int64[] y')
case('GridSample','y = GridSample(x,g)',{'x':X(1,16,64,64),'g':rng.uniform(-1,1,(1,64,64,2)).astype(F)},opset=16)
case('RoiAlign','y = RoiAlign<output_height=7,output_width=7,spatial_scale=0.25,sampling_ratio=2>(x,r,i)',{'x':X(1,64,50,50),'r':np.sort(rng.random((100,4)).astype(F)*200,-1)[:,[0,1,2,3]],'i':np.zeros(100,np.int64)},opset=16)
# recurrent, attention
case('LSTM 50x256','y,a,b = LSTM<hidden_size=256>(x,w,r)',{'x':X(50,1,128)},{'w':W(1,1024,128),'r':W(1,1024,256)})
case('LSTM bi batch8','y,a,b = LSTM<hidden_size=128,direction="bidirectional">(x,w,r)',{'x':X(40,8,64)},{'w':W(2,512,64),'r':W(2,512,128)})
case('GRU 50x256','y,a = GRU<hidden_size=256,linear_before_reset=1>(x,w,r)',{'x':X(50,1,128)},{'w':W(1,768,128),'r':W(1,768,256)})
case('attention 12x128x64','t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q,t) m = Mul(s,c) p = Softmax<axis=-1>(m) y = MatMul(p,v)',{'q':X(1,12,128,64),'k':X(1,12,128,64),'v':X(1,12,128,64)},{'c':F(.125)})
case('attention 8x1024x40','t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q,t) m = Mul(s,c) p = Softmax<axis=-1>(m) y = MatMul(p,v)',{'q':X(1,8,1024,40),'k':X(1,8,1024,40),'v':X(1,8,1024,40)},{'c':F(.158)})
case('attention window 64x3x49x32','t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q,t) m = Mul(s,c) n = Add(m,bias) p = Softmax<axis=-1>(n) y = MatMul(p,v)',{'q':X(64,3,49,32),'k':X(64,3,49,32),'v':X(64,3,49,32)},{'c':F(.18),'bias':W(1,3,49,49)})
case('attention decode 1x12x1x512','t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q,t) m = Mul(s,c) p = Softmax<axis=-1>(m) y = MatMul(p,v)',{'q':X(1,12,1,64),'k':X(1,12,512,64),'v':X(1,12,512,64)},{'c':F(.125)})
case('qkv linear+split heads','m = MatMul(x,w) a = Add(m,b) r = Reshape(a,sh) y = Transpose<perm=[2,0,3,1,4]>(r)',{'x':X(1,197,384)},{'w':W(384,1152),'b':W(1152),'sh':whole(1,197,3,6,64)})
case('swiglu mlp','a = MatMul(x,w) g = Sigmoid(a) s = Mul(a,g) b = MatMul(x,v) m = Mul(s,b) y = MatMul(m,u)',{'x':X(16,512)},{'w':W(512,1376),'v':W(512,1376),'u':W(1376,512)})
# what comes between in real models
case('TopK 5 of 1000','y,i = TopK<axis=-1>(x,k)',{'x':X(64,1000)},{'k':whole(5)})
case('Softmax 12x197x197','y = Softmax<axis=-1>(x)',{'x':X(12,197,197)})
case('RMSNorm decomposed','q = Mul(x,x) m = ReduceMean<axes=[-1]>(q) e = Add(m,eps) s = Sqrt(e) d = Div(x,s) y = Mul(d,g)',{'x':X(128,768)},{'g':W(768),'eps':F(1e-5)})
case('rotary embedding','a,b = Split<axis=-1>(x) n = Neg(b) r = Concat<axis=-1>(n,a) p = Mul(x,c) q = Mul(r,s) y = Add(p,q)',{'x':X(1,12,128,64)},{'c':W(1,1,128,64),'s':W(1,1,128,64)})
case('causal mask + softmax','m = Where(c,x,n) y = Softmax<axis=-1>(m)',{'x':X(12,128,128)},{'c':np.tril(np.ones((1,128,128),bool)),'n':F(-1e9)})
case('PRelu','y = PRelu(x,s)',{'x':B},{'s':W(64,1,1)})
case('SE block','p = GlobalAveragePool(x) a = Conv(p,u) r = Relu(a) b = Conv(r,v) g = Sigmoid(b) y = Mul(x,g)',{'x':X(1,96,56,56)},{'u':W(24,96,1,1),'v':W(96,24,1,1)})
case('decode heads of 4 queries','s = MatMul(q,k) p = Softmax<axis=-1>(s) y = MatMul(p,v)',{'q':X(1,8,4,64),'k':X(1,8,64,512),'v':X(1,8,512,64)})
case('Resize linear 4x','y = Resize<mode="linear",coordinate_transformation_mode="half_pixel">(x,,sc)',{'x':X(1,19,64,64)},{'sc':np.array([1,1,4,4],F)})
case('Pad edge','y = Pad<mode="edge">(x,p)',{'x':X(1,64,56,56)},{'p':whole(0,0,2,2,0,0,2,2)})
case('AvgPool 3x3 s2','y = AveragePool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(x)',{'x':B})
case('Concat of 4 upsampled','u = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">(x,,sc) y = Concat<axis=1>(z,u)',{'x':X(1,64,28,28),'z':X(1,64,56,56)},{'sc':np.array([1,1,2,2],F)})
resnext(32,128,56)
resnext(32,512,14,1024)
resnext(4,64,56)
resnext(8,128,28)
resnext(16,256,14)
chain('conv3d chain 16','a = Conv<pads=[1,1,1,1,1,1]>(x,w1,b1) b = Relu(a) c = Conv<pads=[1,1,1,1,1,1]>(b,w2,b2) d = Relu(c) y = MaxPool<kernel_shape=[2,2,2],strides=[2,2,2]>(d)',X(1,1,16,48,48),{'w1':W(16,1,3,3,3),'b1':W(16),'w2':W(32,16,3,3,3),'b2':W(32)})
chain('conv3d r(2+1)d','a = Conv<pads=[0,1,1,0,1,1]>(x,w1,b1) b = Relu(a) c = Conv<pads=[1,0,0,1,0,0]>(b,w2,b2) y = Relu(c)',X(1,64,8,28,28),{'w1':W(144,64,1,3,3),'b1':W(144),'w2':W(64,144,3,1,1),'b2':W(64)})
chain('conv pool conv','a = Conv<pads=[1,1,1,1]>(x,w1,b1) b = Relu(a) p = MaxPool<kernel_shape=[3,3],strides=[2,2],pads=[1,1,1,1]>(b) c = Conv<pads=[1,1,1,1]>(p,w2,b2) y = Relu(c)',X(1,16,112,112),{'w1':W(64,16,3,3),'b1':W(64),'w2':W(64,64,3,3),'b2':W(64)})
chain('upsample concat conv (unet)','a = Conv<pads=[1,1,1,1]>(x,w1,b1) b = Relu(a) p = MaxPool<kernel_shape=[2,2],strides=[2,2]>(b) c = Conv<pads=[1,1,1,1]>(p,w2,b2) u = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">(c,,sc) k = Concat<axis=1>(u,b) y = Conv<pads=[1,1,1,1]>(k,w3,b3)',X(1,16,64,64),{'w1':W(32,16,3,3),'b1':W(32),'w2':W(32,32,3,3),'b2':W(32),'w3':W(32,64,3,3),'b3':W(32),'sc':np.array([1,1,2,2],F)})
chain('convT chain','a = Conv<pads=[1,1,1,1]>(x,w1,b1) b = Relu(a) c = ConvTranspose<strides=[2,2],pads=[1,1,1,1]>(b,w2) d = Relu(c) y = Conv<pads=[1,1,1,1]>(d,w3,b3)',X(1,64,28,28),{'w1':W(64,64,3,3),'b1':W(64),'w2':W(64,32,4,4),'w3':W(3,32,3,3),'b3':W(3)})
chain('seg head linear resize','a = Conv(x,w1,b1) y = Resize<mode="linear",coordinate_transformation_mode="half_pixel">(a,,,sz)',X(1,128,64,64),{'w1':W(19,128,1,1),'b1':W(19),'sz':whole(1,19,256,256)})
chain('conv resize linear conv','a = Conv<pads=[1,1,1,1]>(x,w1,b1) r = Resize<mode="linear",coordinate_transformation_mode="half_pixel">(a,,sc) y = Conv<pads=[1,1,1,1]>(r,w2,b2)',X(1,32,56,56),{'w1':W(32,32,3,3),'b1':W(32),'w2':W(32,32,3,3),'b2':W(32),'sc':np.array([1,1,2,2],F)})
chain('dilated aspp','a = Conv<pads=[6,6,6,6],dilations=[6,6]>(x,w1,b1) b = Conv<pads=[12,12,12,12],dilations=[12,12]>(x,w2,b2) k = Concat<axis=1>(a,b) y = Conv(k,w3,b3)',X(1,128,33,33),{'w1':W(64,128,3,3),'b1':W(64),'w2':W(64,128,3,3),'b2':W(64),'w3':W(64,128,1,1),'b3':W(64)})
chain('densenet block',' '.join([f'n{k} = BatchNormalization(x{k},s{k},t{k},m{k},v{k}) r{k} = Relu(n{k}) a{k} = Conv(r{k},w{k}) q{k} = Relu(a{k}) c{k} = Conv<pads=[1,1,1,1]>(q{k},u{k}) x{k+1} = Concat<axis=1>(x{k},c{k})' for k in range(4)]).replace('x0,','x,')+' y = Relu(x4)',X(1,64,28,28),{**{f'{n}{k}':W(64+32*k) for k in range(4) for n in 'stm'},**{f'v{k}':np.abs(W(64+32*k))+1 for k in range(4)},**{f'w{k}':W(128,64+32*k,1,1) for k in range(4)},**{f'u{k}':W(32,128,3,3) for k in range(4)}})
chain('shuffle block','a = Conv(x,w1) r = Reshape(a,s1) t = Transpose<perm=[0,2,1,3,4]>(r) z = Reshape(t,s2) d = Conv<pads=[1,1,1,1],group=120>(z,w2) y = Conv(d,w3)',X(1,120,28,28),{'w1':W(120,120,1,1),'s1':whole(1,2,60,28,28),'s2':whole(1,120,28,28),'w2':W(120,1,3,3),'w3':W(120,120,1,1)})
chain('wav2vec conv layers','a = Conv<strides=[5]>(x,w1) n = InstanceNormalization(a,s,b) g = Erf(n) h = Mul(n,g) c = Conv<strides=[2]>(h,w2) y = Conv<strides=[2]>(c,w3)',X(1,1,16000),{'w1':W(512,1,10),'s':W(512),'b':W(512),'w2':W(256,512,3),'w3':W(256,256,3)})
chain('hifigan resblock','a = LeakyRelu<alpha=0.1>(x) c = Conv<pads=[9,9],dilations=[3]>(a,w1,b1) d = LeakyRelu<alpha=0.1>(c) e = Conv<pads=[3,3]>(d,w2,b2) y = Add(e,x)',X(1,64,4000),{'w1':W(64,64,7),'b1':W(64),'w2':W(64,64,7),'b2':W(64)})
chain('conformer conv module','t = Transpose<perm=[0,2,1]>(x) a = Conv(t,w1,b1) p,q = Split<axis=1>(a) g = Sigmoid(q) h = Mul(p,g) d = Conv<pads=[15,15],group=256>(h,w2,b2) s = Sigmoid(d) m = Mul(d,s) o = Conv(m,w3,b3) y = Transpose<perm=[0,2,1]>(o)',X(1,200,256),{'w1':W(512,256,1),'b1':W(512),'w2':W(256,1,31),'b2':W(256),'w3':W(256,256,1),'b3':W(256)})
chain('llama decode attention','q = MatMul(x,wq) k = MatMul(x,wk) v = MatMul(x,wv) q1 = Reshape(q,sh) k1 = Reshape(k,sh) v1 = Reshape(v,sh) q2 = Transpose<perm=[0,2,1,3]>(q1) k2 = Transpose<perm=[0,2,1,3]>(k1) v2 = Transpose<perm=[0,2,1,3]>(v1) K = Concat<axis=2>(pk,k2) V = Concat<axis=2>(pv,v2) kt = Transpose<perm=[0,1,3,2]>(K) s = MatMul(q2,kt) m = Mul(s,c) p = Softmax<axis=-1>(m) y = MatMul(p,V)',X(1,1,512),{'wq':W(512,512),'wk':W(512,512),'wv':W(512,512),'sh':whole(1,1,8,64),'pk':W(1,8,500,64),'pv':W(1,8,500,64),'c':F(.125)})
chain('pad reflect conv','p = Pad<mode="reflect">(x,pp) a = Conv(p,w1,b1) n = InstanceNormalization(a,s,t) y = Relu(n)',X(1,32,64,64),{'pp':whole(0,0,1,1,0,0,1,1),'w1':W(32,32,3,3),'b1':W(32),'s':W(32),'t':W(32)})
chain('gru decoder step + linear','r = Unsqueeze(x,ax) h,l = GRU<hidden_size=128>(r,w,u) s = Squeeze(l,ax) y = MatMul(s,o)',X(1,128),{'ax':whole(0),'w':W(1,384,128),'u':W(1,384,128),'o':W(128,2000)})
chain('vit patch + ln','a = Conv<strides=[16,16]>(x,w1,b1) r = Reshape(a,sh) t = Transpose<perm=[0,2,1]>(r) y = LayerNormalization(t,s,b)',X(1,3,224,224),{'w1':W(384,3,16,16),'b1':W(384),'sh':whole(1,384,196),'s':W(384),'b':W(384)})
chain('swin window partition','r = Reshape(x,s1) t = Transpose<perm=[0,1,3,2,4,5]>(r) w = Reshape(t,s2) y = MatMul(w,q)',X(1,56,56,96),{'s1':whole(1,8,7,8,7,96),'s2':whole(64,49,96),'q':W(96,288)})
chain('focus (yolov5 slices)','a = Slice(x,i00,e,ax,st) b = Slice(x,i10,e,ax,st) c = Slice(x,i01,e,ax,st) d = Slice(x,i11,e,ax,st) k = Concat<axis=1>(a,b,c,d) y = Conv<pads=[1,1,1,1]>(k,w1,b1)',X(1,3,320,320),{'i00':whole(0,0),'i10':whole(1,0),'i01':whole(0,1),'i11':whole(1,1),'e':whole(9999,9999),'ax':whole(2,3),'st':whole(2,2),'w1':W(32,12,3,3),'b1':W(32)})
chain('yolo head sigmoid reshape','a = Conv(x,w1,b1) r = Reshape(a,s1) t = Transpose<perm=[0,1,3,4,2]>(r) g = Sigmoid(t) xy,wh,cf = Split<axis=4>(g,sp) z = Mul(xy,two) w = Mul(wh,two) w2 = Pow(w,two) k = Concat<axis=4>(z,w2,cf) y = Reshape(k,s2)',X(1,256,40,40),{'w1':W(255,256,1,1),'b1':W(255),'s1':whole(1,3,85,40,40),'sp':whole(2,2,81),'two':F(2),'s2':whole(1,-1,85)})

# fmt: on


def best(run: Callable[[], object], times: int) -> float:
    """Seconds of the fastest of some runs."""
    found = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - start)
    return found


def difference(ours: Array, theirs: Array) -> str:
    """What is wrong with a result, in a few words."""
    if ours.shape != theirs.shape:
        return f"shapes {ours.shape}, {theirs.shape}"
    if ours.dtype.kind != "f":
        return "" if (ours == theirs).all() else "differs"
    largest = max(1e-30, float(np.abs(theirs).max(initial=0)))
    error = float(np.abs(ours.astype(float) - theirs).max(initial=0)) / largest
    return "" if error < 1e-4 else f"error {error:.1e}"


def measure(one: Case) -> str:
    """A line about one case."""
    data = one.model()
    own, other = sardonyx.SessionOptions(), onnxruntime.SessionOptions()
    own.intra_op_num_threads = other.intra_op_num_threads = 1
    other.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(data, other, providers=["CPUExecutionProvider"])
    ours = sardonyx.InferenceSession(data, own)
    runs = [lambda: ours.run(None, one.feeds), lambda: theirs.run(None, one.feeds)]
    remark = difference(*(np.asarray(run()[-1]) for run in runs))
    both = sum(best(run, 1) for run in runs)
    times = max(5, min(50, int(0.03 / max(both, 1e-6))))
    rounds = [[best(run, times) for run in runs] for _ in range(7)]
    a, b = (min(column) for column in zip(*rounds, strict=True))
    return f"{b / a:6.2f} {one.name:34s} ours {a * 1e6:9.1f} ort {b * 1e6:9.1f} us {remark}"


def chosen(parts: list[str]) -> Iterator[Case]:
    """Cases of which a part of the name was given; all if none was."""
    return (c for c in CASES if not parts or any(part in c.name for part in parts))


def main() -> None:
    """Print a line for each case."""
    for one in chosen(sys.argv[1:]):
        try:
            print(measure(one), flush=True)
        except Exception as error:  # a case that fails is a result, too
            print("  FAIL", one.name, repr(error)[:200], flush=True)


if __name__ == "__main__":
    main()
