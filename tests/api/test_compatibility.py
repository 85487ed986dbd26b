"""Every public name of onnxruntime is here or refused in the table, and every key is tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api import config_keys
from sardonyx.api.config_keys import RUN_KEYS, SESSION_KEYS, Key
from sardonyx.base.errors import InvalidArgument, NotFound, NotImplemented
from sardonyx.capi import _pybind_state
from tests.api.compatibility import (
    DOCUMENT,
    ROOT,
    ROWS,
    STATUSES,
    document,
    find,
    key_test,
    keys,
    listed,
    row,
)
from tests.support.session import model_of

#: Keys of section 1.5 of the reference: what onnxruntime 1.31.1 takes for CPU and CUDA.
KEYS = """
session.intra_op.allow_spinning session.inter_op.allow_spinning
session.intra_op.spin_duration_us session.inter_op.spin_duration_us
session.intra_op.spin_backoff_max session.inter_op.spin_backoff_max
session.force_spinning_stop session.dynamic_block_base session.intra_op_thread_affinities
session.use_env_allocators session.use_device_allocator_for_initializers
session.disable_prepacking session.prepack.enable_parallel
session.save_external_prepacked_constant_initializers
session.model_external_initializers_file_folder_path
session.optimized_model_external_initializers_file_name
session.optimized_model_external_initializers_min_size_in_bytes
session.use_ort_model_bytes_directly session.use_ort_model_bytes_for_initializers
session.use_memory_mapped_ort_model session.collect_node_memory_stats_to_file
session.resource_cuda_partitioning_settings session.max_shape_override
session.enable_static_workspace_preallocation optimization.disable_specified_optimizers
optimization.enable_gelu_approximation optimization.enable_cast_chain_elimination
optimization.constant_folding_max_output_size_in_bytes session.graph_optimizations_loop_level
session.disable_aot_function_inlining session.disable_quant_qdq
session.disable_double_qdq_remover session.disable_qdq_constant_folding
session.enable_quant_qdq_cleanup session.enable_dq_matmulnbits_fusion
session.qdq_matmulnbits_accuracy_level session.qdq_matmulnbits_block_size
session.qdqisint8allowed session.x64quantprecision session.disable_cpu_ep_fallback
session.record_ep_graph_assignment_info session.set_denormal_as_zero
session.strict_shape_type_inference session.allow_released_opsets_only
session.load_model_format session.save_model_format session.layer_assignment_settings
session.node_partition_config_file session.use_deterministic_compute mlas.use_lut_gemm
mlas.qnbit.force_fp32 mlas.disable_kleidiai ep.context_enable ep.context_file_path
ep.context_embed_mode ep.share_ep_contexts session.disable_model_compile
ep.cuda.fpa_intb_gemm ep.cuda.fpa_intb_profile_m ep.cuda.gemm_tactic_cache_prefix
ep.cuda.gqa_workspace_max_total_sequence_length
disable_synchronize_execution_providers gpu_graph_id memory.enable_memory_arena_shrinkage
""".split()


@pytest.mark.parametrize("name", listed())
def test_name_is_here_or_in_the_table(name: str) -> None:
    found = row(name)
    assert found is not None, f"{name} is missing: add it, or say in ROWS why not"
    assert found.status in STATUSES
    assert found.test, f"no test names {name}"
    assert (ROOT / found.test.partition("::")[0]).is_file()
    if found.status == "refused":
        assert found.note
        assert (find(name) is None) == found.note.startswith("AttributeError")


@pytest.mark.parametrize(
    ("name", "number"), [(name, k) for name, k in listed().items() if k is not None]
)
def test_number_of_a_member(name: str, number: int) -> None:
    kind, _, member = name.partition(".")
    assert int(getattr(getattr(sardonyx, kind), member)) == number


def test_the_table_has_no_other_names() -> None:
    assert not set(ROWS) - set(listed())


def test_the_document_is_what_the_table_says() -> None:
    text = "docs/compatibility.md is old: run python -m tests.api.compatibility"
    assert _without_tests(DOCUMENT.read_text()) == _without_tests(document()), text


def _without_tests(text: str) -> list[str]:
    """Which test names a name first changes with every new test: the next writing says."""
    return [line.rpartition(" | ")[0] or line for line in text.splitlines()]


def test_every_key_is_known() -> None:
    assert not set(KEYS) - set(SESSION_KEYS) - set(RUN_KEYS)


def _add(kind: str, name: str, value: str) -> None:
    if kind == "session":
        options = sardonyx.SessionOptions()
        options.add_session_config_entry(name, value)
        assert options.get_session_config_entry(name) == value
    else:
        sardonyx.RunOptions().add_run_config_entry(name, value)


@pytest.mark.parametrize(("kind", "name", "key"), [*keys()])
def test_key(kind: str, name: str, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(config_keys, "note", lambda what, reason: noted.append(reason))
    other = "somethingelse"
    if key.effect == "acts":
        assert key_test(name) != "tests/api/test_compatibility.py", "no test names the key"
        return
    for value in key.done:
        _add(kind, name, value)
    assert noted == []
    if key.effect == "refused":
        with pytest.raises(NotImplemented, match="not supported"):
            _add(kind, name, other)
        return
    _add(kind, name, other)
    assert noted == [key.reason]


# -- small things that no other test names -------------------------------------------------------


def session() -> sardonyx.InferenceSession:
    text = "g (float[n, 2] x) => (float[n, 2] y) { y = Add(x, b) }"
    return sardonyx.InferenceSession(model_of(text, {"b": np.ones((1, 2), np.float32)}))


def test_functions_of_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert sardonyx.get_version_string() == sardonyx.version == sardonyx.__version__
    assert sardonyx.package_name == "sardonyx" and isinstance(sardonyx.cuda_version, str)
    assert sardonyx.version in sardonyx.get_build_info()
    assert sardonyx.get_all_providers()[-1] == "CPUExecutionProvider"
    assert sardonyx.import_capi_exception is None
    assert sardonyx.has_collective_ops() is False
    sardonyx.print_debug_info()
    assert "CPUExecutionProvider" in capsys.readouterr().out
    sardonyx.enable_telemetry_events()
    sardonyx.disable_telemetry_events()
    sardonyx.preload_dlls(cuda=False, directory="nowhere")
    sardonyx.set_default_logger_verbosity(0)
    with pytest.raises(NotFound):
        sardonyx.unregister_execution_provider_library("none")
    validation = sardonyx.onnxruntime_validation
    validation.check_distro_info()
    names = ("sardonyx", sardonyx.version, sardonyx.cuda_version)
    assert validation.get_package_name_and_version_info() == names
    assert validation.check_training_module() == (False, *names)


def test_facts_of_sessions() -> None:
    made = session()
    assert isinstance(made.get_inputs()[0], sardonyx.NodeArg)
    assert isinstance(made.get_modelmeta(), sardonyx.ModelMetadata)
    assert isinstance(made.get_input_epdevices()[0], sardonyx.OrtEpDevice)
    assert isinstance(made.get_input_epdevices()[0].device, sardonyx.OrtHardwareDevice)
    assert isinstance(made.io_binding()._iobinding, sardonyx.SessionIOBinding)
    assert isinstance(made.io_binding(), sardonyx.IOBinding)
    made.enable_fallback()
    made.disable_fallback()
    made.set_ep_dynamic_options({})
    with pytest.raises(InvalidArgument, match="no dynamic options"):
        made.set_ep_dynamic_options({"a": "b"})


def test_assigned_nodes() -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    text = "g (float[n] x) => (float[n] y) { y = Exp(x) }"
    model = model_of(text).SerializeToString()
    (graph,) = sardonyx.InferenceSession(model, options).get_provider_graph_assignment_info()
    assert isinstance(graph, sardonyx.OrtEpAssignedSubgraph)
    assert graph.ep_name == "CPUExecutionProvider"
    (node,) = graph.get_nodes()
    assert isinstance(node, sardonyx.OrtEpAssignedNode)
    assert (node.op_type, node.domain) == ("Exp", "")


def test_values_of_classes() -> None:
    info = sardonyx.OrtExternalInitializerInfo("w.bin", 3, 4)
    assert (info.filepath, info.file_offset, info.byte_size) == ("w.bin", 3, 4)
    assert sardonyx.OrtEpContextData().read() == b"" and sardonyx.OrtEpContextData().size == 0
    buffer = sardonyx.OrtEpContextDataBuffer()
    assert (buffer.is_allocated, buffer.max_size, buffer.size) == (False, 0, 0)
    for call in (lambda: buffer.allocate(3), lambda: buffer.write(b"x")):
        with pytest.raises(NotImplemented):
            call()
    assert hasattr(sardonyx.OrtSyncStream, "get_handle")
    shared = _pybind_state.get_default_session_options()
    assert shared is _pybind_state.get_default_session_options()
    assert isinstance(shared, sardonyx.SessionOptions)
    assert _pybind_state.ArenaExtendStrategy.kSameAsRequested == 1


def test_devices_and_arenas() -> None:
    made = session()
    (device,) = made.get_input_epdevices()
    assert device.ep_metadata == {"version": sardonyx.version} and device.ep_options == {}
    assert device.ep_vendor == "sardonyx"
    hardware = device.device
    assert hardware.type == sardonyx.OrtHardwareDeviceType.CPU
    assert (hardware.vendor, hardware.vendor_id) == ("", 0)
    (inside,), (outside,) = made.get_input_memory_infos(), made.get_output_memory_infos()
    for info in (inside, outside, device.memory_info(sardonyx.OrtDeviceMemoryType.DEFAULT)):
        assert (info.name, info.device_id, info.mem_type) == ("Cpu", 0, 0)
        assert info.allocator_type == sardonyx.OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    assert sardonyx.OrtDeviceVendorId.NVIDIA == 0x10DE
    assert sardonyx.OrtSparseFormat.ORT_SPARSE_CSRC == 2
    arena = sardonyx.OrtArenaCfg({"max_mem": 5})
    assert (arena.max_mem, arena.arena_extend_strategy) == (5, -1)
    assert (arena.initial_chunk_size_bytes, arena.max_dead_bytes_per_chunk) == (-1, -1)
    arena.initial_growth_chunk_size_bytes = arena.max_power_of_two_extend_bytes = 8
    assert arena.values["max_power_of_two_extend_bytes"] == 8
    with pytest.raises(AttributeError):
        arena.nonsense = 3
    options = sardonyx.SessionOptions()
    assert options.use_per_session_threads and not options.enable_profiling
    assert options.profile_file_prefix == "onnxruntime_profile_"
    options.add_provider_for_devices(sardonyx.get_ep_devices()[:1], {})
    assert options.has_providers()


def test_errors_of_the_compiled_module() -> None:
    kinds = [
        _pybind_state.DeviceReset, _pybind_state.ModelLoaded,
        _pybind_state.ModelRequiresCompilation, _pybind_state.NoModel,
    ]  # fmt: skip
    assert all(issubclass(kind, Exception) for kind in kinds)


def test_values_in_vectors_and_views() -> None:
    made = session()
    value = made.create_ortvalue_from_shape_and_type([1, 2], np.float32, "cpu")
    value.update_inplace(np.ones((1, 2), np.float32))
    found = _pybind_state.OrtValueVector()
    device = sardonyx.OrtDevice.make("cpu", 0)
    made.run_with_ortvaluevector(None, ["x"], [value], ["y"], found, [device])
    np.testing.assert_array_equal(found[0].numpy(), [[2, 2]])
    ones, at = np.ones(1, np.float32), np.array([1])
    coo = sardonyx.SparseTensor.sparse_coo_from_numpy(np.array([3]), ones, at, device)
    assert isinstance(coo.as_coo_view(), _pybind_state.SparseCooView)
    csr = sardonyx.SparseTensor.sparse_csr_from_numpy(
        np.array([1, 3]), ones, at, np.array([0, 1]), device
    )
    assert isinstance(csr.as_csrc_view(), _pybind_state.SparseCsrView)


def test_what_clients_take_from_inside() -> None:
    made = session()
    assert made._sess.inputs_meta[0].name == "x" and made._sess.outputs_meta[0].name == "y"
    assert made._sess.model_meta == made.get_modelmeta()
    assert made._sess.overridable_initializers == made.get_overridable_initializers()
    assert made._sess.session_options is made.get_session_options() is made._sess_options
    assert made._sess.input_meminfos[0].name == made._sess.output_meminfos[0].name == "Cpu"
    assert made._sess.input_epdevices[0].ep_name == "CPUExecutionProvider"
    assert made._model_path is None
    x = np.ones((1, 2), np.float32)
    value = sardonyx.OrtValue.ortvalue_from_numpy(x)
    found: list[Any] = made._sess.run(["y"], {"x": value._ortvalue}, None)
    np.testing.assert_array_equal(found[0], x + 1)
    assert value._get_c_value() is value
    device = sardonyx.OrtDevice.make("cpu", 0)
    assert device._get_c_device() is device._ort_device is device
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    made._sess.run_with_iobinding(binding._iobinding, None)
    (result,) = binding.get_outputs_as_ortvaluevector().to_dlpacks(sardonyx.OrtValue.from_dlpack)
    np.testing.assert_array_equal(result.numpy(), x + 1)
    assert "dltensor" in repr(value.to_dlpack())
    sparse = sardonyx.SparseTensor.sparse_coo_from_numpy(
        np.array([3]), np.ones(1, np.float32), np.array([1]), device
    )
    assert sparse._get_c_tensor() is sparse
