"""The kernel language: typed statements in structured control flow, their builder and verifier.

Programs name no processor: what prints them decides on instructions.

Entry point: `builder.Builder`. Read first: `program.py`, `builder.py` and `verify.py`.
"""
