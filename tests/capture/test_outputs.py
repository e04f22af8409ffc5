"""The numbers of outputs: beside torch's own arithmetic, from tensors and from the files that a command leaves."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from capture_cli import HERE, STUB_NSYS, TOY, names, profkit

from profkit.capture import outputs
from profkit.capture.options import Job, Options, Recording, Result
from profkit.capture.outputs import Raw, of_folder
from profkit.capture.profilers.torch_profiler import TorchProfiler
from profkit.capture.session import _record
from profkit.capture.workers import Recorded, Workers
from profkit.errors import ProfkitError
from profkit.model.outputs import OUTPUTS_FILE, OutputNumbers, read, write
from profkit.model.run import DigestsRecord, RunRecord
from profkit.model.workload import Layer, Step
from profkit.runs import run_dir

NSYS = {"PROFKIT_NSYS": str(STUB_NSYS)}
#: Writes two tensors of two layers where it is asked to.
PROGRAM = """
import os, pathlib, numpy as np
folder = pathlib.Path(os.environ["PROFKIT_OUTPUTS"])
np.savez(folder / "a.npz", **{"layers.0.mla/out": np.ones((2, 3), np.float32), "layers.1.mla/out": np.arange(4)})
"""


def numbers_of(**arrays: np.ndarray) -> dict[str, OutputNumbers]:
    raws = {
        k: Raw(v.dtype.name, v.shape, np.ascontiguousarray(v).reshape(-1).view(np.uint8)) for k, v in arrays.items()
    }
    return outputs.numbers(raws, lambda raw: raw)


def test_a_block_is_a_row_and_its_sum_and_norm_are_of_it_alone() -> None:
    (found,) = numbers_of(x=np.array([[[1.0, 2.0], [3.0, -3.0]], [[0.0, 0.0], [5.0, 12.0]]], np.float32)).values()
    assert (found.dtype, found.shape, found.rows, found.total_rows) == ("float32", (2, 2, 2), 1, 4)
    assert found.sums.tolist() == [3.0, 0.0, 0.0, 17.0]
    assert found.norms.tolist() == pytest.approx([math.sqrt(5), math.sqrt(18), 0.0, 13.0])
    assert (found.minimum, found.maximum, found.nonfinite) == (-3.0, 12.0, 0)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    (found,) = numbers_of(x=np.array([[1.0, np.nan], [np.inf, -np.inf]], np.float32)).values()
    assert (found.sums.tolist(), found.norms.tolist(), found.nonfinite) == ([1.0, 0.0], [1.0, 0.0], 3)
    assert (found.minimum, found.maximum) == (1.0, 1.0)
    (nothing,) = numbers_of(x=np.array([np.nan], np.float16)).values()
    assert (nothing.minimum, nothing.maximum, nothing.nonfinite) == (None, None, 1)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1,), (7,)])
def test_every_shape_has_as_many_blocks_as_rows(shape: tuple[int, ...]) -> None:
    (found,) = numbers_of(x=np.ones(shape, np.float32)).values()
    assert len(found.sums) == (1 if math.prod(shape) else 0)
    assert found.sums.sum() == math.prod(shape)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((37, 11)).astype(np.float32)
    x[3, 4] = np.nan
    whole = numbers_of(x=x)["x"]
    monkeypatch.setattr(outputs, "CHUNK", 5)
    parts = numbers_of(x=x)["x"]
    assert parts.sums == pytest.approx(whole.sums)
    assert parts.norms == pytest.approx(whole.norms)
    assert (parts.minimum, parts.maximum, parts.nonfinite) == (whole.minimum, whole.maximum, 1)


def test_more_rows_than_fit_are_merged_and_sums_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_BLOCKS", 10)
    x, y = np.arange(44.0).reshape(22, 2), np.ones((3, 4))
    found = numbers_of(x=x, y=y)
    assert sum(len(own.sums) for own in found.values()) <= 10
    assert found["x"].rows == found["y"].rows == 4
    assert found["x"].sums.tolist() == [x[i : i + 4].sum() for i in range(0, 22, 4)]
    assert (found["x"].norms ** 2).sum() == pytest.approx((x * x).sum())


def test_a_run_of_many_rows_stays_below_a_megabyte(tmp_path: Path) -> None:
    found = numbers_of(**{f"layers.{n}.mla/out": np.ones((4096, 8), np.float32) for n in range(60)})
    write(tmp_path / OUTPUTS_FILE, found)
    assert (tmp_path / OUTPUTS_FILE).stat().st_size < 1_000_000


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "int8", "bool"])
def test_every_value_of_a_dtype_is_torchs(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(outputs, "MOST_BLOCKS", 1 << 16)
    torch = pytest.importorskip("torch", reason="decodes as torch does")
    kind = getattr(torch, dtype)
    if kind.itemsize == 1:
        bits = torch.arange(2 if dtype == "bool" else 256).to(torch.uint8).view(kind)
    else:
        bits = torch.arange(1 << 16).to(torch.int32).to(torch.int16).view(kind)
    column = bits.reshape(-1, 1)
    values = column.float().double() if "float8" in dtype else column.double()
    expected = torch.where(values.isfinite(), values, 0.0).reshape(-1)
    (found,) = outputs.numbers({"x": column}, outputs.of_tensor).values()
    assert found.sums.tolist() == expected.tolist()
    assert found.nonfinite == int((~values.isfinite()).sum())


def test_a_dtype_without_numbers_has_its_digest() -> None:
    found = outputs.numbers({"x": Raw("complex64", (2,), np.zeros(16, np.uint8))}, lambda raw: raw)["x"]
    assert (found.rows, len(found.sums), len(found.digest)) == (0, 0, 64)


def test_the_file_gives_back_what_was_written(tmp_path: Path) -> None:
    found = numbers_of(x=np.arange(6.0).reshape(3, 2), empty=np.zeros((0, 4)), y=np.ones(()))
    write(tmp_path / OUTPUTS_FILE, found)
    again = read(tmp_path / OUTPUTS_FILE)
    assert list(again) == list(found) == ["empty", "x", "y"]
    for name, own in found.items():
        assert again[name].sums.tolist() == own.sums.tolist()
        assert again[name].norms.tolist() == own.norms.tolist()
        assert (again[name].digest, again[name].shape, again[name].rows) == (own.digest, own.shape, own.rows)


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut", "blocks", "type"])
def test_a_damaged_file_is_one_error(tmp_path: Path, damage: str) -> None:
    file = tmp_path / OUTPUTS_FILE
    write(file, numbers_of(x=np.ones((3, 2))))
    content = file.read_bytes()
    if damage in ("blocks", "type"):
        members = dict(np.load(file))
        members["sums"] = members["sums"][1:] if damage == "blocks" else members["sums"].astype(np.float32)
        np.savez(file, **members)
    elif damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "text": b"no zip", "cut": content[: len(content) // 2]}[damage])
    with pytest.raises(ProfkitError, match="is not as profkit writes it"):
        read(file)


def safetensors(file: Path, **tensors: tuple[str, tuple[int, ...], bytes]) -> None:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_both_kinds_of_file_give_the_digest_of_the_tensor_that_they_hold(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="digests are torch's")
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    folder = tmp_path / "one"
    folder.mkdir()
    np.savez(folder / "a.npz", x=x.numpy())
    other = tmp_path / "two"
    other.mkdir()
    half = x.bfloat16()
    bits = half.view(torch.int16).numpy().tobytes()
    safetensors(other / "a.safetensors", x=("F32", (3, 4), x.numpy().tobytes()), half=("BF16", (3, 4), bits))
    assert of_folder(folder)["x"].digest == of_folder(other)["x"].digest == outputs.of_tensor(x).digest
    assert of_folder(other)["half"].digest == outputs.of_tensor(half).digest
    assert of_folder(other)["half"].sums.tolist() == half.double().sum(-1).tolist()


def test_several_files_are_told_apart_by_their_names_and_others_are_not_looked_at(tmp_path: Path) -> None:
    for rank in range(2):
        np.savez(tmp_path / f"rank{rank}.npz", **{"layers.0/out": np.full(2, rank)})
    (tmp_path / "notes.txt").write_text("no tensors")
    assert list(of_folder(tmp_path)) == ["rank0/layers.0/out", "rank1/layers.0/out"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npz", b""),
        ("a.npz", b"PK no zip"),
        ("a.safetensors", b""),
        ("a.safetensors", (1 << 60).to_bytes(8, "little") + b"{}"),
    ],
)
def test_a_file_that_holds_no_tensors_is_one_error(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ProfkitError, match=f"The outputs in {name} cannot be read"):
        of_folder(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [("F32", (2,), b"1234"), ("F4", (1,), b"1"), ("F32", (-1,), b"1234")],
)
def test_a_tensor_that_is_not_as_long_as_it_says_is_refused(
    tmp_path: Path, entry: tuple[str, tuple[int], bytes]
) -> None:
    safetensors(tmp_path / "a.safetensors", x=entry)
    with pytest.raises(ProfkitError, match="cannot be read: x is"):
        of_folder(tmp_path)


def test_a_command_leaves_outputs_where_it_is_told_to(tmp_path: Path) -> None:
    done = profkit("capture", "-o", "run", "--", sys.executable, "-c", PROGRAM, cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    assert "outputs: 2 kept" in done.stderr
    run = run_dir.load(tmp_path / "run")
    assert run.record.digests.numbers == OUTPUTS_FILE
    assert run.outputs()["layers.1.mla/out"].sums.tolist() == [6.0]
    assert {name: own.digest for name, own in run.outputs().items()} == run.record.digests.outputs


def test_a_command_whose_outputs_cannot_be_read_is_kept_and_told_so(tmp_path: Path) -> None:
    program = "import os, pathlib; (pathlib.Path(os.environ['PROFKIT_OUTPUTS']) / 'a.npz').write_text('x')"
    done = profkit("capture", "-o", "run", "--", sys.executable, "-c", program, cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    assert "warning: outputs-not-read: The outputs in a.npz cannot be read" in done.stderr
    assert run_dir.load(tmp_path / "run").record.digests is None


def test_outputs_whose_bits_another_pass_does_not_repeat_are_named_and_said(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="a step's outputs are tensors")
    from profkit.capture.record import of_step

    steady, atomic, elsewhere = (torch.zeros(3) for _ in range(3))
    kept = {"layers.0.mla/steady": steady, "layers.0.mla/atomic": atomic, "layers.0.mla/elsewhere": elsewhere}
    step = Step([Layer(0, "mla", lambda scope: None)], refresh=lambda inputs: None, outputs=lambda: kept)
    options = Options("toy.py:TOY", profiler="torch", with_floor=False)
    job = Job(options, "torch", tmp_path)
    traced = of_step(job, step, "torch", again=lambda: atomic.add_(1e-3))
    assert traced.digests.nondeterministic == ["layers.0.mla/atomic"]
    assert read(tmp_path / OUTPUTS_FILE)["layers.0.mla/atomic"].digest == traced.digests.outputs["layers.0.mla/atomic"]
    # WHEN the untraced process differs in one more
    others = {**traced.digests.outputs, "layers.0.mla/elsewhere": "0" * 64}
    untraced = Result(record=RunRecord(trace="", digests=DigestsRecord(outputs=others)))
    own = Recorded(job, Recording(tmp_path, tmp_path / "log"), Result(record=traced), untraced)
    record = _record(Workers(options, TorchProfiler()), own, None)
    assert record.untraced_digests_equal is False
    assert record.digests.nondeterministic == ["layers.0.mla/atomic", "layers.0.mla/elsewhere"]
    (warning,) = record.warnings
    assert warning.code == "digests-not-repeatable"
    assert "2 of 3 outputs had other bits when the same step ran again, e.g. layers.0.mla/atomic" in warning.message


def test_outputs_that_do_not_name_every_layer_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="workloads run torch")
    spec = f"{HERE / 'faulty_workloads.py'}:BARE"
    done = profkit("capture", spec, "--profiler", "dispatch", "-o", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "1 layer of the workload has no output: layers.1.bare." in done.stderr
    assert "e.g. layers.1.bare/out." in done.stderr
    assert names(tmp_path) == []


def test_a_workloads_run_keeps_them_and_its_scrubbed_copy_too(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the workload has a Triton kernel")
    done = profkit("capture", TOY, "--profiler", "dispatch", "--run-bodies", "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path / "run") == ["dispatch.json", OUTPUTS_FILE, "run.json"]
    kept = run_dir.load(tmp_path / "run").outputs()
    assert [(own.dtype, own.shape, own.rows) for own in kept.values()] == [("float32", (4, 32), 1)] * 3
    done = profkit("scrub", "run", "copy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    copied = run_dir.load(tmp_path / "copy").outputs()
    assert [own.sums.tolist() for own in copied.values()] == [own.sums.tolist() for own in kept.values()]
    write(tmp_path / "run" / OUTPUTS_FILE, numbers_of(x=np.ones(1)))
    with pytest.raises(ProfkitError, match=r"outputs\.npz is of other outputs than run\.json"):
        run_dir.load(tmp_path / "run").outputs()
