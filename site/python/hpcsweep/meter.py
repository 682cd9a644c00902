"""What a call of a function has used: the process that calls it, with the children that it has waited for."""

import resource
from typing import Any, Dict, Optional

# Shorter calls record nothing: the kernel counts no finer, and measuring would cost as much.
SHORTEST = 0.001
# The peak of the process is forgotten before a call if the one before has raised it by so much, bytes.
RAISED = 1 << 20


class Meter:
    """Measures one call after the other. The peak memory of a call has what the process had before it."""

    def __init__(self) -> None:
        self._own = None  # type: Any
        self._children = None  # type: Any
        self._is_raised = False

    def begin(self) -> None:
        """A call begins."""
        if self._is_raised:
            self._is_raised = False
            try:
                with open("/proc/self/clear_refs", "w") as file:
                    file.write("5")
            except OSError:
                # The peak is that of all calls so far then.
                pass
        self._own = resource.getrusage(resource.RUSAGE_SELF)
        self._children = resource.getrusage(resource.RUSAGE_CHILDREN)

    def end(self, seconds: float) -> Optional[Dict[str, Any]]:
        """A call has ended that took so long: what it has used."""
        if seconds < SHORTEST:
            return None
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        pairs = ((own, self._own), (children, self._children))
        self._is_raised = (own.ru_maxrss - self._own.ru_maxrss) * 1024 > RAISED
        peak = own.ru_maxrss
        if children.ru_maxrss > self._children.ru_maxrss:
            peak = max(peak, children.ru_maxrss)
        return {
            "peak_memory": peak * 1024,
            "cpu_user_s": round(sum(now.ru_utime - was.ru_utime for now, was in pairs), 6),
            "cpu_system_s": round(sum(now.ru_stime - was.ru_stime for now, was in pairs), 6),
            "read_bytes": 512 * sum(now.ru_inblock - was.ru_inblock for now, was in pairs),
            "written_bytes": 512 * sum(now.ru_oublock - was.ru_oublock for now, was in pairs),
        }
