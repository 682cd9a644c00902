"""What qsub is told: its options, the directives of the script, `-W`, and the variables of the environment."""

import getopt
import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from . import ids, resources
from .errors import NO_ATTRIBUTE, Misuse, Refusal

USAGE = """usage: qsub [-a date_time] [-A account_string] [-c interval]
	[-C directive_prefix] [-e path] [-f ] [-h ] [-I [-X]] [-j oe|eo] [-J X-Y[:Z]]
	[-k keep] [-l resource_list] [-m mail_options] [-M user_list]
	[-N jobname] [-o path] [-p priority] [-P project] [-q queue] [-r y|n]
	[-R o|e|oe] [-S path] [-u user_list] [-W otherattributes=value...]
	[-v variable_list] [-V ] [-z] [script | -- command [arg1 ...]]
       qsub --version
"""
OPTIONS = "a:A:c:C:e:fhj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:z"

# What an option's value must look like; qsub itself refuses others.
FORMS = {
    "a": r"\d{4,12}(\.\d\d)?",
    "c": r"[nsuc]|[cw]=\d+|w",
    "j": r"oe|eo|n",
    "k": r"n|[oed]+",
    "m": r"n|[abej]+",
    "p": r"-?\d{1,3}|-?10[01]\d|-?102[0-3]|-1024",
    "r": r"[yn]",
    "R": r"[oe]+",
}
AFTER = ("after", "afterok", "afternotok", "afterany")
BEFORE = ("before", "beforeok", "beforenotok", "beforeany")
# An element or a range of them is nothing that a job can wait for.
_TARGET = re.compile(r"\d+(\[\])?(\.[A-Za-z0-9.-]+)?(@[A-Za-z0-9.-]+)?")


@dataclass
class Dependency:
    """One `type:id:id` of `-W depend`."""

    kind: str
    # Full identifiers.
    ids: List[str] = field(default_factory=list)
    # The N of `on:N`.
    count: int = 0


@dataclass
class Submission:
    """All that a submission says, options and directives together."""

    options: Dict[str, str]
    resources: Dict[str, str]
    attributes: Dict[str, str]
    array: Optional[ids.ArraySpec]
    dependencies: List[Dependency]
    # None: a command follows, and no script.
    script: Optional[bytes]
    command: List[str]
    name: str


@dataclass
class _Told:
    options: Dict[str, str] = field(default_factory=dict)
    limits: List[str] = field(default_factory=list)
    others: List[str] = field(default_factory=list)


def _options(words: Sequence[str]) -> Tuple[_Told, List[str]]:
    try:
        pairs, rest = getopt.getopt(list(words), OPTIONS)
    except getopt.GetoptError as error:
        if "requires argument" in error.msg:
            raise Misuse(f"qsub: option requires an argument -- '{error.opt}'") from None
        raise Misuse(f"qsub: invalid option -- '{error.opt[:1]}'") from None
    told = _Told()
    for option, value in pairs:
        letter = option[1:]
        if letter == "l":
            told.limits.append(value)
        elif letter == "W":
            told.others.append(value)
        else:
            told.options[letter] = value
    return told, rest


def _check(options: Mapping[str, str], old: bool) -> Optional[ids.ArraySpec]:
    for letter, form in FORMS.items():
        if letter in options and not re.fullmatch(form, options[letter]):
            raise Misuse(f"qsub: illegal -{letter} value")
    name = options.get("N")
    if name is not None:
        if len(name) > 230:
            raise Misuse("qsub: Job name is too long ")
        if not re.fullmatch(r"[A-Za-z0-9_+.-]+", name):
            raise Misuse("qsub: illegal -N value")
    array = None
    if "J" in options:
        array = ids.array_spec(options["J"])
        # `%` is of 22.05.
        if array is None or (old and array.limit is not None):
            raise Misuse("qsub: illegal -J value")
        if options.get("r") == "n":
            raise Misuse("qsub:  cannot submit non-rerunable Array Job")
    return array


def _attributes(values: Sequence[str]) -> Dict[str, str]:
    """`-W a=1,b=2`: a comma begins an attribute only where an `=` follows."""
    found: Dict[str, str] = {}
    for value in values:
        last = None
        for part in value.split(","):
            name, equals, given = part.partition("=")
            if equals:
                last = name
                found[name] = given
            elif last is None:
                raise Misuse("qsub: illegal -W value")
            else:
                found[last] += "," + part
    return found


