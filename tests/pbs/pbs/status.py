"""What the server tells of jobs, queues and itself: attributes in PBS's order, not yet in any form."""

import math
import time
from typing import Any, Dict, List, Optional, Tuple

from . import dependencies, ids, places
from .model import EXPIRED, FINISHED, QUEUED, RUNNING, Element, Job, Usage
from .config import Queue
from .resources import clock, seconds
from .running import used_now
from .server import Server

# A value is a text, a number, or the parts of a list.
Attributes = List[Tuple[str, Any]]


def date(moment: Optional[float]) -> Optional[str]:
    """Local time, as ctime has it."""
    return None if moment is None else time.ctime(moment)


def _jsdl(kind: str, text: str) -> str:
    for char, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, name)
    return f"<jsdl-hpcpa:{kind}>{text}</jsdl-hpcpa:{kind}>"


def _used(usage: Usage, ncpus: int) -> Dict[str, Any]:
    return {
        "cpupercent": usage.cpupercent,
        "cput": clock(usage.cput),
        "mem": f"{usage.mem}kb",
        "ncpus": ncpus,
        "vmem": f"{usage.mem}kb",
        "walltime": clock(usage.walltime),
    }


def _fixed(job: Job) -> Dict[str, Any]:
    """What never changes, made once a job."""
    if not job.cache:
        options, submission = job.submission.options, job.submission
        command = submission.command
        job.cache.update(
            {
                "Join_Path": options.get("j", "n"),
                "Keep_Files": options.get("k", "n"),
                "Mail_Points": options.get("m", "a"),
                "Priority": int(options.get("p", "0")),
                "Rerunable": "False" if options.get("r") == "n" else "True",
                "Resource_List": job.request.shown,
                "Variable_List": job.variables,
                "umask": int(submission.attributes["umask"]) if "umask" in submission.attributes else None,
                "executable": _jsdl("Executable", command[0]) if command else None,
                "argument_list": "".join(_jsdl("Argument", word) for word in command[1:]) or None,
            }
        )
    return job.cache


def _array(job: Job) -> Attributes:
    if job.array is None:
        return []
    if job.is_finished:
        counts = (0, 0, 0, sum(one.is_dropped for one in job.elements.values()))
    else:
        running = job.in_state(RUNNING)
        counts = (len(job.queued), len(running), 0, len(job.in_state(EXPIRED)))
    left = [index for index in job.queued if index is not None]
    return [
        ("array", "True"),
        ("array_state_count", "Queued:{} Running:{} Exiting:{} Expired:{}".format(*counts)),
        ("array_indices_submitted", job.array.text),
        ("array_indices_remaining", ids.remaining(left, job.array)),
    ]


def of_job(job: Job) -> Attributes:
    """A plain job, or an array as a whole."""
    element = job.only if job.array is None else None
    found = _common(job, element, job.state, job.substate, job.comment)
    found += _array(job)
    found += [
        ("history_timestamp", None if job.history_time is None else int(job.history_time)),
        ("project", job.submission.options.get("P", "_pbs_project_default")),
        ("Submit_Host", ids.SERVER),
        ("max_run_subjobs", job.limit),
    ]
    return [(name, value) for name, value in found if value is not None]


def of_element(element: Element) -> Attributes:
    """One index of an array: its own record, or one made up from the array."""
    job = element.job
    if not element.has_record:
        substate = element.substate if element.state == QUEUED else job.substate
        comment = job.comment if element.state == QUEUED else "Subjob finished"
        found = _common(job, None, element.state, substate, comment)
        return [(name, value) for name, value in found if value is not None]
    found = _common(job, element, element.state, element.substate, element.comment)
    found = [pair for pair in found if pair[0] not in ("Checkpoint", "Hold_Types", "Submit_arguments", "depend")]
    found += [
        ("array_id", job.id),
        ("array_index", element.index),
        ("history_timestamp", None if element.obittime is None else int(element.obittime)),
        ("project", job.submission.options.get("P", "_pbs_project_default")),
        ("Submit_Host", ids.SERVER),
    ]
    return [(name, value) for name, value in found if value is not None]


