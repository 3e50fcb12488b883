"""Jobs."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import operator
import os
import sys
import threading
import weakref
from typing import Any, Callable, Iterator, NamedTuple, Optional, Union

from . import _library
from ._error import Invalid, NoAnswer, NoDaemon, NoSuchJob, NoSuchProcess, NotPermitted, ask
from ._library import library
from ._page import Page


class Class(enum.IntEnum):
    """In order of priority. Only administrators put a job into EXPRESS."""

    EXPRESS = 1
    INTERACTIVE = 2
    BATCH = 3
    STANDBY = 4


class State(enum.IntEnum):
    STARTING = 1
    WAITING = 2
    RUNNING = 3
    SLEEPING = 4
    IDLE = 5
    SUSPENDED = 6
    NOT_SCHEDULED = 7
    TOO_MANY_THREADS = 8
    TOO_FEW_CPUS = 9


class Use(NamedTuple):
    """The use of a job. Times are nanoseconds, sizes bytes, shares run from 0 to 1."""

    state: State
    processes: int
    threads: int
    slots: int
    in_slot_ns: int
    cpu_time_ns: int
    share_wanted: float
    share_had: float
    mem_used_bytes: Optional[int]


class Load(NamedTuple):
    """How busy the machine is."""

    cpus: int
    jobs: int
    load_average: float
    mem_total_bytes: int
    mem_free_bytes: int
    mem_promised_bytes: int
    disk_free_bytes: int
    disk_promised_bytes: int


class Job:
    """A job of gangd. Made by `job`, `register`, `adopt`, `open` and `current`."""

    def __init__(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle
        weakref.finalize(self, library.gang_close, handle)

    @property
    def id(self) -> int:
        number = ctypes.c_int64()
        ask(library.gang_id, self._handle, ctypes.byref(number))
        return number.value

    def __repr__(self) -> str:
        return f"<gang.Job {self.id}>"

    def __reduce__(self) -> Any:
        return (open, (self.id,))

    def add_process(self, pid: int = 0) -> None:
        """Takes a process with its threads and future children into the job; 0 is this one."""
        ask(library.gang_add_process, self._handle, _number("pid", pid, 32))

    def remove_process(self, pid: int = 0) -> None:
        """Takes it out again: it is scheduled as it was before."""
        ask(library.gang_remove_process, self._handle, _number("pid", pid, 32))

    def add_thread(self, tid: int = 0) -> None:
        """Takes a single thread into the job, by its native id; 0 is the one that calls.

        The rest of its process is none of the job, nor is what the thread starts. A job has either
        processes or single threads.
        """
        ask(library.gang_add_thread, self._handle, _number("tid", tid, 32))

    def remove_thread(self, tid: int = 0) -> None:
        """Takes it out again: it is scheduled as before. With its last thread the job ends."""
        ask(library.gang_remove_thread, self._handle, _number("tid", tid, 32))

    def set_class(self, job_class: Union[Class, str]) -> None:
        """The owner may lower the class, administrators set any."""
        ask(library.gang_set_class, self._handle, _class(job_class))

    def resize(
        self,
        cpus: Optional[int] = None,
        min_cpus: Optional[int] = None,
        weight: Optional[int] = None,
        mem_bytes: Optional[int] = None,
        disk_bytes: Optional[int] = None,
    ) -> None:
        """Changes what is said, all of it or nothing; 0 bytes: nothing is promised any more."""
        change = _library.Change()
        ask(library.gang_change_init, ctypes.byref(change))
        _fill(
            change,
            cpus=cpus,
            min_cpus=min_cpus,
            weight=weight,
            mem_bytes=mem_bytes,
            disk_bytes=disk_bytes,
        )
        ask(library.gang_resize, self._handle, ctypes.byref(change))

    def set_signals(self, on: bool) -> None:
        """SIGUSR1 before a slot ends, SIGUSR2 after one has begun, for those who handle both."""
        ask(library.gang_set_signals, self._handle, bool(on))

    def suspend(self) -> None:
        ask(library.gang_suspend, self._handle)

    def resume(self) -> None:
        ask(library.gang_resume, self._handle)

    def progress(self, done: float, total: float) -> None:
        """How far the job is, as the program counts: done of total, in any unit.

        Made for loops: a few times a second it goes on to the daemon, and waits for nobody.
        """
        ask(library.gang_job_progress, self._handle, float(done), float(total))

    def use(self) -> Use:
        used = _library.Use(size=ctypes.sizeof(_library.Use))
        ask(library.gang_get_use, self._handle, ctypes.byref(used))
        values = {name: getattr(used, name) for name in Use._fields}
        values["state"] = State(used.state)
        if used.mem_used_bytes < 0:
            values["mem_used_bytes"] = None
        return Use(**values)

    def page(self) -> Page:
        """The slot page of the job."""
        return Page(self._handle)


@contextlib.contextmanager
def job(
    cpus: int = 0,
    *,
    min_cpus: int = 0,
    name: Optional[str] = None,
    job_class: Union[Class, str] = Class.BATCH,
    weight: int = 100,
    mem_bytes: int = 0,
    disk_bytes: int = 0,
    wait: bool = False,
    signals: bool = False,
) -> Iterator[Job]:
    """Makes this process, with all that it starts meanwhile, a gang until the block ends.

    0 CPUs: as many as the process may use; min_cpus: below which it does not run, otherwise all of
    them. 0 bytes: not said. With `wait` it waits until there is as much memory and disk.

    A program under `gang run` is a gang already: there the block has that job, as the command line
    asked for it.
    """
    outer = _outer()
    if outer:
        yield outer
        return
    made = register(
        cpus,
        min_cpus=min_cpus,
        name=name,
        job_class=job_class,
        weight=weight,
        mem_bytes=mem_bytes,
        disk_bytes=disk_bytes,
        wait=wait,
        signals=signals,
    )
    made.add_process()
    try:
        yield made
    finally:
        # A process that was taken out before, or whose daemon ended, is released already.
        with contextlib.suppress(NoSuchJob, NoSuchProcess, NoDaemon, NoAnswer):
            made.remove_process()


def register(
    cpus: int = 0,
    *,
    min_cpus: int = 0,
    name: Optional[str] = None,
    job_class: Union[Class, str] = Class.BATCH,
    weight: int = 100,
    mem_bytes: int = 0,
    disk_bytes: int = 0,
    wait: bool = False,
    signals: bool = False,
) -> Job:
    """A job without processes, as for `job`; it ends with its last process."""
    spec = _spec(name, cpus, min_cpus, job_class, weight, mem_bytes, disk_bytes, signals)
    spec.wait = bool(wait)
    if wait:
        return _interruptible(lambda: _opened(library.gang_register, ctypes.byref(spec)))
    return _opened(library.gang_register, ctypes.byref(spec))


def adopt(
    pid: int,
    cpus: int = 0,
    *,
    min_cpus: int = 0,
    name: Optional[str] = None,
    job_class: Union[Class, str] = Class.BATCH,
    weight: int = 100,
    signals: bool = False,
) -> Job:
    """A job of what runs already: a process with its descendants."""
    spec = _spec(name, cpus, min_cpus, job_class, weight, 0, 0, signals)
    return _opened(library.gang_adopt, ctypes.byref(spec), _number("pid", pid, 32))


def open(id: int) -> Job:
    """A job by its id."""
    return _opened(library.gang_open, _number("id", id, 64))


def current() -> Job:
    """The job that `gang run` made for this program."""
    return _opened(library.gang_current)


def _outer() -> Optional[Job]:
    """The job of `gang run`, if this process is in it; a process is in one job at a time."""
    try:
        outer = current()
        outer.add_process()
    except (NoSuchJob, NotPermitted):
        return None
    return outer


def load() -> Load:
    """How busy the machine is."""
    now = _library.Load(size=ctypes.sizeof(_library.Load))
    ask(library.gang_get_load, ctypes.byref(now))
    return Load(*(getattr(now, name) for name in Load._fields))


def _opened(function: Any, *arguments: Any) -> Job:
    handle = ctypes.c_void_p()
    ask(function, *arguments, ctypes.byref(handle))
    return Job(handle)


def _spec(
    name: Optional[str],
    cpus: int,
    min_cpus: int,
    job_class: Union[Class, str],
    weight: int,
    mem_bytes: int,
    disk_bytes: int,
    signals: bool,
) -> _library.Spec:
    spec = _library.Spec()
    ask(library.gang_spec_init, ctypes.byref(spec))
    name = _own_name() if name is None else name
    if name is not None:
        encoded = name.encode()
        if b"\0" in encoded:
            raise Invalid(f"the name {name!r} has a zero byte")
        spec.name = encoded
    spec.job_class = _class(job_class)
    spec.signals = bool(signals)
    _fill(
        spec,
        cpus=cpus,
        min_cpus=min_cpus,
        weight=weight,
        mem_bytes=mem_bytes,
        disk_bytes=disk_bytes,
    )
    return spec


def _own_name() -> Optional[str]:
    """The script's: the program's would be python3, for all of them."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    fits = name.isprintable() and 0 < len(name.encode(errors="replace")) <= 64
    return name if fits and not name.startswith("-") else None


def _fill(struct: Any, **values: Optional[int]) -> None:
    for name, value in values.items():
        if value is not None:
            if value < 0:
                raise Invalid(f"{name}: {value} is negative")
            bits = 8 * getattr(type(struct), name).size
            setattr(struct, name, _number(name, value, bits))


def _number(name: str, value: int, bits: int) -> int:
    """ctypes cuts numbers that are too long, without a word."""
    number = operator.index(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Invalid(f"{name}: {number} is out of bounds")
    return number


def _class(value: Union[Class, str, int]) -> Class:
    try:
        return Class[value.upper()] if isinstance(value, str) else Class(value)
    except (KeyError, ValueError):
        names = ", ".join(known.name.lower() for known in Class)
        raise Invalid(f"{value!r} is no class: there are {names}") from None


def _interruptible(call: Callable[[], Job]) -> Job:
    """Python sees no Ctrl-C before a call of C returns, and one that waits may never. So a thread
    waits, and what it gets for nobody goes with this process."""
    outcome: list = []

    def wait() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=wait, name="gang-wait", daemon=True)
    thread.start()
    thread.join()
    if isinstance(outcome[0], Job):
        return outcome[0]
    raise outcome[0]
