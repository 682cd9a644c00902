"""Values of numpy and torch: there and back, in each of their forms."""

import unittest
from unittest import mock

from test_sync import on_ranks, without_libraries

import hpcsweep
from hpcsweep import sync
from hpcsweep.channel import SyncError
from hpcsweep.values import SIZES, Item, decode, encode, nest, pack, unpack

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

SAMPLES = {
    "bool": [True, False, True],
    "uint8": [0, 1, 255],
    "float16": [0.5, -65504.0, 6e-8],
    "bfloat16": [0.5, -1.0078125, 3.0e38],
    "float32": [0.5, -3.4e38, 1e-45],
    "float64": [0.1, -1.7e308, 5e-324],
    "complex64": [1 + 2j, -0.5j, 0j],
    "complex128": [0.1 + 0.2j, -0.5j, 0j],
}
for bits in (8, 16, 32, 64):
    SAMPLES["int%d" % bits] = [0, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]


class Numbers(unittest.TestCase):
    def test_every_type_survives_being_packed(self):
        self.assertEqual(sorted(SIZES), sorted(SAMPLES))
        for dtype, values in SAMPLES.items():
            with self.subTest(dtype=dtype):
                data = pack(values, dtype)
                self.assertEqual(SIZES[dtype] * len(values), len(data))
                once = unpack(data, dtype)
                self.assertEqual(once, unpack(pack(once, dtype), dtype))
                if SIZES[dtype] == 8 or "int" in dtype or dtype == "bool":
                    self.assertEqual(repr(values), repr(once))

    def test_lists_take_any_shape(self):
        for shape, expected in [
            ([], 0),
            ([3], [0, 1, 2]),
            ([2, 3], [[0, 1, 2], [3, 4, 5]]),
            ([2, 1, 2], [[[0, 1]], [[2, 3]]]),
            ([0], []),
            ([0, 3], []),
            ([2, 0], [[], []]),
            ([2, 0, 3], [[], []]),
            ([1, 2, 0], [[[], []]]),
        ]:
            count = 1
            for length in shape:
                count *= length
            self.assertEqual(expected, nest(list(range(count)), shape), shape)

    def test_a_list_without_libraries(self):
        with without_libraries():
            self.assertEqual([[1.5, 2.0]], decode(Item("tensor", "float32", [1, 2], pack([1.5, 2.0], "float32"))))


@unittest.skipIf(numpy is None, "No module named 'numpy'")
class Arrays(unittest.TestCase):
    def test_every_type_and_order_goes_there_and_back(self):
        for dtype, values in SAMPLES.items():
            if dtype == "bfloat16" or "complex" in dtype:
                continue
            flat = numpy.array(values * 4, dtype)
            for array in [flat, flat.reshape(3, 4).T, flat[::-2], flat.astype(flat.dtype.newbyteorder(">")), flat[:0]]:
                with self.subTest(dtype=dtype, shape=array.shape, strides=array.strides):
                    got = hpcsweep.mp_sync(array, return_tensor=False)
                    numpy.testing.assert_array_equal(array, got)
                    self.assertEqual((dtype, array.shape, True), (got.dtype.name, got.shape, got.dtype.isnative))
                    self.assertFalse(numpy.shares_memory(array, got))
                    self.assertTrue(got.flags.writeable)

    def test_without_torch_an_array_is_returned(self):
        with mock.patch.dict("sys.modules", {"torch": None}):
            got = hpcsweep.mp_sync(0.5)
        self.assertEqual(("float32", [0.5]), (got.dtype.name, got.tolist()))

    def test_numbers_of_numpy_keep_their_type(self):
        for value, expected in [
            (numpy.float64(0.1), "float64"),
            (numpy.int32(3), "int32"),
            (numpy.bool_(True), "bool"),
            (numpy.array(0.5, "float16"), "float16"),
            ([numpy.float64(0.1), numpy.float64(0.2)], "float64"),
            ([[numpy.float32(0.5)], [numpy.float32(2)]], "float32"),
            ([numpy.float64(0.1), 0.2], "float32"),
            ([numpy.int32(1), 2], "int64"),
        ]:
            with self.subTest(value=value), mock.patch.dict("sys.modules", {"torch": None}):
                self.assertEqual(expected, hpcsweep.mp_sync(value).dtype.name)
                self.assertEqual("float64", hpcsweep.mp_sync(value, double_precision=True).dtype.name)
        self.assertEqual([0.1], hpcsweep.mp_sync(numpy.float64(0.1), return_tensor=False))

    def test_arrays_are_reduced_number_by_number(self):
        got = hpcsweep.reduce({"a": numpy.array([[1, 2]], "int16"), "b": numpy.float32(0.5)}, "sum")
        self.assertEqual(("int64", [[1, 2]], 0.5), (got["a"].dtype.name, got["a"].tolist(), got["b"]))

    def test_arrays_that_are_no_numbers(self):
        for value, sentence in [
            (numpy.array(["a"]), "cannot sync a `numpy.ndarray` of dtype <U1"),
            (numpy.array([None]), "cannot sync a `numpy.ndarray` of dtype object"),
            (numpy.array([1], "uint16"), "cannot sync a `numpy.ndarray` of dtype uint16"),
            (numpy.datetime64("2020-01-01"), "cannot sync a `numpy.datetime64` of dtype datetime64[D]"),
            (numpy.ma.array([1, 2], mask=[0, 1]), "cannot sync a masked array: its mask would be lost"),
            ([numpy.zeros(2)], "cannot sync a list with a `numpy.ndarray` in it"),
            ([numpy.complex64(1)], "cannot sync a list with a `numpy.complex64` in it"),
        ]:
            with self.subTest(sentence=sentence):
                self.assertEqual(sentence, encode(value).error)


