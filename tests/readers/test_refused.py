"""Files that cannot carry layers are recognised, and the message says what to record instead."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from profkit.errors import Exit, ProfkitError
from profkit.readers import read

KERN_SUM = '"Time (%)","Total Time (ns)","Instances","Avg (ns)","Med (ns)","Min (ns)","Max (ns)","StdDev (ns)","Name"'
GPU_TRACE = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,Device,Ctx,Strm,Name"
PROJECTION = "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Style,PID,TID,NumGPUOps,RangeStack"
PREAMBLE = "NOTICE: Existing SQLite export found: x.sqlite\nProcessing [x.sqlite] with [cuda_gpu_kern_sum.py]... \n\n"
LEGACY_EVENT = {"ph": "X", "ts": "1", "dur": "2", "name": "k", "args": {"BeginNs": "1", "EndNs": "2"}}
LEGACY = {"traceEvents": [{}, {"ph": "M", "pid": 2, "args": {"name": "HIP"}}, LEGACY_EVENT]}
PROTON = [{"children": [], "frame": {"name": "ROOT", "type": "function"}, "metrics": {"time (ns)": 1}}, {"CUDA": {}}]
MANIFEST = [{"file": "bs_32_rank0.json.gz", "batch_size": 32, "mode": "FULL"}]


@pytest.mark.parametrize(
    ("text", "reason", "advice"),
    [
        (KERN_SUM, "table of nsys stats", "nsys export -t sqlite"),
        (PREAMBLE + KERN_SUM, "table of nsys stats", "nsys export -t sqlite"),
        (KERN_SUM.replace("(ns)", "(us)"), "table of nsys stats", "nsys export -t sqlite"),
        (GPU_TRACE, "table of nsys stats", "nsys export -t sqlite"),
        (PROJECTION, "table of nsys stats", "nsys export -t sqlite"),
        ('"Name","Calls","TotalDurationNs","AverageNs","Percentage"', "sums per kernel or call", "kernel_trace.csv"),
        ('"Name","Calls","TotalDurationNs","AverageNs","MinNs","StdDev"', "sums per kernel or call", "rocprofv3"),
        ('"Kind","Operation","Agent_Id","Start_Timestamp","End_Timestamp"', "without kernels", "kernel_trace.csv"),
        ('"Node_Id","Logical_Node_Id","Agent_Type","Product_Name"', "without kernels", "kernel_trace.csv"),
        ("Index,KernelName,gpu-id,queue-id,pid,tid,grd,wgr", "not their times", "rocprofv3 --kernel-trace"),
        (json.dumps(LEGACY), "JSON of the legacy rocprof", "results.csv"),
        (json.dumps(PROTON), "tree of Triton's Proton", "torch.profiler"),
        (json.dumps(MANIFEST), "lists capture traces", "files that it names"),
        ("{}", "of no format that profkit knows", "profkit reads nsys reports"),
        ("[]", "of no format that profkit knows", "torch.profiler traces"),
        ("a,b\n1,2\n", "of no format that profkit knows", "rocprofv3 output"),
        ("\x00\x01", "of no format that profkit knows", "profkit reads nsys reports"),
        ("  \n", "is empty", "profkit reads nsys reports"),
    ],
)
def test_refused_text(tmp_path: Path, text: str, reason: str, advice: str) -> None:
    # GIVEN a name that says nothing, plain and gzipped
    for data in (text.encode(), gzip.compress(text.encode())):
        path = tmp_path / "trace.dat"
        path.write_bytes(data)

        with pytest.raises(ProfkitError) as caught:
            read(path)

        assert str(path) in str(caught.value)
        assert reason in str(caught.value)
        assert advice in str(caught.value)
        assert caught.value.exit_code == Exit.ERROR


def test_refused_databases(tmp_path: Path) -> None:
    for name, column, reason in (("KERN", "BeginNs", "database of the legacy rocprof"), ("t", "a", "of no format")):
        path = tmp_path / f"{name}.db"
        database = sqlite3.connect(path)
        database.execute(f'CREATE TABLE {name} ("{column}" INTEGER, "dev-id" INTEGER)')
        database.close()

        with pytest.raises(ProfkitError, match=reason):
            read(path)
