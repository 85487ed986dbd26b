"""ONNX models, compiled through LLVM, at the speed of the hardware."""
