"""The server: all jobs, what becomes of them, and the scheduler that starts them."""

import time
from typing import Callable, Dict, List, Optional, Tuple

from . import ids, model
from .arguments import Dependency
from .config import Config, Queue, Source
from .dependencies import Dependencies, refuse_comment
from .errors import (
    ARRAY_TOO_LARGE,
    EXCEEDS_RESOURCES,
    OVER_LIMIT,
    QUEUE_NOT_ENABLED,
    UNKNOWN_QUEUE,
    Refusal,
)
from .hosts import Hosts
from .loop import Loop
from .requests import Faults
from .model import BEGUN, EXPIRED, FINISHED, QUEUED, RUNNING, Element, Job
from .resources import Request, seconds
from .running import Run

# After so many starts that failed, PBS holds a job.
STARTS = 20
# The widest array, where nothing is configured: more than a test needs.
MOST = 1_000_000


class Server:
    """Everything that is known, in memory."""

    def __init__(self, home: str, loop: Loop) -> None:
        self.home = home
        self.loop = loop
        self.source = Source(f"{home}/config.json")
        self.config = self.source.read()
        self.jobs: Dict[int, Job] = {}
        self.hosts = Hosts()
        self.dependencies = Dependencies(self._by_id, self.delete_by_dependency)
        self.faults = Faults()
        self.runs: List[Run] = []
        self._next = 0
        self._is_due = False
        # Called when a rerun is under way no more.
        self.requeued: Dict[str, List[Callable[[], None]]] = {}

    def refresh(self) -> Config:
        """Reads the configuration again."""
        self.config = self.source.read()
        return self.config

    def _by_id(self, text: str) -> Optional[Job]:
        job = self.jobs.get(int(text.split(".")[0].rstrip("[]")))
        # `38` is not `38[]`.
        return job if job is not None and job.id == text else None

    # Submitting.

    def next_sequence(self) -> int:
        """The number of the next job. Refused submissions use one up as well."""
        self._next += 1
        return self._next - 1

    def queue(self, name: str) -> Queue:
        """A queue that takes jobs."""
        queue = self.config.queues.get(name)
        if queue is None:
            raise Refusal(UNKNOWN_QUEUE)
        if not queue.enabled:
            raise Refusal(QUEUE_NOT_ENABLED)
        return queue

    def _queued_of(self, user: Optional[str], queue: Optional[str]) -> int:
        """How many elements of a user, or of all users, are not at their end."""
        jobs = [job for job in self.jobs.values() if not job.is_finished and user in (None, job.owner.user)]
        return sum(
            len(job.elements) - len(job.in_state(EXPIRED, FINISHED))
            for job in jobs
            if queue is None or job.queue == queue
        )

    def _is_too_large(self, array: Optional[ids.ArraySpec], queue: Queue) -> bool:
        caps = [cap for cap in (self.config.max_array_size, queue.max_array_size, MOST) if cap is not None]
        return array is not None and len(array.indices) > min(caps)

    def _is_over_limit(self, user: str, count: int, queue: Queue) -> bool:
        return queue.max_queued is not None and self._queued_of(user, queue.name) + count > queue.max_queued

    @staticmethod
    def _exceeds(request: Request, queue: Queue) -> bool:
        longest = seconds(queue.max_walltime) if queue.max_walltime else None
        too_long = longest is not None and request.walltime is not None and request.walltime > longest
        return too_long or (queue.max_ncpus is not None and request.total("ncpus") > queue.max_ncpus)

    def check(self, user: str, array: Optional[ids.ArraySpec], request: Request, queue: Queue) -> None:
        """Refuses what the server or the queue does not take."""
        if self._is_too_large(array, queue):
            raise Refusal(ARRAY_TOO_LARGE)
        if self._exceeds(request, queue):
            raise Refusal(EXCEEDS_RESOURCES)
        count = 1 if array is None else len(array.indices)
        limit = self.config.max_queued
        if limit is not None and self._queued_of(user, None) + count > limit:
            raise Refusal(OVER_LIMIT, "would exceed complex's per-user limit")
        limit = self.config.max_queued_all
        if limit is not None and self._queued_of(None, None) + count > limit:
            raise Refusal(OVER_LIMIT, "Maximum number of jobs already in queue")
        if self._is_over_limit(user, count, queue):
            # Whatever the queue is called.
            raise Refusal(OVER_LIMIT, "would exceed queue generic's per-user limit")

    def enter(self, job: Job) -> None:
        """Takes a job that was not refused."""
        self.jobs[job.sequence] = job
        if "h" in job.submission.options:
            job.hold("u")
        if not self._waits_later(job):
            self.dependencies.enter(job)
        if not self._route(job):
            # Accepted, and gone at once: nothing is left to be asked for.
            self.jobs.pop(job.sequence, None)
        self.soon()

    def _is_routing(self, name: str) -> bool:
        queue = self.config.queues.get(name)
        return queue is not None and bool(queue.route_destinations)

    def _waits_later(self, job: Job) -> bool:
        """Whether its dependencies are registered when it comes to a queue that runs jobs."""
        return self.config.routes_dependents and self._is_routing(job.queue)

    def _route(self, job: Job) -> bool:
        """Passes a job of a routing queue on; false where no destination will ever take it."""
        queue = self.config.queues.get(job.queue)
        if queue is None or not queue.route_destinations or job.state != QUEUED or not queue.started:
            return True
        waits = False
        for name in queue.route_destinations:
            target = self.config.queues.get(name)
            if target is None or self._is_too_large(job.array, target) or self._exceeds(job.request, target):
                continue
            if target.enabled and not self._is_over_limit(job.owner.user, len(job.elements), target):
                waited = self._waits_later(job)
                job.queue = name
                if waited:
                    self.dependencies.enter(job)
                return True
            waits = True
        return waits

    # Starting.

    def soon(self) -> None:
        """The next cycle of the scheduler."""
        if not self._is_due:
            self._is_due = True
            self.loop.after(self.config.cycle, self._cycle)

    def _cycle(self) -> None:
        self._is_due = False
        try:
            self.refresh()
        except Exception:  # pylint: disable=broad-except
            # Said to the next client.
            pass
        if not self.config.scheduling:
            self.soon()
            return
        waiting = [job for job in self.jobs.values() if job.queued and job.state in (QUEUED, BEGUN) and not job.holds]
        for job in sorted(waiting, key=self._turn):
            if not job.is_finished and not job.holds:
                self._start_some(job)
        if waiting:
            self.soon()

    def _turn(self, job: Job) -> Tuple[int, int]:
        """Whose turn it is: by priority, then in the order of submission, in a routing queue perhaps the other way round."""
        newest_first = self._waits_later(job)
        return -int(job.submission.options.get("p", "0")), -job.sequence if newest_first else job.sequence

    def _start_some(self, job: Job) -> None:
        queue = self.config.queues.get(job.queue)
        if queue is not None and queue.route_destinations:
            if not self._route(job):
                # Unlike a job that was never held, it leaves a record; what waits for it waits for ever.
                job.comment = "" if job.array is None else "Subjob finished"
                job.finish(model.SUB_FINISHED)
            return
        if queue is None or not queue.started:
            job.comment = "Not Running: Queue not started."
            return
        for index in list(job.queued):
            running = len(job.in_state(RUNNING))
            if job.limit is not None and running >= job.limit:
                self._comment(job, "Not Running: Number of concurrent running subjobs limit reached")
                return
            in_queue = sum(len(one.in_state(RUNNING)) for one in self.jobs.values() if one.queue == job.queue)
            if queue.max_run is not None and in_queue >= queue.max_run:
                self._comment(job, f"Not Running: User has reached queue {queue.name} running job limit.")
                return
            placements = self.hosts.place(job.request, self.config.hosts)
            if placements is None:
                self._comment(job, self.hosts.why_not(job.request, self.config.hosts))
                return
            element = job.elements[index]
            element.placements = placements
            if not self._start(element):
                return

    @staticmethod
    def _comment(job: Job, text: str) -> None:
        if job.state != BEGUN:
            job.comment = text

    def _start(self, element: Element) -> bool:
        job = element.job
        element.run_count += 1
        run = Run(element, self.config, self.home, self.loop, self._ended)
        if not run.begin():
            self.hosts.free(element.placements)
            if element.run_count > STARTS:
                job.comment = "job held, too many failed attempts to run"
                if job.array is not None:
                    job.comment = f"Job Array Held, too many failed attempts to run subjob {element.id}"
                job.hold("s")
            return False
        now = time.time()
        self.runs.append(run)
        element.run = run
        element.has_record = True
        element.session = run.sessions[0]
        element.exit_status = element.stageout = element.usage = element.obittime = None
        element.state, element.substate = RUNNING, model.SUB_RUNNING
        element.stime = element.mtime = now
        element.comment = f"Job run at {model.minute(now)} on {element.exec_vnode}"
        del job.queued[element.index]
        job.touch()
        is_first = job.stime is None
        if job.array is None:
            job.state, job.substate, job.comment, job.stime = RUNNING, model.SUB_RUNNING, element.comment, now
        elif job.state != BEGUN:
            job.state, job.substate, job.stime = BEGUN, model.SUB_BEGUN, now
            job.comment = f"Job Array Began at {model.minute(now)}"
        if is_first:
            self.dependencies.started(job)
        return True

    # Ending.

    def _ended(self, element: Element) -> None:
        run: Run = element.run
        job = element.job
        self.runs.remove(run)
        element.run = None
        self.hosts.free(element.placements)
        if run.reason == "rerun" and not job.is_deleted:
            self._requeue(element)
            return
        element.stageout = int(run.stage_out())
        now = time.time()
        element.exit_status = run.exit_status
        element.obittime = element.mtime = now
        job.last_exit = element.exit_status
        job.exit_status = self._shown_exit(job, element)
        if element.stageout == 0 or job.stageout is None:
            job.stageout = element.stageout
        if run.reason == "delete":
            # The comment says so since the qdel.
            element.substate, ending = model.SUB_TERMINATED, ""
        elif run.reason == "walltime":
            element.substate, ending = model.SUB_FAILED, " and exceeded resource walltime"
        elif element.exit_status:
            element.substate, ending = model.SUB_FAILED, " and failed"
        else:
            element.substate, ending = model.SUB_FINISHED, " and finished"
        element.comment += ending
        for done in self.requeued.pop(element.id, []):
            done()
        if job.array is None:
            element.state = FINISHED
            job.obittime, job.comment = now, element.comment
            self._finish(job, element.substate)
            return
        element.state = EXPIRED
        job.touch()
        if not self.config.history:
            element.drop()
        self.settle_array(job)

    def _shown_exit(self, job: Job, element: Element) -> int:
        """An array shows what its last element to end makes of it, and nothing of one that PBS itself ended."""
        status = element.exit_status or 0
        if job.array is None:
            return status
        if self.config.release() >= (22, 5):
            return 1 if status > 0 else 0
        # Before, all elements counted.
        worst = 2 if status < 0 else int(status > 0)
        return max(worst, job.exit_status or 0)

    def _requeue(self, element: Element) -> None:
        job = element.job
        element.state, element.substate = QUEUED, model.SUB_QUEUED
        element.session = None
        element.placements = []
        order = list(job.elements)
        job.queued[element.index] = None
        job.queued = dict.fromkeys(sorted(job.queued, key=order.index))
        if job.array is None:
            job.state, job.substate = QUEUED, model.SUB_QUEUED
            job.settle()
        for done in self.requeued.pop(element.id, []):
            done()
        self.soon()

    def settle_array(self, job: Job) -> None:
        """Ends an array of which nothing is left to run."""
        if job.is_finished or job.is_ending or job.queued or job.in_state(RUNNING):
            return
        substate = model.SUB_FINISHED
        if job.is_deleted:
            substate = model.SUB_TERMINATED
        else:
            # The first element that is not well decides, by its index.
            ends = [one.substate for one in job.elements.values() if one.has_record]
            substate = next((one for one in ends if one != model.SUB_FINISHED), substate)
        if job.state == BEGUN:
            job.obittime = time.time()
        self._finish(job, substate, model.ENDS[substate])

    def _finish(self, job: Job, substate: int, ends: str = "") -> None:
        if self.config.ends_late > 0 and job.stime is not None:
            # What waits is released now; what registers from here on is not.
            job.is_ending = True
            if job.array is None:
                job.state = job.only.state = model.EXITING
            self.dependencies.ended(job)
            self._end_late(time.monotonic(), lambda: self._forget(job, substate, ends))
            self.soon()
            return
        job.finish(substate, ends)
        self.dependencies.ended(job)
        self._forget(job, substate, ends)

    def _end_late(self, since: float, end: Callable[[], None]) -> None:
        """Ends a job when the time for that is over, which a test may cut short."""
        if time.monotonic() - since >= self.refresh().ends_late:
            end()
        else:
            self.loop.after(self.config.cycle, lambda: self._end_late(since, end))

    def _forget(self, job: Job, substate: int, ends: str) -> None:
        """Makes history of what has ended, for as long as there is one."""
        if not job.is_finished:
            job.finish(substate, ends)
        if not self.config.history:
            self.jobs.pop(job.sequence, None)
        elif self.config.history_duration is not None:
            self.loop.after(self.config.history_duration, lambda: self._drop(job))
        self.soon()

    def _drop(self, job: Job) -> None:
        self.jobs.pop(job.sequence, None)

    def alter(self, job: Job, dependencies: List[Dependency]) -> None:
        """qalter of what a job waits for, and of what waits for it."""
        self.dependencies.alter(job, dependencies)
        self.soon()

    def delete_by_dependency(self, job: Job) -> None:
        """Removes a job that can never run."""
        refuse_comment(job)
        self._finish(job, model.SUB_FINISHED)

    def delete(self, job: Job, at_once: bool) -> None:
        """qdel of a whole job."""
        if job.is_ending:
            return
        job.is_deleted = True
        if job.array is None and job.state != RUNNING:
            job.comment = ""
            self._finish(job, model.SUB_TERMINATED)
            return
        for element in job.elements.values():
            if element.run is not None:
                self._terminate(element, at_once)
            elif job.array is not None and job.state == BEGUN:
                # Also of those that ended on their own: their records are gone.
                element.state = EXPIRED
                element.drop()
        job.queued.clear()
        if job.array is not None:
            self.settle_array(job)

    @staticmethod
    def _terminate(element: Element, at_once: bool) -> None:
        """The comment tells of it at once, the state when the job has ended."""
        run = element.run
        if run is not None and not (run.reason or run.is_over):
            element.comment += f" and terminated by {element.job.owner.user}@{ids.SERVER}"
            run.stop("delete", at_once)

    def delete_element(self, element: Element, at_once: bool) -> None:
        """qdel of one element of an array."""
        job = element.job
        if element.run is not None:
            self._terminate(element, at_once)
        elif element.state == QUEUED:
            element.state = EXPIRED
            element.drop()
            job.queued.pop(element.index, None)
            job.touch()
            self.settle_array(job)
