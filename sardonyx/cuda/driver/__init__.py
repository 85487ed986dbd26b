"""NVIDIA's driver: devices, streams, modules of kernels, addresses.

Every call of the driver goes through `driver.py`, which raises errors by name.

Entry point: `driver`, `device`. Read first: `driver.py`, `device.py` and `stream.py`.
"""
