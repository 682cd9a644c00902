"""Values of all ranks: `mp_sync`, `mp_sync_dict`, `reduce`, `rank`, `world_size`."""

import math
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from . import alone, groups, ranks, trial
from .channel import Channel, SyncError
from .values import PARTS, Item, decode, encode, unpack

HOW = ("sum", "min", "max", "mean", "variance")
NAN = ("propagate", "ignore", "error")
OWN_GROUP = "call torch.distributed.init_process_group before"


class Client:
    """What one rank can ask, of its worker or of the program's own group; without both it is the only rank."""

    def __init__(self, channel: Optional[Channel] = None, group: Optional[groups.Group] = None):
        self._channel = channel
        self._group = group
        self._hello = None  # type: Optional[Tuple[int, int]]

    @property
    def alone(self) -> bool:
        """Whether it reaches no other rank."""
        return self._channel is None and self._group is None

    def hello(self) -> Tuple[int, int]:
        """This rank and how many there are."""
        if self._group is not None:
            return self._group.hello()
        if self._channel is None:
            return ranks.own(is_alone=trial.here is not None, loads_data=_loads_data())
        if self._hello is None:
            answer, _ = self._ask({"op": "hello"}, [])
            self._hello = (answer["rank"], answer["world"])
        return self._hello

    def gather(self, op: str, items: List[Item], double_precision: bool, concat: bool, return_tensor: bool):
        """The answer's items, by key: one each, or one each rank if they are not joined."""
        if self._group is not None:
            got = self._group.gather(op, items, double_precision, concat, return_tensor)
        elif self._channel is None:
            got = alone.gather(items, double_precision, return_tensor)
        else:
            flags = {"double_precision": double_precision, "concat": concat, "return_tensor": return_tensor}
            got = self._ask_items({"op": op, "flags": flags}, items)
        by_key = {}  # type: Dict[Tuple[str, ...], List[Item]]
        for item in got:
            by_key.setdefault(tuple(item.key), []).append(item)
        return by_key

    def reduce(self, items: List[Item], how: str, nan: str) -> Dict[Tuple[str, ...], Item]:
        """The answer's items, by key."""
        if self._group is not None:
            got = self._group.reduce(items, how, nan)
        elif self._channel is None:
            got = alone.reduce(items, how, nan)
        else:
            got = self._ask_items({"op": "reduce", "how": how, "nan": nan}, items)
        return {tuple(item.key): item for item in got}

    def _ask_items(self, head: Dict[str, Any], items: List[Item]) -> List[Item]:
        answer, data = self._ask(head, items)
        got, start = [], 0
        for head in answer["items"]:
            end = start + head["bytes"]
            # The only value keeps the memory it came in; others need theirs aligned.
            own = data if end - start == len(data) else bytearray(memoryview(data)[start:end])
            got.append(Item(head["form"], head["dtype"], head["shape"], own, head["key"]))
            start = end
        return got

    def _ask(self, head: Dict[str, Any], items: List[Item]) -> Tuple[Dict[str, Any], bytearray]:
        sent = [item for item in items if item.error is None]
        if head["op"] != "hello":
            head = dict(head, items=[item.head() for item in items])
        head["bytes"] = sum(len(item.data) for item in sent)
        assert self._channel is not None
        answer, data = self._channel.ask(head, [item.data for item in sent])
        if not answer["ok"]:
            raise SyncError(answer["error"], answer.get("hint"))
        return answer, data


def mp_sync(
    data: Any, double_precision: bool = False, concat_mp_data: bool = True, return_tensor: bool = True
) -> Any:
    """The values of all ranks, in rank order, equal on every rank.

    data: a number, a list or tuple (of lists) of numbers, a numpy array or number, or a tensor. First
        dimensions may differ among ranks; a single number counts as a list of one.
    double_precision: plain floats keep 64 bits, and all but tensors become float64.
    concat_mp_data: one value, joined along the first dimension; else a list with one value a rank.
    return_tensor: a tensor, on the device of `data` if that was one; else an array for an array, and a
        list for everything else. Without torch, a numpy array; without numpy, a list.
    """
    return _mp_sync(_ready(), data, double_precision, concat_mp_data, return_tensor)


def mp_sync_dict(dict_data: Dict[Any, Any]) -> Dict[Any, Any]:
    """`mp_sync` of each value of a dict, which may hold dicts; values are matched by key, whatever their order."""
    return _mp_sync_dict(_ready(), dict_data)


def reduce(values: Dict[Any, Any], how: str = "mean", weight: Any = None, nan: str = "propagate") -> Dict[Any, Any]:
    """The values of all ranks made one, for each value of a dict: computed in float64 and in rank order.

    values: numbers, or lists, arrays and tensors that have the same shape on all ranks; dicts of them.
    how: "mean", "sum", "min", "max" or "variance" (of the population).
    weight: how much this rank's values count in mean and variance, the number of samples say: one number,
        or a dict like `values`; 1 without it. With 0 the rank has no value, whatever `how` is.
    nan: "propagate", "ignore" (leave such values out) or "error".

    Sums, smallest and largest of whole numbers are whole.
    """
    return _reduce(_ready(), values, how, weight, nan)


def rank() -> int:
    """This process's number among the ranks of its trial, from 0."""
    return _current().hello()[0]


def world_size() -> int:
    """How many ranks the trial has."""
    return _current().hello()[1]