def _common(job: Job, element: Optional[Element], state: str, substate: int, comment: str) -> Attributes:
    """What plain jobs, arrays and elements have; `element` where something ran."""
    ran = element if element is not None and (element.has_record or element.run_count) else None
    fixed = _fixed(job)
    used = None
    if ran is not None and ran.stime is not None and ran.state != QUEUED:
        usage = ran.usage or (used_now(ran.run) if ran.run is not None else Usage())
        used = _used(usage, job.request.total("ncpus"))
    shown_paths = [
        places.expanded(ran, letter) if ran is not None else places.shown(job, letter) for letter in ("e", "o")
    ]
    is_own = ran is not None and job.array is not None
    times = ran if ran is not None and is_own else job
    status = ran.exit_status if ran is not None and is_own else job.exit_status
    stageout = ran.stageout if ran is not None and is_own else job.stageout
    return [
        ("Job_Name", job.submission.name),
        ("Job_Owner", f"{job.owner.user}@{ids.SERVER}"),
        ("resources_used", used),
        ("job_state", state),
        ("queue", job.queue),
        ("server", ids.SERVER),
        ("Account_Name", job.submission.options.get("A")),
        ("Checkpoint", "u"),
        ("ctime", date(job.ctime)),
        ("depend", dependencies.shown(job) or None),
        ("Error_Path", shown_paths[0]),
        ("exec_host", ran.exec_host or None if ran is not None else None),
        ("exec_vnode", ran.exec_vnode or None if ran is not None else None),
        ("Hold_Types", "".join(sorted(job.holds, reverse=True)) or "n"),
        ("Join_Path", fixed["Join_Path"]),
        ("Keep_Files", fixed["Keep_Files"]),
        ("Mail_Points", fixed["Mail_Points"]),
        ("Mail_Users", job.submission.options.get("M")),
        ("mtime", date(times.mtime)),
        ("Output_Path", shown_paths[1]),
        ("Priority", fixed["Priority"]),
        ("qtime", date(job.qtime)),
        ("Rerunable", fixed["Rerunable"]),
        ("Resource_List", fixed["Resource_List"]),
        ("stime", date(times.stime)),
        ("obittime", date(times.obittime)),
        ("Shell_Path_List", job.submission.options.get("S")),
        ("session_id", ran.session if ran is not None else None),
        ("jobdir", job.owner.home if ran is not None and ran.session is not None else None),
        ("substate", substate),
        ("Variable_List", fixed["Variable_List"]),
        ("comment", comment or None),
        ("etime", date(job.etime)),
        ("umask", fixed["umask"]),
        ("run_count", ran.run_count if ran is not None else None),
        ("Stageout_status", stageout),
        ("Exit_status", status),
        ("Submit_arguments", job.arguments or None),
        ("executable", fixed["executable"]),
        ("argument_list", fixed["argument_list"]),
    ]


STATES = (
    ("Transit", "T"),
    ("Queued", "Q"),
    ("Held", "H"),
    ("Waiting", "W"),
    ("Running", "R"),
    ("Exiting", "E"),
    ("Begun", "B"),
)


def counts(server: Server, queue: Optional[str]) -> Dict[str, int]:
    """How many jobs are in which state; elements are counted where they run."""
    found = {name: 0 for name, _ in STATES}
    names = {letter: name for name, letter in STATES}
    for job in server.jobs.values():
        if (queue is None or job.queue == queue) and job.state in names:
            found[names[job.state]] += 1
            if job.array is not None:
                found["Running"] += len(job.in_state(RUNNING))
    return found


def total(server: Server, queue: Optional[str]) -> int:
    """All jobs but those in history."""
    return sum(job.state != FINISHED for job in server.jobs.values() if queue is None or job.queue == queue)


