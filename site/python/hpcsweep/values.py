"""Values of Python, numpy and torch as the numbers that travel, and back.

Neither numpy nor torch is imported to look at a value: who has a tensor has imported torch.
"""

import ctypes
import struct
import sys
from array import array
from typing import Any, List, Optional, Sequence, Tuple

# Bytes of one number, and its letter in `array`; the other types are packed by hand.
SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2,
    "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
LETTERS = {"uint8": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}
PARTS = {"complex64": "float32", "complex128": "float64"}


class Unsendable(Exception):
    """Why a value cannot be sent."""


class Item:
    """One value on its way: numbers in C order, or why there are none."""

    def __init__(self, form="", dtype="", shape=(), data=b"", key=(), device=None, error=None, owner=None):
        self.form = form  # type: str
        self.dtype = dtype  # type: str
        self.shape = list(shape)  # type: List[int]
        self.data = data  # type: Any # bytes or a view of the numbers themselves
        self.key = list(key)  # type: List[str]
        self.device = device  # type: Any # where a tensor was
        self.error = error  # type: Optional[str]
        self.weight = None  # type: Optional[float]
        self.owner = owner  # keeps the numbers alive while `data` is a view

    def head(self) -> dict:
        """Its description in the head of the request."""
        if self.error is not None:
            return {"key": self.key, "error": self.error}
        head = {"key": self.key, "form": self.form, "dtype": self.dtype, "shape": self.shape}
        head["bytes"] = len(self.data)
        if self.weight is not None:
            head["weight"] = self.weight
        return head


def encode(value: Any, key: Sequence[str] = (), double_precision: bool = False) -> Item:
    """A value ready to be sent. It never raises: the other ranks have to hear what is wrong with it."""
    try:
        item = _encode(value, double_precision)
    except Unsendable as e:
        item = Item(error=str(e))
    except Exception as e:
        item = Item(error="cannot sync a `%s`: %s: %s" % (_name(value), type(e).__name__, e))
    item.key = list(key)
    return item


def decode(item: Item, device: Any = None) -> Any:
    """A value that came: a tensor (on `device`), an array, or (lists of) numbers."""
    if item.form == "tensor":
        torch = library("torch", load=True)
        if torch is not None:
            return to_tensor(torch, item, device)
    if item.form in ("tensor", "array") and item.dtype != "bfloat16":
        numpy = library("numpy", load=True)
        if numpy is not None and len(item.data) == 0:
            return numpy.empty(item.shape, item.dtype)
        if numpy is not None:
            return numpy.frombuffer(item.data, item.dtype).reshape(item.shape)
    return nest(unpack(item.data, item.dtype), item.shape)


def library(name: str, load: bool = False) -> Any:
    """torch or numpy where it is imported; with `load`, where it can be imported."""
    module = sys.modules.get(name)
    if module is None and load and name not in sys.modules:
        try:
            module = __import__(name)
        except (ImportError, OSError):
            # An installation without its shared libraries does not count as one.
            sys.modules.pop(name, None)
    return module


def pack(values: Sequence[Any], dtype: str) -> bytes:
    """Numbers of Python as numbers of a type; what is too large for a float becomes infinite."""
    if dtype == "bool":
        return bytes(map(bool, values))
    if dtype == "float16":
        return struct.pack("<%de" % len(values), *values)
    if dtype == "bfloat16":
        return array("H", [word >> 16 for word in array("I", array("f", values).tobytes())]).tobytes()
    if dtype in PARTS:
        return pack([part for value in values for part in (value.real, value.imag)], PARTS[dtype])
    return array(LETTERS[dtype], values).tobytes()


def unpack(data: Any, dtype: str) -> List[Any]:
    """The numbers as numbers of Python."""
    if dtype == "bool":
        return [byte != 0 for byte in bytes(data)]
    if dtype == "float16":
        return list(struct.unpack("<%de" % (len(data) // 2), data))
    if dtype == "bfloat16":
        return unpack(array("I", [word << 16 for word in array("H", bytes(data))]).tobytes(), "float32")
    if dtype in PARTS:
        parts = unpack(data, PARTS[dtype])
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2])]
    return array(LETTERS[dtype], bytes(data)).tolist()


def nest(values: List[Any], shape: Sequence[int]) -> Any:
    """A flat list as lists of lists; a single number for no dimensions."""
    if not shape:
        return values[0]
    for length in reversed(shape[1:]):
        rows = len(values) // length if length else 0
        values = [values[row * length : (row + 1) * length] for row in range(rows)]
    # Rows without values leave no trace in a flat list.
    return values if 0 not in shape[1:] else _empty(shape)


def _empty(shape: Sequence[int]) -> list:
    return [_empty(shape[1:]) for _ in range(shape[0])] if len(shape) > 1 else []


