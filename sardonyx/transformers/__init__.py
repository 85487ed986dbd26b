"""Parts of onnxruntime.transformers that programs import: types of feeds, and the optimiser.

See docs/optimize.md. What else is there, such as its scripts for single models, is not here.
"""
