"""The declarations of gang.h, for ctypes.

A wheel of Python alone that calls libgang.so.1 serves every version of Python, and the library is
the one that was installed with the daemon. Tests compare the layouts below with those of C.
"""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p


class Spec(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("cpus", c_int32),
        ("min_cpus", c_int32),
        ("job_class", c_uint32),
        ("weight", c_int32),
        ("mem_bytes", c_int64),
        ("disk_bytes", c_int64),
        ("wait", c_int32),
        ("signals", c_int32),
    ]


class Change(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("cpus", c_int32),
        ("min_cpus", c_int32),
        ("weight", c_int32),
        ("mem_bytes", c_int64),
        ("disk_bytes", c_int64),
    ]


class Use(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("state", c_uint32),
        ("processes", c_int32),
        ("threads", c_int32),
        ("slots", c_int64),
        ("in_slot_ns", c_int64),
        ("cpu_time_ns", c_int64),
        ("share_wanted", c_double),
        ("share_had", c_double),
        ("mem_used_bytes", c_int64),
    ]


class Load(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("cpus", c_int32),
        ("jobs", c_int32),
        ("load_average", c_double),
        ("mem_total_bytes", c_int64),
        ("mem_free_bytes", c_int64),
        ("mem_promised_bytes", c_int64),
        ("disk_free_bytes", c_int64),
        ("disk_promised_bytes", c_int64),
    ]


class Page(Structure):
    _fields_ = [
        ("magic", c_uint32),
        ("version", c_uint32),
        ("running", c_uint32),
        ("on_cpus", c_uint32),
        ("until_ns", c_uint64),
        ("slice_ns", c_uint64),
        ("cpus", c_uint32),
        ("validity", c_uint32),
        ("slots", c_uint64),
    ]


STRUCTS = {"spec": Spec, "change": Change, "use": Use, "load": Load, "page": Page}

_JOB = c_void_p
# Functions that return a gang_result, with what they take.
_FUNCTIONS = {
    "gang_spec_init": [POINTER(Spec)],
    "gang_change_init": [POINTER(Change)],
    "gang_register": [POINTER(Spec), POINTER(_JOB)],
    "gang_adopt": [POINTER(Spec), c_int, POINTER(_JOB)],
    "gang_open": [c_int64, POINTER(_JOB)],
    "gang_current": [POINTER(_JOB)],
    "gang_close": [_JOB],
    "gang_id": [_JOB, POINTER(c_int64)],
    "gang_add_process": [_JOB, c_int],
    "gang_remove_process": [_JOB, c_int],
    "gang_add_thread": [_JOB, c_int],
    "gang_remove_thread": [_JOB, c_int],
    "gang_set_class": [_JOB, c_uint32],
    "gang_resize": [_JOB, POINTER(Change)],
    "gang_set_signals": [_JOB, c_int],
    "gang_suspend": [_JOB],
    "gang_resume": [_JOB],
    "gang_job_progress": [_JOB, c_double, c_double],
    "gang_get_use": [_JOB, POINTER(Use)],
    "gang_get_load": [POINTER(Load)],
    "gang_page_open": [_JOB, POINTER(POINTER(Page))],
    "gang_page_close": [POINTER(Page)],
}


def _loaded():
    try:
        library = ctypes.CDLL("libgang.so.1")
    except OSError as error:
        raise ImportError(
            f"cannot load the library of gangd: {error}; install it (make install, then ldconfig), "
            "or name its directory in LD_LIBRARY_PATH"
        ) from error
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_uint32
    library.gang_error.argtypes = []
    library.gang_error.restype = c_char_p
    library.gang_result_text.argtypes = [c_uint32]
    library.gang_result_text.restype = c_char_p
    return library


library = _loaded()
