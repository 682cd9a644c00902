"""What waits for what, and what becomes of it: `-W depend`.

Not a clean construction but the one of PBS: what can never run is deleted without a word.
"""

from typing import Callable, Dict, List, Optional

from .arguments import AFTER, BEFORE, Dependency
from .model import SUB_FINISHED, Job

# How a dependency shows in the job that is waited for, and the other way round.
SHOWN = {"after": "before", "afterok": "beforeok", "afternotok": "beforenotok", "afterany": "beforeany"}
HIDDEN = {shown: kind for kind, shown in SHOWN.items()}


def shown(job: Job) -> str:
    """The attribute `depend`: what is still waited for, then what waits."""
    kinds: Dict[str, List[str]] = {}
    for one in job.waits:
        if one.kind == "on":
            kinds[f"on:{one.count}"] = []
        else:
            kinds.setdefault(one.kind, []).extend(one.ids)
    for kind, target in job.dependents:
        kinds.setdefault(kind, []).append(target)
    return ",".join(kind + "".join(f":{one}@pbshead" for one in targets) for kind, targets in kinds.items())


def holds_for(kind: str, job: Job) -> Optional[bool]:
    """Whether an ended job is what an `after...` waits for."""
    if kind in ("after", "afterany"):
        return True
    # A job that never ran is not a success.
    is_good = job.last_exit == 0
    return is_good if kind == "afterok" else not is_good


class Dependencies:
    """The dependencies of all jobs of one server."""

    def __init__(self, find: Callable[[str], Optional[Job]], delete: Callable[[Job], None]) -> None:
        self._find = find
        self._delete = delete

    def enter(self, job: Job) -> None:
        """Registers a new job; it may be deleted by that."""
        held = False
        for one in list(job.waits):
            if one.kind == "on":
                held = True
            elif one.kind in AFTER:
                held |= self._after(job, one)
            elif one.kind in BEFORE:
                self._before(job, one)
            elif one.kind == "runone":
                held |= self._run_one(job, one)
            if job.is_finished:
                return
        if held:
            job.hold("s")

    def _after(self, job: Job, one: Dependency) -> bool:
        for target_id in list(one.ids):
            target = self._find(target_id)
            if target is None:
                self._refuse(job)
                return False
            if target.is_finished:
                if not holds_for(one.kind, target):
                    self._refuse(job)
                    return False
                one.ids.remove(target_id)
            elif one.kind == "after" and target.stime is not None:
                one.ids.remove(target_id)
            else:
                target.dependents.append((SHOWN[one.kind], job.id))
        if one.ids:
            return True
        job.waits.remove(one)
        return False

    def _before(self, job: Job, one: Dependency) -> None:
        for target_id in one.ids:
            target = self._find(target_id)
            counts = target is not None and any(wait.kind == "on" for wait in target.waits)
            if not counts or target is None or target.is_finished:
                self._refuse(job)
                return
        # It waits for nothing, it is waited for: by what counts.
        job.waits.remove(one)
        job.dependents.extend((one.kind, target_id) for target_id in one.ids)

    def _run_one(self, job: Job, one: Dependency) -> bool:
        target = self._find(one.ids[0])
        if target is None or target.is_finished:
            self._refuse(job)
            return False
        group = [target] + [found for _, other in target.dependents if (found := self._find(other))]
        job.waits.remove(one)
        for other in group:
            other.dependents.append(("runone", job.id))
            job.dependents.append(("runone", other.id))
        return any(other.stime is not None for other in group)

    def alter(self, job: Job, given: List[Dependency]) -> None:
        """Puts other dependencies in the place of all that a job has: also of those of others on it, which end here."""
        before = {target for one in given if one.kind in BEFORE for target in one.ids}
        for one in job.waits:
            for target_id in one.ids:
                target = self._find(target_id)
                if target is not None:
                    target.dependents = [(kind, waits) for kind, waits in target.dependents if waits != job.id]
        for kind, target_id in job.dependents:
            target = self._find(target_id)
            if target is not None and target_id not in before:
                self._fulfil(target, HIDDEN[kind], job)
        job.dependents = [(kind, target) for kind, target in job.dependents if target in before]
        job.waits = [one for one in given if one.kind in AFTER]
        job.release("s")
        if any([self._after(job, one) for one in list(job.waits)]):
            job.hold("s")

    def _refuse(self, job: Job) -> None:
        job.holds["s"] = None
        self._delete(job)

    def _waiting(self, job: Job) -> List[Job]:
        found = [self._find(target) for _, target in job.dependents]
        return [one for one in found if one is not None and not one.is_finished]

    def started(self, job: Job) -> None:
        """A job began: `after` is fulfilled, and the others of a `runone` wait."""
        for kind, target in job.dependents:
            other = self._find(target)
            if other is None or other.is_finished:
                continue
            if kind == "before":
                self._fulfil(other, "after", job)
            elif kind == "runone":
                other.hold("s")
                other.substate = 22

    def ended(self, job: Job) -> None:
        """A job ended or was deleted: those that wait are released, or deleted in turn."""
        for kind, target in list(job.dependents):
            other = self._find(target)
            if other is None or other.is_finished:
                continue
            if kind == "runone" or (job.is_dependency_deleted and self._is_after(other, job)):
                self._delete(other)
            elif any(job.id in wait.ids for wait in other.waits):
                if holds_for(HIDDEN[kind], job):
                    self._fulfil(other, HIDDEN[kind], job)
                else:
                    self._delete(other)
            else:
                self._count(other, kind, job)

    @staticmethod
    def _is_after(other: Job, job: Job) -> bool:
        return any(job.id in wait.ids for wait in other.waits)

    def _fulfil(self, job: Job, kind: str, target: Job) -> None:
        for one in list(job.waits):
            if one.kind == kind and target.id in one.ids:
                one.ids.remove(target.id)
                if not one.ids:
                    job.waits.remove(one)
        if not job.waits:
            job.release("s")

    def _count(self, job: Job, kind: str, target: Job) -> None:
        """A job with `on` hears of the end of one of those that it waits for."""
        if not holds_for(HIDDEN[kind], target):
            return
        for one in list(job.waits):
            if one.kind == "on":
                one.count -= 1
                if one.count == 0:
                    job.waits.remove(one)
        if not job.waits:
            job.release("s")


def refuse_comment(job: Job) -> None:
    """What a job deleted by a dependency says: nothing, but for an array."""
    job.comment = "" if job.array is None else "Subjob finished"
    job.is_dependency_deleted = True
    job.finish(SUB_FINISHED)
