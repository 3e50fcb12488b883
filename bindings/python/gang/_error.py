"""The results of libgang as exceptions."""

from __future__ import annotations

import enum
from typing import Any

from ._library import library


class Result(enum.IntEnum):
    """Why a call failed, as in gang.h."""

    INVALID = 1
    NO_DAEMON = 2
    NO_SUCH_JOB = 3
    NO_SUCH_PROCESS = 4
    NOT_PERMITTED = 5
    LIMIT = 6
    NOT_ENOUGH = 7
    NO_ANSWER = 8
    FAILED = 9
    UNSUPPORTED = 10


class Error(Exception):
    """A call failed; `code` is the result of libgang."""

    code: Result | int = Result.FAILED


class Invalid(Error, ValueError):
    """An argument is out of bounds."""

    code = Result.INVALID


class NoDaemon(Error):
    """No daemon listens."""

    code = Result.NO_DAEMON


class NoSuchJob(Error):
    """The job has ended, or was never there."""

    code = Result.NO_SUCH_JOB


class NoSuchProcess(Error):
    """There is no such process, or it is not in the job."""

    code = Result.NO_SUCH_PROCESS


class NotPermitted(Error):
    """The job or the process belongs to somebody else, or takes an administrator."""

    code = Result.NOT_PERMITTED


class LimitReached(Error):
    """A limit of the daemon is reached: jobs, CPUs, connections."""

    code = Result.LIMIT


class NotEnough(Error):
    """There is not as much memory or disk as was asked for."""

    code = Result.NOT_ENOUGH


class NoAnswer(Error):
    """The daemon did not answer in time, or went away in the middle."""

    code = Result.NO_ANSWER


class Failed(Error):
    """The kernel or the machine refused."""

    code = Result.FAILED


class Unsupported(Error):
    """The daemon does not know the request: it is of another version."""

    code = Result.UNSUPPORTED


_KINDS = {kind.code: kind for kind in Error.__subclasses__()}


def ask(function: Any, *arguments: Any) -> None:
    """Calls a function of libgang, and raises what it failed with."""
    code = function(*arguments)
    if code == 0:
        return
    # Both are of this thread: ctypes calls from the thread that asks.
    text = library.gang_error() or library.gang_result_text(code)
    error = _KINDS.get(code, Error)(text.decode(errors="replace"))
    error.code = Result(code) if code in _KINDS else code
    raise error
