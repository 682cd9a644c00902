"""One rank that runs `mp_sync_cases.json` through its worker and names every case that fails.

    cases_client.py [FOLDER]

With $HPCSWEEP_SYNC as a worker sets it. The file is looked for in FOLDER, else in $HPCSWEEP_CASES, else in
tests/cases. Runs the cases of its world size, the uneven ones and those of dicts, with its own rank's
input; needs torch and numpy. Prints what failed; exit code 0: nothing did, 1: something, 2: it cannot run.
"""

import hashlib
import importlib
import json
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "site" / "python"))

import hpcsweep  # noqa: E402

# Inputs of uneven cases that the file lacks, because the program that it was made with was killed.
UNEVEN = {
    "uneven_list_r0_3_r1_2": [[1.0] * 3, [2.0] * 2],
    "uneven_list_r0_2_r1_3": [[2.0] * 2, [1.0] * 3],
    "uneven_scalar_vs_list": [0.5, [1.0, 2.0]],
    "uneven_np_1d": [("numpy.ndarray", "float64", [0.5, 0.25]), None],
    "uneven_tensor_1d": [("torch.Tensor", "float32", [0.5, 0.25]), None],
    "uneven_np_2d_rows": [("numpy.ndarray", "float64", [[1.0] * 3] * 2), None],
    "uneven_dtype_float_vs_int": [[1.5, 2.5], [1, 2]],
}


def main():
    for library in ("numpy", "torch"):
        try:
            importlib.import_module(library)
        except ImportError as e:
            print("cases_client: %s: install it for this Python" % e, file=sys.stderr)
            return 2
    folder = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HPCSWEEP_CASES", HERE.parent / "cases")
    cases = json.loads((Path(folder) / "mp_sync_cases.json").read_text())
    rank, world = hpcsweep.rank(), hpcsweep.world_size()
    if "RANK" in os.environ and int(os.environ["RANK"]) != rank:
        print("cases_client: RANK=%s, but the worker says %d" % (os.environ["RANK"], rank), file=sys.stderr)
        return 2
    runs = [(name(case), run_case, case) for case in cases["cases"] if case["world_size"] == world]
    runs += [(name(case), run_uneven, case) for case in cases.get("uneven", []) if case["world_size"] == world]
    runs += [("one_rank_sends_a_str", one_bad, None), ("other_key_order", other_order, None)]
    failed = 0
    for title, run, case in runs:
        problem = run(case, rank, world)
        if problem:
            failed += 1
            print("rank %d: %s: %s" % (rank, title, problem), flush=True)
    print("rank %d of %d: %d cases, %d failed" % (rank, world, len(runs), failed), flush=True)
    return 1 if failed else 0


def name(case):
    flags = [flag for flag, value in sorted((case["flags"] or {}).items()) if value]
    return "%s [%s]" % (case["case"], ", ".join(flags))


def run_case(case, rank, world):
    """What is wrong with it, or None."""
    value = build(case["input"][rank])
    if case["case"].startswith("mp_sync_dict:"):
        return run_dict(case["case"].split(":")[1], case["input"], rank)
    result = attempt(hpcsweep.mp_sync, value, **case["flags"])
    if case["promise"] is not None:
        return differs(result, case["promise"])
    # Lists of tensors have no promised result: all ranks get equal errors, or equal values.
    return equal_on_ranks(result) if case["case"].startswith("list_of_tensors") else is_equal_error(result)


def run_dict(title, inputs, rank):
    result = attempt(hpcsweep.mp_sync_dict, build(inputs[rank]))
    if title == "dict_missing_key":
        return is_equal_error(result, "b") or is_equal_error(result, "rank 1")
    if title == "dict_with_string_list":
        return is_equal_error(result)
    return differs(result, {"type": "dict", "value": joined_dict([each["value"] for each in inputs])})


def run_uneven(case, rank, world):
    inputs = []
    for each in range(world):
        given = [run[each]["input"] for run in case["repeats"] if "input" in run[each]]
        if not given and case["case"] not in UNEVEN:
            return "the file does not say what rank %d sends" % each
        inputs.append(given[0] if given else described(UNEVEN[case["case"]][each]))
    if case["case"].startswith("dict_"):
        return run_dict(case["case"], inputs, rank)
    result = attempt(hpcsweep.mp_sync, build(inputs[rank]), **case["flags"])
    if case["case"] == "uneven_np_2d_same_numel":
        return is_equal_error(result)
    if case["case"] == "uneven_dtype_float_vs_int" and isinstance(result, hpcsweep.SyncError):
        return is_equal_error(result)
    return differs(result, joined(inputs, **case["flags"]))


def one_bad(_, rank, world):
    result = attempt(hpcsweep.mp_sync, "words" if rank == world - 1 else 1.0)
    return is_equal_error(result, "rank %d" % (world - 1))


def other_order(_, rank, world):
    pairs = [("a", [1.0 + rank]), ("b", [10.0 + rank])]
    result = attempt(hpcsweep.mp_sync_dict, dict(pairs if rank % 2 else reversed(pairs)))
    tensor = {"type": "torch.Tensor", "dtype": "float32", "shape": [world]}
    wanted = {start: dict(tensor, value=[base + r for r in range(world)]) for start, base in (("a", 1.0), ("b", 10.0))}
    return differs(result, {"type": "dict", "value": wanted})


def attempt(call, *args, **kwargs):
    """The result, or the error that a sync may end with."""
    try:
        return call(*args, **kwargs)
    except hpcsweep.SyncError as e:
        return e


