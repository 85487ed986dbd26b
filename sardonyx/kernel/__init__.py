"""Kernels: typed programs of loops, written for groups of tensors.

A kernel knows its group and its target's sizes, never a model. The verifier checks each program.

Entry point: `language.builder.Builder`. Read first: `language/program.py`,
`expressions/expression.py` and `matmul/contraction.py`.
"""
