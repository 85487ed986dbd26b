"""Kernel programs become LLVM IR, machine code and PTX.

`compile.py` alone imports llvmlite. Equal programs give equal text.

Entry point: `module.emit_module`. Read first: `module.py`, `emit.py` and `math.py`.
"""
