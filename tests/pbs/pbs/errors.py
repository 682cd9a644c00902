"""Refusals: the numbers and texts by which PBS says no."""

UNKNOWN_JOB = 15001
NO_ATTRIBUTE = 15002
INVALID_REQUEST = 15004
PERMISSION = 15007
UNKNOWN_SIGNAL = 15013
BAD_VALUE = 15014
BAD_STATE = 15016
UNKNOWN_QUEUE = 15018
QUEUE_NOT_ENABLED = 15021
UNKNOWN_RESOURCE = 15035
EXCEEDS_RESOURCES = 15036
NOT_RERUNABLE = 15038
FINISHED = 15139
OVER_LIMIT = 15142
ARRAY_TOO_LARGE = 15107

TEXTS = {
    UNKNOWN_JOB: "Unknown Job Id",
    INVALID_REQUEST: "Invalid request",
    PERMISSION: "Unauthorized Request ",
    UNKNOWN_SIGNAL: "Unknown/illegal signal name",
    BAD_VALUE: "Illegal attribute or resource value",
    BAD_STATE: "Request invalid for state of job",
    UNKNOWN_QUEUE: "Unknown queue",
    QUEUE_NOT_ENABLED: "Queue is not enabled",
    UNKNOWN_RESOURCE: "Unknown resource",
    EXCEEDS_RESOURCES: "Job violates queue and/or server resource limits",
    NOT_RERUNABLE: "job is not rerunnable",
    FINISHED: "Job has finished",
    ARRAY_TOO_LARGE: "Array job exceeds server or queue size limit",
}


class Refusal(Exception):
    """The server's no: a PBS error number and its text."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(number, text)
        self.number = number
        self.text = text or TEXTS.get(number, "")

    @property
    def code(self) -> int:
        """The exit code of the client that was refused."""
        return self.number & 255


class Misuse(Exception):
    """What a client finds wrong by itself: its message, before the usage, and the exit code."""

    def __init__(self, text: str, code: int = 2, usage: bool = True) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.usage = usage
