"""What onnxruntime checks when it is imported: here there is nothing to check."""

from sardonyx.api.module import asked as __getattr__  # noqa: F401 - Python calls it
from sardonyx.api.module import cuda_version as _cuda_version
from sardonyx.api.version import __version__ as version

package_name = "sardonyx"
cuda_version: str


def check_distro_info() -> None:
    """Every system is taken."""


def get_package_name_and_version_info() -> tuple[str, str, str]:
    """`package_name`, `version`, `cuda_version`."""
    return package_name, version, _cuda_version()


def check_training_module() -> tuple[bool, str, str, str]:
    """Whether there is training, which there is not, and the package's name and versions."""
    return (False, *get_package_name_and_version_info())


__all__ = [
    "check_distro_info",
    "check_training_module",
    "get_package_name_and_version_info",
    "package_name",
    "version",
]
