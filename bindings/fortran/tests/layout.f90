! The structs and numbers of the module, as crates/libgang/tests/layout.c prints those of C.
program layout
  use, intrinsic :: iso_c_binding
  use gang_c
  implicit none
  type(c_gang_spec), target :: spec
  type(c_gang_change), target :: change
  type(gang_use), target :: use
  type(gang_load), target :: load
  type(c_gang_page), target :: page
  type(gang_barrier) :: barrier
  type(gang_mutex) :: mutex

  call member("spec.size", c_loc(spec), c_loc(spec%size), c_sizeof(spec%size))
  call member("spec.name", c_loc(spec), c_loc(spec%name), c_sizeof(spec%name))
  call member("spec.cpus", c_loc(spec), c_loc(spec%cpus), c_sizeof(spec%cpus))
  call member("spec.min_cpus", c_loc(spec), c_loc(spec%min_cpus), c_sizeof(spec%min_cpus))
  call member("spec.job_class", c_loc(spec), c_loc(spec%job_class), c_sizeof(spec%job_class))
  call member("spec.weight", c_loc(spec), c_loc(spec%weight), c_sizeof(spec%weight))
  call member("spec.mem_bytes", c_loc(spec), c_loc(spec%mem_bytes), c_sizeof(spec%mem_bytes))
  call member("spec.disk_bytes", c_loc(spec), c_loc(spec%disk_bytes), c_sizeof(spec%disk_bytes))
  call member("spec.wait", c_loc(spec), c_loc(spec%wait), c_sizeof(spec%wait))
  call member("spec.signals", c_loc(spec), c_loc(spec%signals), c_sizeof(spec%signals))
  call number("spec", int(c_sizeof(spec)))

  call member("change.size", c_loc(change), c_loc(change%size), c_sizeof(change%size))
  call member("change.cpus", c_loc(change), c_loc(change%cpus), c_sizeof(change%cpus))
  call member("change.min_cpus", c_loc(change), c_loc(change%min_cpus), c_sizeof(change%min_cpus))
  call member("change.weight", c_loc(change), c_loc(change%weight), c_sizeof(change%weight))
  call member("change.mem_bytes", c_loc(change), c_loc(change%mem_bytes), c_sizeof(change%mem_bytes))
  call member("change.disk_bytes", c_loc(change), c_loc(change%disk_bytes), &
       c_sizeof(change%disk_bytes))
  call number("change", int(c_sizeof(change)))

  call member("use.size", c_loc(use), c_loc(use%size), c_sizeof(use%size))
  call member("use.state", c_loc(use), c_loc(use%state), c_sizeof(use%state))
  call member("use.processes", c_loc(use), c_loc(use%processes), c_sizeof(use%processes))
  call member("use.threads", c_loc(use), c_loc(use%threads), c_sizeof(use%threads))
  call member("use.slots", c_loc(use), c_loc(use%slots), c_sizeof(use%slots))
  call member("use.in_slot_ns", c_loc(use), c_loc(use%in_slot_ns), c_sizeof(use%in_slot_ns))
  call member("use.cpu_time_ns", c_loc(use), c_loc(use%cpu_time_ns), c_sizeof(use%cpu_time_ns))
  call member("use.share_wanted", c_loc(use), c_loc(use%share_wanted), c_sizeof(use%share_wanted))
  call member("use.share_had", c_loc(use), c_loc(use%share_had), c_sizeof(use%share_had))
  call member("use.mem_used_bytes", c_loc(use), c_loc(use%mem_used_bytes), &
       c_sizeof(use%mem_used_bytes))
  call number("use", int(c_sizeof(use)))

  call member("load.size", c_loc(load), c_loc(load%size), c_sizeof(load%size))
  call member("load.cpus", c_loc(load), c_loc(load%cpus), c_sizeof(load%cpus))
  call member("load.jobs", c_loc(load), c_loc(load%jobs), c_sizeof(load%jobs))
  call member("load.load_average", c_loc(load), c_loc(load%load_average), &
       c_sizeof(load%load_average))
  call member("load.mem_total_bytes", c_loc(load), c_loc(load%mem_total_bytes), &
       c_sizeof(load%mem_total_bytes))
  call member("load.mem_free_bytes", c_loc(load), c_loc(load%mem_free_bytes), &
       c_sizeof(load%mem_free_bytes))
  call member("load.mem_promised_bytes", c_loc(load), c_loc(load%mem_promised_bytes), &
       c_sizeof(load%mem_promised_bytes))
  call member("load.disk_free_bytes", c_loc(load), c_loc(load%disk_free_bytes), &
       c_sizeof(load%disk_free_bytes))
  call member("load.disk_promised_bytes", c_loc(load), c_loc(load%disk_promised_bytes), &
       c_sizeof(load%disk_promised_bytes))
  call number("load", int(c_sizeof(load)))

  call member("page.magic", c_loc(page), c_loc(page%magic), c_sizeof(page%magic))
  call member("page.version", c_loc(page), c_loc(page%version), c_sizeof(page%version))
  call member("page.running", c_loc(page), c_loc(page%running), c_sizeof(page%running))
  call member("page.on_cpus", c_loc(page), c_loc(page%on_cpus), c_sizeof(page%on_cpus))
  call member("page.until_ns", c_loc(page), c_loc(page%until_ns), c_sizeof(page%until_ns))
  call member("page.slice_ns", c_loc(page), c_loc(page%slice_ns), c_sizeof(page%slice_ns))
  call member("page.cpus", c_loc(page), c_loc(page%cpus), c_sizeof(page%cpus))
  call member("page.validity", c_loc(page), c_loc(page%validity), c_sizeof(page%validity))
  call member("page.slots", c_loc(page), c_loc(page%slots), c_sizeof(page%slots))
  call number("page", int(c_sizeof(page)))

  call number("barrier", int(c_sizeof(barrier)))
  call number("mutex", int(c_sizeof(mutex)))

  call number("INVALID", GANG_INVALID)
  call number("NO_DAEMON", GANG_NO_DAEMON)
  call number("NO_SUCH_JOB", GANG_NO_SUCH_JOB)
  call number("NO_SUCH_PROCESS", GANG_NO_SUCH_PROCESS)
  call number("NOT_PERMITTED", GANG_NOT_PERMITTED)
  call number("LIMIT", GANG_LIMIT)
  call number("NOT_ENOUGH", GANG_NOT_ENOUGH)
  call number("NO_ANSWER", GANG_NO_ANSWER)
  call number("FAILED", GANG_FAILED)
  call number("UNSUPPORTED", GANG_UNSUPPORTED)
  call number("EXPRESS", GANG_EXPRESS)
  call number("INTERACTIVE", GANG_INTERACTIVE)
  call number("BATCH", GANG_BATCH)
  call number("STANDBY", GANG_STANDBY)
  call number("STARTING", GANG_STARTING)
  call number("WAITING", GANG_WAITING)
  call number("RUNNING", GANG_RUNNING)
  call number("SLEEPING", GANG_SLEEPING)
  call number("IDLE", GANG_IDLE)
  call number("SUSPENDED", GANG_SUSPENDED)
  call number("NOT_SCHEDULED", GANG_NOT_SCHEDULED)
  call number("TOO_MANY_THREADS", GANG_TOO_MANY_THREADS)
  call number("TOO_FEW_CPUS", GANG_TOO_FEW_CPUS)

contains

  subroutine member(name, struct, at, size)
    character(len=*), intent(in) :: name
    type(c_ptr), intent(in) :: struct, at
    integer(c_size_t), intent(in) :: size
    integer(c_intptr_t) :: offset
    offset = transfer(at, offset) - transfer(struct, offset)
    print '(a, " ", i0, " ", i0)', name, offset, size
  end subroutine member

  subroutine number(name, value)
    character(len=*), intent(in) :: name
    integer, intent(in) :: value
    print '(a, " ", i0)', name, value
  end subroutine number
end program layout
