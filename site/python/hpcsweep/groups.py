"""The ranks of a process group that the program itself has made with `torch.distributed`.

Each rank gets the values of all ranks and computes the same answer from them. The rules are those of a worker, see
docs/sync-protocol.md.
"""

import functools
import sys
from typing import Any, Dict, List, Optional, Tuple

from . import alone, values
from .channel import SyncError
from .values import Item

Key = Tuple[str, ...]


def current() -> Optional["Group"]:
    """The group that this process is a rank of; None if there is none."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Group(sys.modules["torch"], distributed)


class Group:
    """All ranks of the default group."""

    def __init__(self, torch: Any, distributed: Any):
        self._torch = torch
        self._distributed = distributed

    def hello(self) -> Tuple[int, int]:
        """This rank and how many there are."""
        return self._distributed.get_rank(), self._distributed.get_world_size()

    def gather(self, op: str, items: List[Item], double: bool, concat: bool, return_tensor: bool) -> List[Item]:
        """Each value joined over the ranks; without `concat` one item for each rank."""
        ranks = self._met((op, double, concat, return_tensor), items)
        out = []  # type: List[Item]
        for key, own in ranks.items():
            alone.refuse_complex(own)
            if concat:
                out.append(self._joined(key, own, double, return_tensor))
            else:
                out += alone.gather(own, double, return_tensor)
        return out

    def reduce(self, items: List[Item], how: str, nan: str) -> List[Item]:
        """Each value reduced over the ranks, number by number."""
        return [self._reduced(key, own, how, nan) for key, own in self._met(("reduce", how, nan), items).items()]

    def _met(self, request: Any, items: List[Item]) -> Dict[Key, List[Item]]:
        """The items of all ranks by key, if all ranks ask for the same and can send their values."""
        own = [(item.head(), b"" if item.error is not None else bytes(item.data)) for item in items]
        everyone = [None] * self.hello()[1]  # type: List[Any]
        self._distributed.all_gather_object(everyone, (request, own))
        for rank, (theirs, heads) in enumerate(everyone):
            if theirs != everyone[0][0]:
                raise SyncError(
                    "the ranks ask for different things: %r on rank 0, %r on rank %d" % (everyone[0][0], theirs, rank),
                    "all ranks must make the same calls in the same order",
                )
            for head, _ in heads:
                if "error" in head:
                    where = ", key `%s`" % ".".join(head["key"]) if head["key"] else ""
                    raise SyncError("rank %d%s: %s" % (rank, where, head["error"]), alone.HINT)
        ranks = [{tuple(head["key"]): _item(head, data) for head, data in heads} for _, heads in everyone]
        keys = sorted(set().union(*ranks))
        for key in keys:
            lack = [str(rank) for rank, theirs in enumerate(ranks) if key not in theirs]
            if lack:
                raise SyncError("the key `%s` is missing on rank %s" % (".".join(key), ", ".join(lack)))
        return {key: [theirs[key] for theirs in ranks] for key in keys}

    def _joined(self, key: Key, items: List[Item], double: bool, return_tensor: bool) -> Item:
        # An empty list has no type of its own.
        voices = [item for item in items if (item.form, item.shape) != ("list", [0])] or items
        shapes = [item.shape or [1] for item in voices]
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise _differ(key, "the shapes differ beyond the first dimension", items)
        dtype = self._common([alone.promised(item, double) for item in voices])
        rows = [self._tensor(item).to(dtype).reshape(shape) for item, shape in zip(voices, shapes)]
        is_array = all(item.form == "array" for item in voices)
        form = "tensor" if return_tensor else "array" if is_array else "list"
        return self._answer(form, self._torch.cat(rows), key)

    def _reduced(self, key: Key, items: List[Item], how: str, nan: str) -> Item:
        torch = self._torch
        alone.refuse_complex(items)
        weights = [1.0 if item.weight is None else item.weight for item in items]
        voices = [rank for rank, weight in enumerate(weights) if weight > 0]
        alike = [items[rank] for rank in voices] or items
        if any(item.shape != alike[0].shape for item in alike):
            raise _differ(key, "the shapes differ", items)
        common = self._common([item.dtype for item in alike])
        is_whole = not common.is_floating_point
        is_exact = is_whole and how in ("sum", "min", "max") and (bool(voices) or how == "sum")
        wide = torch.int64 if is_exact else torch.float64
        rows = [self._tensor(items[rank]).to(wide) for rank in voices]
        if nan == "error" and not is_exact:
            who = [str(rank) for rank, row in zip(voices, rows) if bool(row.isnan().any())]
            if who:
                raise SyncError("%sNaN on rank %s" % (_named(key), ", ".join(who)))
        if not rows:
            result = torch.full(alike[0].shape, 0 if how == "sum" else torch.nan, dtype=wide)
        elif is_exact:
            result = self._exact(key, rows, how)
        else:
            result = self._rounded(rows, [weights[rank] for rank in voices], how, nan)
        dtype = wide if is_exact and how == "sum" else torch.float64 if is_whole and not is_exact else common
        return self._answer(alike[0].form, result.to(dtype), key)

    def _exact(self, key: Key, rows: List[Any], how: str) -> Any:
        """Sum, least or greatest of whole numbers."""
        if how != "sum":
            return functools.reduce(self._torch.minimum if how == "min" else self._torch.maximum, rows)
        total = rows[0]
        for row in rows[1:]:
            before, total = total, total + row
            if bool((((before ^ total) & (row ^ total)) < 0).any()):
                raise SyncError(
                    "%sthe sum of the whole numbers does not fit into 64 bits" % _named(key),
                    "send them as real numbers, which are rounded",
                )
        return total

    def _rounded(self, rows: List[Any], weights: List[float], how: str, nan: str) -> Any:
        """A reduction in 64 bits and in rank order."""
        torch = self._torch
        there = [~row.isnan() if nan == "ignore" else torch.ones_like(row, dtype=torch.bool) for row in rows]
        nobody = ~functools.reduce(torch.logical_or, there)

        def folded(each: Any, out: float, values: List[Any]) -> Any:
            return functools.reduce(each, [value.where(here, value.new_tensor(out)) for value, here in zip(values, there)])

        def weighted(values: List[Any]) -> Any:
            most = max(weights)
            total = folded(torch.add, 0.0, [torch.full_like(row, weight / most) for row, weight in zip(rows, weights)])
            shares = [value * weight for value, weight in zip(values, weights)]
            mean = folded(torch.add, 0.0, shares) / (total * most)
            # A sum on the way may be too large although each share is not.
            small = [value * (weight / most / total) for value, weight in zip(values, weights)]
            return mean.where(mean.isfinite(), folded(torch.add, 0.0, small))

        if how == "sum":
            return folded(torch.add, 0.0, rows)
        least, greatest = folded(torch.minimum, torch.inf, rows), folded(torch.maximum, -torch.inf, rows)
        # The mean of equal numbers is that number, whatever is rounded.
        mean = torch.minimum(torch.maximum(weighted(rows), least), greatest) if how in ("mean", "variance") else None
        if how == "variance":
            mean = weighted([(row - mean) ** 2 for row in rows])
        result = {"min": least, "max": greatest}.get(how, mean)
        return result.where(~nobody, result.new_tensor(torch.nan))

    def _common(self, dtypes: List[str]) -> Any:
        return functools.reduce(self._torch.promote_types, [getattr(self._torch, dtype) for dtype in dtypes])

    def _tensor(self, item: Item) -> Any:
        return values.to_tensor(self._torch, item, None)

    def _answer(self, form: str, tensor: Any, key: Key) -> Item:
        item = values.encode(tensor, key)
        return Item(form, item.dtype, item.shape, bytearray(item.data), key)


def _item(head: Dict[str, Any], data: bytes) -> Item:
    item = Item(head["form"], head["dtype"], head["shape"], bytearray(data), head["key"])
    item.weight = head.get("weight")
    return item


def _named(key: Key) -> str:
    return "`%s`: " % ".".join(key) if key else ""


def _differ(key: Key, what: str, items: List[Item]) -> SyncError:
    told = ", ".join("%s on rank %d" % (item.shape, rank) for rank, item in enumerate(items))
    return SyncError("%s%s: %s" % (_named(key), what, told))
