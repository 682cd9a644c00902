"""A worker of several ranks in one process: it speaks docs/sync-protocol.md and gathers plainly.

What a value becomes is left to the rules of one rank; ranks that do not fit together get an error.
"""

import json
import socket
import struct
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "site" / "python"))

from hpcsweep import alone  # noqa: E402
from hpcsweep.channel import SyncError  # noqa: E402
from hpcsweep.values import Item, pack, unpack  # noqa: E402

HINT = "numbers, lists of numbers, arrays and tensors can be synced"
# Far more than any exchange takes: reaching it means that it does not happen.
PATIENCE = 60


class FakeWorker:
    """`ends[r]` is the socket of rank r; `requests` are the heads that were read, in order of arrival."""

    def __init__(self, world):
        self.world = world
        self.requests = []
        pairs = [socket.socketpair() for _ in range(world)]
        self.ends = [pair[0] for pair in pairs]
        self._own = [pair[1] for pair in pairs]
        self._read = [None] * world
        self._answers = [None] * world
        self._barrier = threading.Barrier(world, action=self._all_read, timeout=PATIENCE)
        self._threads = [threading.Thread(target=self._serve, args=(rank,), daemon=True) for rank in range(world)]
        for thread in self._threads:
            thread.start()

    def close(self):
        """Goes, as a worker that was killed."""
        for end in self._own:
            # Ends the wait of the thread that reads from it, which closing would not.
            end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self.ends + self._own:
            end.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _serve(self, rank):
        try:
            while True:
                head, data = receive(self._own[rank])
                self.requests.append(head)
                if head["op"] == "hello":
                    answer = ({"ok": True, "rank": rank, "world": self.world, "version": "0.1.0"}, b"")
                else:
                    self._read[rank] = (head, data)
                    self._barrier.wait()
                    answer = self._answers[rank]
                send(self._own[rank], *answer)
        except (EOFError, OSError, threading.BrokenBarrierError):
            pass
        finally:
            # One rank gone: the others shall not wait for it.
            self._barrier.abort()
            for end in self._own:
                end.shutdown(socket.SHUT_RDWR)

    def _all_read(self):
        try:
            answer = self._gathered() if self._read[0][0]["op"] != "reduce" else self._reduced()
        except SyncError as e:
            answer = ({"ok": False, "error": e.sentence, "hint": e.hint}, b"")
        self._answers = [answer] * self.world

    def _items(self):
        """The items of each rank by key."""
        ranks = []
        for rank, (head, data) in enumerate(self._read):
            items, start = {}, 0
            for got in head["items"]:
                if "error" in got:
                    raise SyncError("rank %d: %s" % (rank, got["error"]), HINT)
                end = start + got["bytes"]
                item = Item(got["form"], got["dtype"], got["shape"], data[start:end], got["key"])
                item.weight = got.get("weight")
                items[tuple(got["key"])] = item
                start = end
            assert start == head["bytes"] == len(data), head
            ranks.append(items)
        keys = set().union(*ranks)
        for rank, items in enumerate(ranks):
            for key in sorted(keys - set(items)):
                raise SyncError("rank %d has no `%s`" % (rank, ".".join(key)))
        return sorted(keys), ranks

    def _gathered(self):
        flags = self._read[0][0]["flags"]
        keys, ranks = self._items()
        heads, numbers = [], []
        for key in keys:
            pieces = [
                alone.gather([items[key]], flags["double_precision"], flags["return_tensor"])[0] for items in ranks
            ]
            if flags["concat"]:
                first = pieces[0]
                for rank, piece in enumerate(pieces):
                    if (piece.dtype, piece.shape[1:]) != (first.dtype, first.shape[1:]):
                        raise SyncError("rank %d and rank 0 do not fit together" % rank)
                shape = [sum(piece.shape[0] for piece in pieces)] + first.shape[1:]
                pieces = [Item(first.form, first.dtype, shape, b"".join(piece.data for piece in pieces), key)]
            heads += [dict(piece.head(), key=list(key)) for piece in pieces]
            numbers += [bytes(piece.data) for piece in pieces]
        return ({"ok": True, "joined": flags["concat"], "items": heads}, b"".join(numbers))

    def _reduced(self):
        """Weighted means alone: what the client sends and takes is what is tested."""
        keys, ranks = self._items()
        heads, numbers = [], b""
        for key in keys:
            items = [each[key] for each in ranks]
            weights = [1.0 if item.weight is None else item.weight for item in items]
            values = [unpack(item.data, item.dtype)[0] for item in items]
            mean = sum(weight * value for weight, value in zip(weights, values)) / sum(weights)
            heads.append(Item("scalar", "float64", [], bytes(8), key).head())
            numbers += pack([mean], "float64")
        return ({"ok": True, "joined": True, "items": heads}, numbers)


def receive(end):
    """A message: its head and its numbers."""
    (length,) = struct.unpack("<I", read(end, 4))
    head = json.loads(read(end, length).decode())
    return head, read(end, head["bytes"] if "bytes" in head else 0)


def read(end, count):
    data = b""
    while len(data) < count:
        got = end.recv(count - len(data))
        if not got:
            raise EOFError
        data += got
    return data


def send(end, head, data):
    text = json.dumps(dict(head, bytes=len(data))).encode()
    end.sendall(struct.pack("<I", len(text)) + text + data)
