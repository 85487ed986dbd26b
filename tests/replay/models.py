"""The models whose digests are kept: small ones of the tests, and published graphs."""

from collections.abc import Callable
from pathlib import Path

from tests.engine import networks
from tests.replay.digests import Row, rows
from tests.support.weightless import fill

_ROOT = Path(__file__).parents[2]
#: Graphs that lie beside the checkout.
SHARED = _ROOT.parent / "shared"
_TESTS = {
    "perceptron": networks.perceptron,
    "convolutional": networks.convolutional,
    "transformer": networks.transformer,
    "decoder_step": networks.decoder_step,
}
#: One or two graphs of each family of the zoo, of both exporters.
_ZOO = (
    "albert_base bart_base_step bigbird_base dac_decoder demucs_denoise dlrm_bag "
    "ft_transformer_b64 gcn gemma3_step "
    "ghostnet hiera_tiny lstm_forecast mamba_prefill mistral_prefill mobilevitv2 "
    "r2plus1d rnnt_joint_step ssd_mobilenetv3 stft_vad yolov8n"
).split()


def models(folder: Path) -> dict[str, Callable[[], Path]]:
    """Name -> what makes the model's file below `folder`; published ones where they are."""
    found: dict[str, Callable[[], Path]] = {}
    for name, build in _TESTS.items():
        found[f"tests/{name}"] = lambda name=name, build=build: _written(build(), folder / name)
    for path in sorted((_ROOT / "tests" / "plan" / "graphs").glob("*.onnx")):
        found[f"graphs/{path.stem}"] = lambda path=path: fill(path, folder / "graphs" / path.stem)
    for path in sorted((SHARED / "models").glob("*.onnx")):
        found[f"models/{path.stem}"] = lambda path=path: fill(path, folder / "models" / path.stem)
    for name in _ZOO if (SHARED / "zoo.tar.xz").exists() else ():
        found[f"zoo/{name}"] = lambda name=name: fill(_of_zoo(name, folder), folder / name)
    return found


def _written(model, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _of_zoo(name: str, folder: Path) -> Path:
    import tarfile

    own = folder / "zoo" / name  # several processes unpack
    with tarfile.open(SHARED / "zoo.tar.xz") as archive:
        archive.extract(f"{name}.onnx", own, filter="data")
    return own / f"{name}.onnx"


def rows_of(work: tuple[str, str, list[str]]) -> list[Row]:
    """The rows of a model, a folder for its file, and targets; a process of its own may do it."""
    name, folder, targets = work
    return list(rows(name, models(Path(folder))[name](), targets))