@unittest.skipIf(torch is None, "No module named 'torch'")
class Tensors(unittest.TestCase):
    def test_every_type_and_layout_goes_there_and_back(self):
        for dtype, values in SAMPLES.items():
            if "complex" in dtype:
                continue
            flat = torch.tensor(values * 4, dtype=getattr(torch, dtype))
            for tensor in [flat, flat.reshape(3, 4).t(), flat[::2], flat[:0], flat.reshape(2, 3, 2)]:
                with self.subTest(dtype=dtype, shape=tensor.shape, stride=tensor.stride()):
                    for double in (False, True):
                        got = hpcsweep.mp_sync(tensor, double)
                        self.assertTrue(torch.equal(tensor, got))
                        self.assertEqual(tensor.dtype, got.dtype)
                    self.assertEqual(repr(tensor.tolist()), repr(hpcsweep.mp_sync(tensor, return_tensor=False)))

    def test_the_result_is_a_copy_without_gradient(self):
        tensor = torch.ones(2, requires_grad=True)
        got = hpcsweep.mp_sync(tensor)
        got += 1
        self.assertEqual(([1.0, 1.0], False), (tensor.tolist(), got.requires_grad))

    def test_lazily_conjugated_and_negated_numbers(self):
        tensor = torch.tensor([1 + 2j]).conj()
        item = encode(tensor)
        self.assertEqual([1 - 2j], unpack(item.data, item.dtype))
        self.assertEqual([-2.0], hpcsweep.mp_sync(tensor.imag, return_tensor=False))

    def test_complex_numbers_are_refused_as_a_worker_does(self):
        for dtype in ("complex64", "complex128"):
            with self.assertRaises(SyncError) as caught:
                hpcsweep.mp_sync(torch.tensor([1j], dtype=getattr(torch, dtype)))
            sentence = "complex numbers cannot be synced: `%s` on rank 0" % dtype
            self.assertEqual(sentence, caught.exception.sentence)

    def test_lists_of_single_tensors_keep_their_type(self):
        losses = [torch.tensor(0.1, dtype=torch.float64, requires_grad=True), torch.tensor(0.2, dtype=torch.float64)]
        self.assertEqual([0.1, 0.2], hpcsweep.mp_sync(losses, return_tensor=False))
        self.assertEqual(torch.float64, hpcsweep.mp_sync([torch.tensor(1)], double_precision=True).dtype)
        self.assertEqual("cannot sync a list with a `torch.Tensor` in it", encode([torch.zeros(2)]).error)

    def test_tensors_without_plain_numbers(self):
        sparse = torch.eye(2).to_sparse()
        self.assertEqual(
            "cannot sync a `torch.Tensor` of dtype float32 and layout torch.sparse_coo", encode(sparse).error
        )
        quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
        self.assertIn("of dtype qint8", encode(quantized).error)
        self.assertRegex(encode(torch.ones(2, device="meta")).error, "^cannot sync a `torch.Tensor`")

    def test_the_result_goes_back_to_the_device(self):
        # A stand-in for a device on hosts with only the CPU: it records which device was asked for.
        item = encode(torch.ones(2))
        self.assertEqual(torch.device("cpu"), item.device)
        with mock.patch.object(torch.Tensor, "to", return_value="moved") as to:
            self.assertEqual("moved", decode(Item("tensor", "float32", [1], bytearray(4)), torch.device("cuda:1")))
        to.assert_called_once_with(torch.device("cuda:1"))

    def test_values_of_several_ranks_do_not_share_an_answer_unaligned(self):
        def program(client, rank):
            got = sync._mp_sync_dict(client, {"a": torch.tensor([True]), "b": torch.tensor([rank + 0.5])})
            return {key: (value.tolist(), value.data_ptr() % value.element_size()) for key, value in got.items()}

        got, _ = on_ranks(2, program)
        self.assertEqual([{"a": ([True, True], 0), "b": ([0.5, 1.5], 0)}] * 2, got)

    def test_ranks_get_one_entry_each_where_they_are_not_joined(self):
        got, _ = on_ranks(
            2, lambda client, rank: sync._mp_sync(client, torch.full((rank + 1, 2), rank), False, False, True)
        )
        for values in got:
            self.assertEqual([[[0, 0]], [[1, 1], [1, 1]]], [value.tolist() for value in values])


@unittest.skipIf(torch is None or not torch.cuda.is_available(), "no CUDA device")
class Devices(unittest.TestCase):
    def test_a_tensor_comes_back_to_its_device(self):
        device = torch.device("cuda", torch.cuda.device_count() - 1)
        for concat in (True, False):
            got = hpcsweep.mp_sync(torch.tensor([0.5, 2.0], device=device).t(), concat_mp_data=concat)
            got = got if concat else got[0]
            self.assertEqual((device, [0.5, 2.0]), (got.device, got.tolist()))


if __name__ == "__main__":
    unittest.main()
