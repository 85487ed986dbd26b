"""Memory of a device that other libraries have too: DLPack, `__cuda_array_interface__`, torch.

What others hold stays until they let it go.

Entry point: `exchange`. Read first: `exchange.py`, `torch_tensors.py` and `lending.py`.
"""
