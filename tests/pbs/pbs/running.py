"""Jobs under way: their processes as the execution daemon starts them, and every way of ending them."""

import os
import secrets
import shutil
import signal
import time
from typing import Callable, Dict, List, Optional

from . import loop as loops
from . import places
from .config import Config
from .loop import Loop, Used
from .model import Element, Usage

# Exit statuses that PBS makes up.
WALLTIME, NO_PROGRAM = -29, 254
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How often the end of a session is looked for, in seconds.
LOOK = 0.01
# The variables of a job in whose tasks they are missing.
NOT_IN_TASKS = ("PBS_ARRAY_INDEX", "PBS_ARRAY_ID", "LOGNAME", "USER", "SHELL")


def decoded(status: int) -> int:
    """A wait status as PBS has it: 256 and the signal for what was killed."""
    return 256 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def start(argv: List[str], name: str, environment: Dict[str, str], folder: str, files: List[int], umask: int) -> int:
    """Starts a program as the leader of a session of its own; returns its process number."""
    # No signal may reach the child while it still has the handlers of this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writing)
        # Its session is there when this returns.
        os.read(reading, 1)
        os.close(reading)
        return pid
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, *ENDING):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(writing)
        os.umask(umask)
        for at, file in enumerate(files):
            os.dup2(file, at)
        try:
            os.chdir(folder)
        except OSError:
            os.chdir("/")
        os.execvpe(name, argv, environment)
    except BaseException:  # pylint: disable=broad-except
        try:
            os.write(2, f"{name}: No such file or directory\n".encode())
        except OSError:
            pass
    finally:
        os._exit(NO_PROGRAM)
    raise AssertionError("unreachable")