def _state_count(server: Server, queue: Optional[str]) -> str:
    return "".join(f"{name}:{count} " for name, count in counts(server, queue).items())


def _assigned(server: Server, queue: Optional[str]) -> Dict[str, Any]:
    running = [
        job.request
        for job in server.jobs.values()
        if queue is None or job.queue == queue
        for _ in job.in_state(RUNNING)
    ]
    ranks = sum(chunk.mpiprocs or 0 for request in running for chunk in request.chunks)
    ncpus = sum(request.total("ncpus") for request in running)
    return {"mpiprocs": ranks, "ncpus": ncpus, "nodect": sum(len(request.chunks) for request in running)}


def of_queue(server: Server, queue: Queue) -> Attributes:
    """One queue."""
    longest = seconds(queue.max_walltime) if queue.max_walltime else None
    usual = seconds(queue.default_walltime) if queue.default_walltime else None
    limits = {"ncpus": queue.max_ncpus, "walltime": None if longest is None else clock(longest)}
    limits = {name: value for name, value in limits.items() if value is not None}
    found: Attributes = [
        ("queue_type", "Route" if queue.route_destinations else "Execution"),
        ("Priority", queue.priority),
        ("total_jobs", total(server, queue.name)),
        ("state_count", _state_count(server, queue.name)),
        ("max_queued", _limit(queue.max_queued)),
        ("resources_max", limits or None),
        ("resources_min", None if queue.min_nodes is None else {"nodect": queue.min_nodes}),
        ("resources_default", None if usual is None else {"walltime": clock(usual)}),
        ("max_array_size", queue.max_array_size),
        ("kill_delay", None if queue.kill_delay is None else int(queue.kill_delay)),
        ("route_destinations", ",".join(queue.route_destinations) or None),
        ("resources_assigned", None if queue.route_destinations else _assigned(server, queue.name)),
        ("enabled", str(queue.enabled)),
        ("started", str(queue.started)),
        ("max_run", _limit(queue.max_run)),
    ]
    return [(name, value) for name, value in found if value is not None]


def _limit(count: Optional[int], whose: str = "u:PBS_GENERIC") -> Optional[str]:
    return None if count is None else f"[{whose}={count}]"


def of_server(server: Server) -> Attributes:
    """The server itself."""
    config = server.config
    found: Attributes = [
        ("server_state", "Active"),
        ("server_host", ids.SERVER),
        ("scheduling", str(config.scheduling)),
        ("max_queued", _limit(config.max_queued)),
        ("max_queued", _limit(config.max_queued_all, "o:PBS_ALL")),
        ("total_jobs", len(server.jobs)),
        ("state_count", _state_count(server, None)),
        ("acl_host_enable", "False"),
        ("default_queue", config.default_queue),
        ("log_events", 511),
        ("mailer", "/usr/sbin/sendmail"),
        ("mail_from", "adm"),
        ("query_other_jobs", "True"),
        ("resources_default", {"ncpus": 1}),
        ("default_chunk", {"ncpus": 1}),
        ("resources_assigned", _assigned(server, None)),
        ("scheduler_iteration", 20),
        ("flatuid", "True"),
        ("resv_enable", "True"),
        ("node_fail_requeue", 310),
        ("max_array_size", config.max_array_size),
        ("resend_term_delay", 5),
        ("pbs_license_min", 0),
        ("pbs_license_max", 2147483647),
        ("pbs_license_linger_time", 31536000),
        ("license_count", "Avail_Global:1000000 Avail_Local:1000000 Used:0 High_Use:0"),
        ("pbs_version", config.version),
        ("eligible_time_enable", "False"),
        ("job_history_enable", None if config.history is None else str(config.history)),
        (
            "job_history_duration",
            None if config.history_duration is None else clock(math.ceil(config.history_duration)),
        ),
        ("max_concurrent_provision", 5),
        ("clear_topjob_estimates_enable", "False"),
        ("max_job_sequence_id", 9999999),
    ]
    return [(name, value) for name, value in found if value is not None]
