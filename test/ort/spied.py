"""Which entries of ONNX Runtime's table of functions Kiln calls, where a spy ($ORT_SPY, spy.c) stands between the two."""
import gc
import os
import pathlib
import re
import tempfile

SPY = os.environ.get("ORT_SPY")
if SPY:
    os.environ["ORT_SPY_LIBRARY"] = os.path.abspath(os.environ["KILN_ORT"])
    os.environ["ORT_SPY_CALLS"] = tempfile.NamedTemporaryFile(delete=False).name
    os.environ["KILN_ORT"] = SPY

OF_GPUS = {"create_memory_info", "release_memory_info", "kernel_stream"}  # called where there is one


def declared():
    """The entries of ort/abi.h's ort_api by their places in the table."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "ort" / "abi.h").read_text()
    body = re.search(r"typedef struct ort_api \{(.*?)\n\} ort_api;", text, re.S).group(1)
    places, at = {}, 0
    for gap, n, name in re.findall(r"ort_gap gap_(\d+)(?:\[(\d+)\])?;|\(\*(\w+)\)\(", body):
        if gap:
            assert int(gap) == at, f"gap_{gap} lies at {at}"
            at += int(n or 1)
        else:
            places[at] = name
            at += 1
    return places


def called():
    """The places of the entries that were called. Nothing of Kiln's may be used afterwards."""
    import onnxruntime as ort

    gc.collect()
    ort.unregister_execution_provider_library("kiln")
    with open(os.environ["ORT_SPY_CALLS"]) as f:
        return set(map(int, f.read().split()))