def joined(inputs, double_precision, concat_mp_data, return_tensor):
    """The promise for uneven inputs: all pieces in rank order."""
    import torch

    pieces = []
    for each in inputs:
        value = build(each)
        tensor = value if isinstance(value, torch.Tensor) else None
        if tensor is None:
            value = [value] if isinstance(value, (int, float)) else value
            double = torch.float64 if double_precision else None
            tensor = torch.tensor(value, dtype=double)
        pieces.append(tensor.detach())
    whole = torch.cat(pieces)
    if return_tensor:
        return describe(whole)
    return describe(whole.numpy() if inputs[0]["type"] == "numpy.ndarray" else whole.tolist())


def joined_dict(dicts):
    """The promise for dicts: values joined by key."""
    flags = {"double_precision": False, "concat_mp_data": True, "return_tensor": True}
    return {
        key: {"type": "dict", "value": joined_dict([each[key]["value"] for each in dicts])}
        if dicts[0][key]["type"] == "dict"
        else joined([each[key] for each in dicts], **flags)
        for key in dicts[0]
    }


def build(described):
    """The value that the file describes."""
    kind, value = described["type"], described.get("value")
    if kind == "NoneType":
        return None
    if kind == "dict":
        return {key: build(inner) for key, inner in value.items()}
    if kind in ("list", "tuple"):
        rows = [build(row) if isinstance(row, dict) else row for row in value]
        return rows if kind == "list" else tuple(rows)
    if kind in ("float", "int", "bool", "str"):
        return {"float": float, "int": int, "bool": bool, "str": str}[kind](value)
    import numpy

    if kind == "numpy.ndarray":
        plain = numbers(value, float if "float" in described["dtype"] else None)
        return numpy.array(plain, dtype=described["dtype"]).reshape(described["shape"])
    if kind.startswith("numpy."):
        return numpy.dtype(kind.split(".")[1].rstrip("_")).type(value)
    if kind == "torch.Tensor":
        import torch

        tensor = torch.tensor(numbers(value), dtype=getattr(torch, described["dtype"]))
        return tensor.reshape(described["shape"]).requires_grad_(described.get("requires_grad", False))
    raise ValueError("cases_client: no type `%s` is known here" % kind)


def numbers(value, kind=None):
    """Nested lists with complex numbers, and with the words that JSON has for no number."""
    if isinstance(value, list):
        return [numbers(row, kind) for row in value]
    if isinstance(value, dict):
        return complex(value["re"], value["im"])
    return kind(value) if kind else value


def described(value):
    """A description of an input of the table above."""
    if isinstance(value, tuple):
        kind, dtype, rows = value
        shape = [len(rows)] + ([len(rows[0])] if isinstance(rows[0], list) else [])
        return {"type": kind, "dtype": dtype, "shape": shape, "value": rows}
    return {"type": type(value).__name__, "value": value}


def describe(value):
    """A result as the file describes it."""
    kind = type(value).__name__
    if isinstance(value, list) and any(type(row).__name__ in ("Tensor", "ndarray", "list") for row in value):
        return {"type": "list", "per_rank": [describe(row) for row in value], "len": len(value), "value": value}
    if isinstance(value, list):
        return {"type": "list", "len": len(value), "value": value}
    if isinstance(value, dict):
        return {"type": "dict", "value": {key: describe(inner) for key, inner in value.items()}}
    if kind in ("Tensor", "ndarray"):
        home = {"Tensor": "torch.", "ndarray": "numpy."}[kind]
        dtype = str(value.dtype).replace("torch.", "")
        if getattr(value, "requires_grad", False) or str(getattr(value, "device", "cpu")) != "cpu":
            kind += " that requires grad or is on a device"
        return {"type": home + kind, "dtype": dtype, "shape": list(value.shape), "value": value.tolist()}
    return {"type": kind, "value": value}


def differs(result, promise):
    """What is wrong with a result, or None. Also 1, 1.0 and True differ."""
    if isinstance(result, Exception):
        return "error: %s" % result
    got = fitted(describe(result), promise)
    # The JSON text distinguishes numbers that are equal for Python's ==.
    wanted, got = json.dumps(promise, sort_keys=True), json.dumps(got, sort_keys=True)
    return None if wanted == got else "promised %s, got %s" % (wanted, got)


def fitted(got, promise):
    """A description with those members alone that the promise has."""
    if not isinstance(got, dict) or not isinstance(promise, dict):
        return got
    if promise.get("type") == "dict" and got.get("type") == "dict":
        inner = {key: fitted(value, promise["value"].get(key)) for key, value in got["value"].items()}
        return {"type": "dict", "value": inner}
    kept = {key: value for key, value in got.items() if key in promise}
    if "per_rank" in kept:
        rows, wanted = kept["per_rank"], promise["per_rank"]
        kept["per_rank"] = [fitted(*pair) for pair in zip(rows, wanted)] + rows[len(wanted) :]
    return kept


def is_equal_error(result, word=""):
    """None where it is the same error on every rank, and names `word`."""
    if not isinstance(result, hpcsweep.SyncError):
        return "no error, but %r" % (result,)
    if not re.search(word, str(result)):
        return "the error does not name %s: %s" % (word, result)
    return equal_on_ranks(result)


def equal_on_ranks(result):
    """None where the result, or the error, is the same on every rank. It is a sync too: the one after an error."""
    text = str(result) if isinstance(result, Exception) else json.dumps(describe(result), default=str)
    digest = int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)
    all_digests = hpcsweep.mp_sync(digest, return_tensor=False)
    return None if all_digests == [digest] * hpcsweep.world_size() else "differs among ranks; here: %s" % text


if __name__ == "__main__":
    sys.exit(main())
