"""The slot page: memory that the daemon writes at the beginning and end of every slot."""

from __future__ import annotations

import ctypes
import weakref

from . import _library
from ._error import ask
from ._library import library


class Page:
    """Whether the slot of a job runs, read without a system call.

    It stays mapped for as long as the object is there, in children of a fork as well.
    """

    def __init__(self, job: ctypes.c_void_p) -> None:
        page = ctypes.POINTER(_library.Page)()
        ask(library.gang_page_open, job, ctypes.byref(page))
        self._page = page.contents
        # Unmapped with the object, not before: nobody can be reading it then.
        weakref.finalize(self, library.gang_page_close, page)

    @property
    def running(self) -> bool:
        """True while the slot runs. False also where nobody knows: see `is_valid`."""
        return self._page.running != 0

    @property
    def is_valid(self) -> bool:
        """Whether `running` can be relied on: the job is scheduled, and the daemon there."""
        return self._page.validity == 0

    @property
    def until_ns(self) -> int:
        """UTC until which the slot lasts at least; 0 out of slot."""
        return self._page.until_ns

    @property
    def on_cpus(self) -> int:
        """Threads for which the slot has CPUs, as planned: those that sleep count."""
        return self._page.on_cpus

    @property
    def cpus(self) -> int:
        """CPUs of the slot."""
        return self._page.cpus

    @property
    def slice_ns(self) -> int:
        """The length of a slice."""
        return self._page.slice_ns

    @property
    def slots(self) -> int:
        """Slots so far, counted some times a second."""
        return self._page.slots