def _encode(value: Any, double_precision: bool) -> Item:
    torch, numpy = library("torch"), library("numpy")
    if isinstance(value, getattr(torch, "Tensor", ())):
        return _from_tensor(torch, value)
    if isinstance(value, getattr(numpy, "generic", ())):
        return _from_array(numpy, numpy.asarray(value), "number", value)
    if isinstance(value, getattr(numpy, "ndarray", ())):
        return _from_array(numpy, value, "array", value)
    if isinstance(value, (list, tuple)):
        return _from_list(value, double_precision)
    if isinstance(value, (bool, int, float)):
        return _plain("scalar", [value], [])
    raise Unsendable("cannot sync a `%s`" % _name(value))


def _name(value: Any) -> str:
    kind = type(value)
    home = kind.__module__.split(".")[0]
    return kind.__name__ if home == "builtins" else "%s.%s" % (home, kind.__name__)


def _from_tensor(torch: Any, value: Any) -> Item:
    dtype = str(value.dtype).replace("torch.", "")
    if dtype not in SIZES or value.layout != torch.strided or value.is_quantized:
        raise Unsendable("cannot sync a `torch.Tensor` of dtype %s and layout %s" % (dtype, value.layout))
    flat = value.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
    count = flat.numel() * flat.element_size()
    # Without numpy, whose absence is no fault: a view of the tensor's memory.
    data = memoryview((ctypes.c_char * count).from_address(flat.data_ptr())) if count else b""
    return Item("tensor", dtype, value.shape, data, device=value.device, owner=flat)


def to_tensor(torch: Any, item: Item, device: Any) -> Any:
    """The numbers of an item as a tensor, which shares its memory if it stays on the processor."""
    dtype = getattr(torch, item.dtype)
    if len(item.data) == 0:
        return torch.empty(item.shape, dtype=dtype, device=device)
    tensor = torch.frombuffer(item.data, dtype=dtype).reshape(item.shape)
    return tensor if device is None else tensor.to(device)


def _from_array(numpy: Any, value: Any, form: str, original: Any) -> Item:
    if isinstance(value, numpy.ma.MaskedArray):
        raise Unsendable("cannot sync a masked array: its mask would be lost")
    dtype = value.dtype.name
    if dtype not in SIZES:
        raise Unsendable("cannot sync a `%s` of dtype %s" % (_name(original), value.dtype))
    native = numpy.ascontiguousarray(value, value.dtype.newbyteorder("=")).reshape(-1)
    return Item(form, dtype, value.shape, memoryview(native.view(numpy.uint8)))


def _from_list(value: Any, double_precision: bool) -> Item:
    shape, rows = [], [value]  # type: Tuple[List[int], List[Any]]
    while any(isinstance(row, (list, tuple)) for row in rows):
        lengths = {len(row) if isinstance(row, (list, tuple)) else None for row in rows}
        if len(lengths) > 1:
            raise Unsendable("cannot sync a ragged list: its rows differ in length")
        if len(shape) == 64:
            raise Unsendable("cannot sync a list of more than 64 dimensions")
        shape.extend(lengths)
        rows = [element for row in rows for element in row]
    if not set(map(type, rows)) <= {bool, int, float}:
        leaves = [_leaf(row) for row in rows]
        rows = [number for number, _ in leaves]
        kinds = {kind for _, kind in leaves}
        # Numbers of one type of an array library keep it; a mixture counts as plain numbers.
        if len(kinds) == 1 and None not in kinds:
            dtype = "float64" if double_precision else kinds.pop()
            return Item("tensor", dtype, shape, pack(rows, dtype))
    return _plain("list", rows, shape)


def _leaf(value: Any) -> Tuple[Any, Optional[str]]:
    """A number in a list, and its type where it has one of its own."""
    torch, numpy = library("torch"), library("numpy")
    kinds = [getattr(torch, "Tensor", None), getattr(numpy, "generic", None), getattr(numpy, "ndarray", None)]
    if isinstance(value, tuple(kind for kind in kinds if kind)):
        dtype = str(value.dtype).replace("torch.", "")
        if len(value.shape) == 0 and dtype in SIZES and dtype not in PARTS:
            return value.item(), dtype
    elif isinstance(value, (bool, int, float)):
        return value, None
    raise Unsendable("cannot sync a list with a `%s` in it" % _name(value))


def _plain(form: str, values: Sequence[Any], shape: Sequence[int]) -> Item:
    """Plain numbers as the widest of bool, int64 and float64 among them. An empty list is one of floats."""
    kinds = set(map(type, values))
    integers = all(issubclass(kind, int) for kind in kinds) and len(kinds) > 0
    dtype = "bool" if kinds == {bool} else "int64" if integers else "float64"
    try:
        return Item(form, dtype, shape, pack(values, dtype))
    except OverflowError:
        wide = max((value for value in values if isinstance(value, int)), key=abs)
        raise Unsendable("cannot sync an integer that does not fit into 64 bits: %d" % wide) from None
