"""The answers of a worker of one rank, for programs that have no worker.

The rules are those of `mp_sync` everywhere: plain floats become float32 unless double precision is asked
for, which turns all but tensors into float64; a single number becomes a list of one.
"""

import math
from typing import List

from .channel import SyncError
from .values import PARTS, Item, pack, unpack

HINT = "numbers, lists of numbers, arrays and tensors can be synced"


def gather(items: List[Item], double_precision: bool, return_tensor: bool) -> List[Item]:
    """Each value as rank 0 of 1 gets it."""
    refuse(items)
    return [_promised(item, double_precision, return_tensor) for item in items]


def reduce(items: List[Item], how: str, nan: str) -> List[Item]:
    """Each value reduced over itself, number by number."""
    refuse(items)
    return [_reduced(item, how, nan) for item in items]


def refuse(items: List[Item]) -> None:
    """The error of the first value that cannot be synced."""
    for item in items:
        if item.error is not None:
            raise SyncError(_where(item) + item.error, HINT)
        refuse_complex([item])


def refuse_complex(items: List[Item]) -> None:
    """The error of the first rank whose value has complex numbers."""
    for rank, item in enumerate(items):
        if item.dtype in PARTS:
            raise SyncError(
                "%scomplex numbers cannot be synced: `%s` on rank %d" % (_where(item), item.dtype, rank),
                "sync the real and the imaginary parts by themselves",
            )


def _where(item: Item) -> str:
    return "`%s`: " % ".".join(item.key) if item.key else ""


def promised(item: Item, double_precision: bool) -> str:
    """The type that the numbers of a value become."""
    if item.form != "tensor" and double_precision:
        return "float64"
    return "float32" if item.form in ("scalar", "list") and item.dtype == "float64" else item.dtype


def _promised(item: Item, double_precision: bool, return_tensor: bool) -> Item:
    dtype = promised(item, double_precision)
    # Always a copy: the answer of a worker never shares the caller's memory.
    data = item.data if dtype == item.dtype else pack(unpack(item.data, item.dtype), dtype)
    form = "tensor" if return_tensor else "array" if item.form == "array" else "list"
    return Item(form, dtype, item.shape or [1], bytearray(data), item.key)


def _reduced(item: Item, how: str, nan: str) -> Item:
    numbers = unpack(item.data, item.dtype)
    is_there = item.weight is None or item.weight > 0
    if nan == "error" and is_there and any(map(math.isnan, numbers)):
        raise SyncError("`%s`: NaN on rank 0" % ".".join(item.key))
    dtype = item.dtype
    if "float" not in dtype:
        # Integers stay integers, except the minimum of no values.
        dtype = "int64" if how == "sum" else dtype if how in ("min", "max") and is_there else "float64"
    left_out = [not is_there or (nan == "ignore" and math.isnan(number)) for number in numbers]
    if how == "sum":
        results = [0 if out else number for number, out in zip(numbers, left_out)]
    elif how == "variance":
        results = [math.nan if out else float(number) - number for number, out in zip(numbers, left_out)]
    else:
        results = [math.nan if out else number for number, out in zip(numbers, left_out)]
    return Item(item.form, dtype, item.shape, bytearray(pack(results, dtype)), item.key)
