"""What onnxruntime checks when it is imported: here there is nothing to check."""

from sardonyx.api.version import __version__ as version

package_name = "sardonyx"
cuda_version = ""

__all__ = ["cuda_version", "package_name", "version"]
