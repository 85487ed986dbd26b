"""NVIDIA's GPU: what is there, and what of the packages for it is missing."""

from __future__ import annotations

import ctypes
from importlib.metadata import PackageNotFoundError, distributions
from importlib.util import find_spec
from pathlib import Path

from sardonyx.base import knobs
from sardonyx.base.errors import SardonyxError
from sardonyx.base.files import text_of
from sardonyx.tools.doctor.findings import Findings

_DRIVER = Path("/proc/driver/nvidia/version")
_LIBRARIES = ("nvidia-cublas", "nvidia-cudnn", "nvidia-cuda-nvrtc")


def look_at_gpu(found: Findings) -> None:
    """Driver, devices, libraries. A machine without a GPU is sound."""
    section = "GPU"
    driver = text_of(_DRIVER).splitlines()
    found.add(section, "driver", driver[0] if driver else "none is loaded")
    from sardonyx.api.providers import cuda_is_missing

    missing = cuda_is_missing()
    found.add(section, "CUDAExecutionProvider", missing or "available")
    for name, version in _installed():
        found.add(section, name, version)
    if missing:
        if driver:
            text = f"there is a driver, but the CUDA provider cannot be used: {missing}"
            (found.problem if find_spec("cuda") else found.remark)(text)
        return
    _devices(found)
    _libraries(found)


def _installed() -> list[tuple[str, str]]:
    """Packages that hold NVIDIA's libraries, with their versions."""
    found = {}
    for package in distributions():
        try:
            name = (package.metadata["Name"] or "").lower()
        except (KeyError, PackageNotFoundError):
            continue
        if name.startswith(_LIBRARIES):
            found[name] = package.version
    return sorted(found.items())


def _devices(found: Findings) -> None:
    from sardonyx.cuda.driver.device import device
    from sardonyx.cuda.driver.driver import call, interface_text

    found.add("GPU", "driver's interface", f"CUDA {interface_text()}")
    for number in range(int(call("cuDeviceGetCount"))):
        try:
            each = device(number)
            free, total = each.memory_info()
        except SardonyxError as error:
            found.problem(f"device {number}: {error}")
            continue
        text = (
            f"{each.name}, {each.architecture}, {each.processors} multiprocessors, "
            f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        )
        found.add("GPU", f"device {number}", text)


def _libraries(found: Findings) -> None:
    """Which libraries products and convolutions would use."""
    from sardonyx.cuda.driver.device import device
    from sardonyx.cuda.libraries.libraries import LibrarySettings, find_libraries

    libraries = find_libraries(device(0), LibrarySettings())
    if not knobs.get("SARDONYX_LIBRARIES"):
        found.remark("SARDONYX_LIBRARIES=0 leaves cuBLASLt and cuDNN aside")
        return
    for function, name in (("matmul", "cuBLASLt"), ("convolution", "cuDNN")):
        held = libraries.missing.get(function, "")
        found.add("GPU", name, held or "in use")
        if held:
            found.remark(f"{name} is not in use: {held}; generated kernels do its work")
    cudnn = _cudnn_version()
    if cudnn:
        found.add("GPU", "cuDNN's version", cudnn)


def _cudnn_version() -> str:
    """That of the library that is loaded; "" for none."""
    try:
        number = int(ctypes.CDLL("libcudnn.so.9").cudnnGetVersion())
    except (OSError, AttributeError):
        return ""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
