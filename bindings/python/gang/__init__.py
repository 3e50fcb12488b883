"""Parallel programs as gangs, scheduled by gangd.

    with gang.job(cpus=4):
        solve()          # all of its threads and processes run at the same moment
"""

from ._error import (
    Error,
    Failed,
    Invalid,
    LimitReached,
    NoAnswer,
    NoDaemon,
    NoSuchJob,
    NoSuchProcess,
    NotEnough,
    NotPermitted,
    Result,
    Unsupported,
)
from ._job import (
    Class,
    Job,
    Load,
    State,
    Use,
    adopt,
    current,
    job,
    load,
    open,
    register,
)
from ._page import Page

__all__ = [
    "Class",
    "Error",
    "Failed",
    "Invalid",
    "Job",
    "LimitReached",
    "Load",
    "NoAnswer",
    "NoDaemon",
    "NoSuchJob",
    "NoSuchProcess",
    "NotEnough",
    "NotPermitted",
    "Page",
    "Result",
    "State",
    "Unsupported",
    "Use",
    "adopt",
    "current",
    "job",
    "load",
    "open",
    "register",
]