def _mp_sync(client: Client, data: Any, double_precision: bool, concat: bool, return_tensor: bool) -> Any:
    item = encode(data, (), bool(double_precision))
    got = client.gather("gather", [item], bool(double_precision), bool(concat), bool(return_tensor))
    values = [decode(value, item.device) for value in got[()]]
    return values[0] if concat else values


def _mp_sync_dict(client: Client, data: Any) -> Any:
    leaves, problem = _leaves(data)
    items = [encode(value, path) for path, value in leaves]
    if problem:
        items.append(Item(error=problem))
    got = client.gather("gather_map", items, False, True, True)
    values = {tuple(item.key): decode(got[tuple(item.key)][0], item.device) for item in items}
    return _rebuilt(data, values)


def _reduce(client: Client, values: Any, how: str, weight: Any, nan: str) -> Any:
    leaves, problem = _leaves(values)
    if how not in HOW:
        how, problem = "mean", "cannot reduce by `%s`: there are %s" % (how, ", ".join(HOW))
    if nan not in NAN:
        nan, problem = "propagate", "no rule for NaN is called `%s`: there are %s" % (nan, ", ".join(NAN))
    weights = dict(_leaves(weight)[0]) if isinstance(weight, dict) else {path: weight for path, _ in leaves}
    items = [encode(value, path) for path, value in leaves]
    for item in items:
        if item.error is None and weight is not None:
            _weigh(item, weights.get(tuple(item.key)))
    if problem:
        items.append(Item(error=problem))
    got = client.reduce(items, how, nan)
    return _rebuilt(values, {tuple(item.key): decode(got[tuple(item.key)], item.device) for item in items})


def _weigh(item: Item, weight: Any) -> None:
    """Gives a value its weight, or takes it back with the reason."""
    given = encode(weight)
    numbers = unpack(given.data, given.dtype) if given.error is None else []
    if len(numbers) == 1 and given.dtype not in PARTS and 0 <= numbers[0] < math.inf:
        item.weight = float(numbers[0])
    else:
        item.error = "a weight is a number of at least 0, and this is %r" % (weight,)


def _leaves(data: Any) -> Tuple[List[Tuple[Tuple[str, ...], Any]], Optional[str]]:
    """The values of a dict of dicts with their paths, and what is wrong with it."""
    if not isinstance(data, dict):
        return [], "cannot sync a `%s` as a dict" % type(data).__name__
    found = []  # type: List[Tuple[Tuple[str, ...], Any]]
    problem = None

    def walk(inner, path):
        nonlocal problem
        if len({str(key) for key in inner}) < len(inner):
            problem = "two keys of a dict read the same: %s" % sorted(map(str, inner))
        for key, value in inner.items():
            if not isinstance(key, (str, int)) or len(path) == 64:
                problem = "the keys of a dict must be words or integers, at most 64 deep: %r" % (key,)
            elif isinstance(value, dict):
                walk(value, path + (str(key),))
            else:
                found.append((path + (str(key),), value))

    walk(data, ())
    return found, problem


def _rebuilt(data: Dict[Any, Any], values: Dict[Tuple[str, ...], Any], path: Tuple[str, ...] = ()) -> Dict[Any, Any]:
    """A dict like `data` with other values."""
    return {
        key: _rebuilt(value, values, path + (str(key),)) if isinstance(value, dict) else values[path + (str(key),)]
        for key, value in data.items()
    }


_client = (None, Client())  # type: Tuple[Optional[str], Client]


def _current() -> Client:
    """The client of this process, by its process group or its environment."""
    global _client
    if _loads_data():
        return Client()
    fd = os.environ.get("HPCSWEEP_SYNC")
    group = groups.current()
    if group is not None and group.hello()[1] > 1 and not (fd and _is_of_worker(group)):
        return Client(group=group)
    if fd != _client[0]:
        if not (fd or "0").isdigit():
            raise SyncError("HPCSWEEP_SYNC=%s is no number of a descriptor" % fd)
        _client = (fd, Client(Channel(int(fd))) if fd else Client())
    return _client[1]


def _is_of_worker(group: groups.Group) -> bool:
    """Whether the ranks of a group are those of the trial, and not started by one of them."""
    named = tuple(map(os.environ.get, ranks.LAUNCHERS[0][:2]))
    return named == tuple(map(str, group.hello())) and "TORCHELASTIC_RUN_ID" not in os.environ


def _ready() -> Client:
    """The client, where what it returns would be true: a rank of several has to reach the others."""
    if _loads_data():
        raise SyncError("a worker of a DataLoader cannot sync", "sync in the program's main process")
    client = _current()
    if client.alone and client.hello()[1] > 1:
        if "HPCSWEEP_TRIAL" in os.environ:
            raise SyncError(
                "the ranks of this trial cannot sync: their workers were not asked to",
                'write `sync = "mpi"` under `[metrics]` in the plan, or ' + OWN_GROUP,
            )
        raise SyncError(
            "this is one of %d ranks, and no worker of hpcsweep connects them: each would have its own values only"
            % client.hello()[1],
            'run it as a trial with `sync = "mpi"` under `[metrics]` in the plan, or ' + OWN_GROUP,
        )
    return client


def _loads_data() -> bool:
    """Whether this is a worker of a DataLoader: it may have inherited the socket, which is its parent's."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