def dependencies(text: str) -> List[Dependency]:
    """The value of `depend`, checked as qsub does before it asks the server."""
    found: List[Dependency] = []
    for part in text.split(","):
        kind, _, rest = part.partition(":")
        if kind == "on" and rest.isdigit() and int(rest) > 0:
            found.append(Dependency(kind, count=int(rest)))
            continue
        targets = rest.split(":")
        known = kind in AFTER + BEFORE + ("runone",)
        if not known or not all(_TARGET.fullmatch(target) for target in targets):
            raise Misuse("qsub: illegal -W value")
        found.append(Dependency(kind, [ids.full(target) for target in targets]))
    return found


def directives(script: bytes, prefix: str) -> List[str]:
    """The words of all directives: they end at the first line that is no comment."""
    words: List[str] = []
    for line in script.decode("utf-8", "replace").split("\n"):
        if line.startswith(prefix) and line[len(prefix) :][:1] in (" ", "\t"):
            words.extend(_words(line[len(prefix) :]))
        elif line.strip() and not line.lstrip().startswith(("#", ":")):
            break
    return words


def _words(line: str) -> List[str]:
    """A directive's words: quotes keep blanks together, a backslash one character, a comment after a blank ends it."""
    words: List[str] = []
    for found in re.finditer(r"""(?:\\.|[^\s"'\\]|"[^"]*"|'[^']*')+""", line):
        word = found.group()
        if word.startswith("#"):
            break
        words.append(re.sub(r""""([^"]*)"|'([^']*)'|\\(.)""", lambda part: "".join(filter(None, part.groups())), word))
    return words


def read(words: Sequence[str], rest: Sequence[str], script: Optional[bytes], old: bool) -> Submission:
    """A submission from the words before the script or `--`, and from the script."""
    told, _ = _options(words)
    limits, others = resources.split(told.limits), _attributes(told.others)
    options = dict(told.options)
    if script is not None:
        inside, _ = _options(directives(script, options.get("C", "#PBS")))
        # The command line wins, `-l` and `-W` by what is in them.
        options = {**inside.options, **options}
        limits = {**resources.split(inside.limits), **limits}
        others = {**_attributes(inside.others), **others}
    array = _check(options, old)
    for name in others:
        if name in ("stagein", "stageout") and "@" not in others[name]:
            raise Misuse("qsub: illegal -W value")
    depend = dependencies(others["depend"]) if "depend" in others else []
    if "umask" in others and not re.fullmatch(r"[0-7]{1,4}", others["umask"]):
        raise Misuse("qsub: illegal -W value")
    for name in others:
        if name not in ("depend", "umask", "block", "group_list", "sandbox", "stagein", "stageout"):
            raise Refusal(NO_ATTRIBUTE, "Error (15002) submitting job")
    name = options.get("N") or ("STDIN" if script is None else rest[0].rsplit("/", 1)[-1])
    command = list(rest) if script is None else []
    return Submission(options, limits, others, array, depend, script, command, name)


def positions(words: Sequence[str]) -> Tuple[List[str], List[str], bool]:
    """Options, what follows them, and whether `--` stood between."""
    _, rest = _options(words)
    before = list(words[: len(words) - len(rest)])
    if before and before[-1] == "--":
        return before[:-1], rest, True
    return before, rest, False


NOT_SENT = "qsub: cannot send environment with the job"


def _parts(text: str) -> List[str]:
    """`-v` cut at its commas, with what qsub does to quotes and backslashes."""
    parts = [""]
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        following = text[at + 1 : at + 2]
        if char == "\\":
            if following in (",", '"', "'") and following:
                parts[-1] += "," if following == "," else ""
            else:
                parts[-1] += "\\\\"
            at += 1 if following and following in ",\"'\\" else 0
        elif char in "\"'":
            if quote and char != quote:
                raise Misuse(NOT_SENT, 1, usage=False)
            quote = "" if quote else char
        elif char == "," and not quote:
            parts.append("")
        else:
            parts[-1] += char
        at += 1
    if quote:
        raise Misuse(NOT_SENT, 1, usage=False)
    return parts


def variables(submission: Submission, environment: Mapping[str, str]) -> Dict[str, str]:
    """What `-v` and `-V` send along: with both, `-V` wins."""
    found: Dict[str, str] = {}
    for part in _parts(submission.options["v"]) if "v" in submission.options else []:
        name, equals, value = part.partition("=")
        if equals:
            found[name] = value
        elif name in environment:
            found[name] = environment[name].replace('"', "\\")
        elif name:
            raise Misuse(NOT_SENT, 1, usage=False)
    if "V" in submission.options:
        found.update(environment)
    return found