class Run:
    """One run of an element: from its start to the last of its processes."""

    def __init__(
        self, element: Element, config: Config, home: str, loop: Loop, ended: Callable[[Element], None]
    ) -> None:
        self.element = element
        self.config = config
        self.home = home
        self.loop = loop
        self.ended = ended
        self.began = time.monotonic()
        # Leaders of sessions: the job's own, then those of its tasks.
        self.sessions: List[int] = []
        self.tasks: Dict[str, int] = {}
        self.status: Optional[int] = None
        # Why it is being ended: delete, rerun, walltime.
        self.reason = ""
        self.is_over = False
        self.cookie = secrets.token_hex(16).upper()
        self.umask = places.mask(element.job, config.umask)
        self.hosts = list(dict.fromkeys(one.host for one in element.placements))

    # What lies in the daemon's folder.

    def path(self, *names: str) -> str:
        """A path below the scheduler's folder."""
        return os.path.join(self.home, *names)

    def spooled(self, letter: str) -> str:
        """Where standard output (o) or error (e) is kept while it runs."""
        return self.path("spool", f"{self.element.id}.{'OU' if letter == 'o' else 'ER'}")

    @property
    def _script(self) -> str:
        return self.path("jobs", f"{self.element.id}.SC")

    @property
    def _scratch(self) -> str:
        return self.path("tmp", f"pbs.{self.element.id}")

    def _prepare(self) -> None:
        for name in ("jobs", "aux", "spool", "tmp"):
            os.makedirs(self.path(name), exist_ok=True)
        os.makedirs(self._scratch, mode=0o700, exist_ok=True)
        lines = [f"{one.host}\n" * one.chunk.ranks for one in self.element.placements]
        with open(self.path("aux", self.element.id), "w", encoding="utf-8") as file:
            file.write("".join(lines))
        script = self.element.job.submission.script
        if script is not None:
            with open(self._script, "wb") as binary:
                binary.write(script)
            os.chmod(self._script, 0o700)

    def environment(self, host: str) -> Dict[str, str]:
        """What PBS sets for a job on one of its hosts, on top of what the submission sent along."""
        element, job = self.element, self.element.job
        threads = str(job.request.chunks[0].threads)
        number = self.hosts.index(host)
        found = {
            **job.variables,
            "PATH": "/bin:/usr/bin",
            "HOME": job.owner.home,
            "LOGNAME": job.owner.user,
            "USER": job.owner.user,
            "SHELL": "/bin/bash",
            "ENVIRONMENT": "BATCH",
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_JOBNAME": job.submission.name,
            "PBS_JOBID": element.id,
            "PBS_QUEUE": job.queue,
            "PBS_JOBCOOKIE": self.cookie,
            "PBS_JOBDIR": job.owner.home,
            "PBS_MOMPORT": f"15{number + 1}03",
            "PBS_NODENUM": str(number),
            "PBS_NODEFILE": self.path("aux", element.id),
            "PBS_TASKNUM": "1",
            "NCPUS": threads,
            "OMP_NUM_THREADS": threads,
            "TMPDIR": self._scratch,
            # Not of PBS: how its clients find this scheduler, and which host this pretends to be.
            "TEST_PBS_HOME": self.home,
            "HPCSWEEP_TEST_HOST": host,
        }
        if element.index is not None:
            found["PBS_ARRAY_INDEX"] = str(element.index)
            found["PBS_ARRAY_ID"] = job.id
        return found

    # Its start.

    def begin(self) -> bool:
        """Starts the job's own program; false where its output cannot be opened."""
        self._prepare()
        job = self.element.job
        files = self._open()
        if files is None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            return False
        reading, writing = os.pipe()
        host = self.hosts[0]
        environment = self.environment(host)
        if job.submission.script is None:
            argv, program = job.submission.command, job.submission.command[0]
        else:
            program = job.submission.options.get("S", "/bin/bash").split("@")[0]
            argv = ["-" + os.path.basename(program)]
            # As a site's /etc/profile.d does it: a login shell forgets the PATH that it is given.
            clients = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin")
            line = f"PATH={quoted(clients)}:$PATH {quoted(self._script)}\n"
            os.write(writing, line.encode())
        os.close(writing)
        pid = start(argv, program, environment, job.owner.home, [reading, *files], self.umask)
        for file in {reading, *files}:
            os.close(file)
        self.sessions = [pid]
        self.loop.on_end(pid, self._top_ended)
        if job.request.walltime is not None:
            self.loop.after(self.config.walltime_poll, self._watch)
        return True

    def _open(self) -> Optional[List[int]]:
        """Standard output and standard error of the job."""
        again = self.element.run_count > 1
        opened: Dict[str, int] = {}
        for letter in places.streams(self.element.job):
            if letter in opened:
                continue
            path = self.spooled(letter)
            umask = self.umask
            if places.is_direct(self.element.job, letter):
                path = places.target(self.element, letter)
            else:
                umask = 0o077
            try:
                opened[letter] = places.open_for(path, umask, again)
            except OSError:
                for file in opened.values():
                    os.close(file)
                return None
        return [opened[letter] for letter in places.streams(self.element.job)]

    # Tasks.

    def task(self, host: str, argv: List[str], ended: Callable[[int], None]) -> None:
        """Starts a program on one of the job's hosts, as pbs_tmrsh and pbsdsh do."""
        number = self.hosts.index(host)
        self.tasks[host] = self.tasks.get(host, 0 if number else 1) + 1
        environment = self.environment(host)
        for name in NOT_IN_TASKS:
            environment.pop(name, None)
        if number == 0:
            del environment["PBS_NODEFILE"]
        environment["PBS_TASKNUM"] = f"{number * 0x20000000 + self.tasks[host]:08X}"
        # The same path on every host, where hosts have disks of their own; daemons of an MPI meet in one that they share.
        environment["TMPDIR"] = os.path.join(self._scratch, host)
        os.makedirs(environment["TMPDIR"], mode=0o700, exist_ok=True)
        files = [os.open("/dev/null", os.O_RDONLY), *(self._open_again() or [])]
        pid = start(argv, argv[0], environment, self.element.job.owner.home, files, self.umask)
        for file in set(files):
            os.close(file)
        self.sessions.append(pid)
        self.loop.on_end(pid, lambda status, _: ended(decoded(status)))

    def _open_again(self) -> Optional[List[int]]:
        count, self.element.run_count = self.element.run_count, 2
        try:
            return self._open()
        finally:
            self.element.run_count = count

    # Its end.

    def signal(self, number: int) -> None:
        """Sends a signal to every process of its sessions."""
        loops.kill(loops.in_sessions(self.sessions), number)

    def _watch(self) -> None:
        limit = self.element.job.request.walltime
        if limit is None or self.is_over or self.status is not None:
            return
        used = time.monotonic() - self.began
        if used <= limit:
            self.loop.after(self.config.walltime_poll, self._watch)
        elif not self.reason:
            self._complain(f"=>> PBS: job killed: walltime {int(used)} exceeded limit {limit}\n")
            self.stop("walltime")

    def _complain(self, text: str) -> None:
        files = self._open_again()
        if files is not None:
            os.write(files[1], text.encode())
            for file in set(files):
                os.close(file)

    def stop(self, reason: str, at_once: bool = False) -> None:
        """SIGTERM, the delay, SIGKILL."""
        if self.reason or self.is_over:
            return
        self.reason = reason
        queue = self.config.queues.get(self.element.job.queue)
        delay = self.config.kill_delay
        if queue is not None and queue.kill_delay is not None:
            delay = queue.kill_delay
        if at_once:
            self._kill()
            return
        self.signal(signal.SIGTERM)
        self.loop.after(delay, self._kill)
        if reason != "walltime" and not self.config.sees_ends_late:
            self.loop.after(LOOK, self._look)

    def _look(self) -> None:
        """Whether nothing is left to be killed: at the walltime's end the whole delay is waited all the same."""
        if self.is_over:
            return
        if self.status is not None and not loops.in_sessions(self.sessions):
            self._over()
        else:
            self.loop.after(LOOK, self._look)

    def _kill(self) -> None:
        if self.is_over:
            return
        left = loops.in_sessions(self.sessions)
        loops.kill(left, signal.SIGKILL)
        if left or self.status is None:
            self.loop.after(LOOK, self._kill)
        else:
            self._over()

    def _top_ended(self, status: int, used: Used) -> None:
        self.status = status
        walltime = time.monotonic() - self.began
        cpu = int(100 * used.cpu / walltime) if walltime > 1 else 0
        self.element.usage = Usage(int(used.cpu), int(walltime), used.memory, cpu)
        if not self.reason:
            # Processes that it leaves in its session end with it.
            self._kill()

    def _over(self) -> None:
        self.is_over = True
        element = self.element
        if element.usage is not None:
            element.usage.walltime = int(time.monotonic() - self.began)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.ended(element)

    @property
    def exit_status(self) -> int:
        """As PBS reports it."""
        if self.reason == "walltime":
            return WALLTIME
        return decoded(self.status or 0)

    def stage_out(self) -> bool:
        """Copies the output to where it belongs."""
        is_good = True
        for letter in dict.fromkeys(places.streams(self.element.job)):
            target = places.target(self.element, letter)
            if letter in self.element.job.submission.options.get("R", ""):
                source = target if places.is_direct(self.element.job, letter) else self.spooled(letter)
                os.unlink(source)
            elif not places.is_direct(self.element.job, letter):
                is_good &= places.copy(self.spooled(letter), target, self.umask, self.path("undelivered"))
        for name in (self._script, self.path("aux", self.element.id)):
            try:
                os.unlink(name)
            except FileNotFoundError:
                pass
        return is_good


def quoted(text: str) -> str:
    """For any shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def used_now(run: Run) -> Usage:
    """`resources_used` while it runs: mostly zeros, as the poll is slow."""
    return Usage(walltime=int(time.monotonic() - run.began))
