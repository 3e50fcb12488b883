! libgang for Fortran 2008: parallel programs that know they are gangs.
!
!     use gang
!     type(gang_job) :: job
!     if (gang_register(job, cpus=4) /= GANG_OK) print *, gang_error()
!     if (gang_add_process(job) /= GANG_OK) print *, gang_error()
!
! Functions have the names of gang.h, which says more about each, and return its results; GANG_OK is
! 0. A function that fails leaves its arguments as they were, and gang_error() says why. An optional
! argument that is left out has the default of gang.h. Times are nanoseconds, sizes bytes, shares
! run from 0 to 1.
module gang
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_double, c_f_pointer, c_int, &
       c_int32_t, c_int64_t, c_loc, c_null_char, c_null_ptr, c_ptr, c_size_t, c_sizeof
  use gang_c
  implicit none
  private

  public :: GANG_OK, GANG_INVALID, GANG_NO_DAEMON, GANG_NO_SUCH_JOB, GANG_NO_SUCH_PROCESS, &
       GANG_NOT_PERMITTED, GANG_LIMIT, GANG_NOT_ENOUGH, GANG_NO_ANSWER, GANG_FAILED, GANG_UNSUPPORTED
  public :: GANG_EXPRESS, GANG_INTERACTIVE, GANG_BATCH, GANG_STANDBY
  public :: GANG_STARTING, GANG_WAITING, GANG_RUNNING, GANG_SLEEPING, GANG_IDLE, GANG_SUSPENDED, &
       GANG_NOT_SCHEDULED, GANG_TOO_MANY_THREADS, GANG_TOO_FEW_CPUS
  public :: gang_job, gang_page, gang_use, gang_load
  public :: gang_error, gang_result_text
  public :: gang_register, gang_adopt, gang_open, gang_current, gang_close, gang_id
  public :: gang_add_process, gang_remove_process, gang_add_thread, gang_remove_thread
  public :: gang_set_class, gang_resize, gang_set_signals
  public :: gang_suspend, gang_resume, gang_job_progress, gang_get_use, gang_get_load
  public :: gang_page_open, gang_page_close, gang_page_running, gang_page_is_valid
  public :: gang_page_until_ns, gang_page_slice_ns, gang_page_on_cpus, gang_page_cpus, &
       gang_page_slots
  public :: gang_barrier, gang_barrier_init, gang_barrier_wait, gang_barrier_destroy
  public :: gang_mutex, gang_mutex_init, gang_mutex_lock, gang_mutex_unlock, gang_mutex_destroy

  ! A job; to be closed. A copy is the same handle.
  type :: gang_job
     private
     type(c_ptr) :: handle = c_null_ptr
  end type gang_job

  ! The slot page of a job: memory that the daemon writes at the beginning and end of every slot.
  type :: gang_page
     private
     type(c_ptr) :: mapped = c_null_ptr
     type(c_gang_page), pointer :: content => null()
  end type gang_page

  interface
     function c_strlen(text) bind(c, name="strlen") result(length)
       import :: c_ptr, c_size_t
       type(c_ptr), value :: text
       integer(c_size_t) :: length
     end function c_strlen
  end interface

contains

  ! Text for a result.
  function gang_result_text(result) result(text)
    integer(c_int), intent(in) :: result
    character(len=:), allocatable :: text
    text = copied(c_gang_result_text(result))
  end function gang_result_text

  ! Why the last call of this thread failed, in one line; empty where none has.
  function gang_error() result(text)
    character(len=:), allocatable :: text
    text = copied(c_gang_error())
  end function gang_error

  ! Registers a job without processes. It ends with its last process, or with this process if none
  ! was added. With wait, the call waits until there is as much memory and disk.
  function gang_register(job, name, cpus, min_cpus, job_class, weight, mem_bytes, disk_bytes, wait, &
       signals) result(code)
    type(gang_job), intent(inout) :: job
    character(len=*), intent(in), optional :: name
    integer(c_int), intent(in), optional :: cpus, min_cpus, job_class, weight
    integer(c_int64_t), intent(in), optional :: mem_bytes, disk_bytes
    logical, intent(in), optional :: wait, signals
    integer(c_int) :: code
    character(kind=c_char), allocatable, target :: named(:)
    type(c_gang_spec) :: spec

    call ended(name, named)
    code = filled(spec, named, cpus, min_cpus, job_class, weight, signals)
    if (present(mem_bytes)) spec%mem_bytes = mem_bytes
    if (present(disk_bytes)) spec%disk_bytes = disk_bytes
    if (present(wait)) spec%wait = merge(1, 0, wait)
    if (code == GANG_OK) code = c_gang_register(spec, job%handle)
  end function gang_register

  ! Makes a job of what runs already: a process with its descendants, without memory or disk.
  function gang_adopt(job, pid, name, cpus, min_cpus, job_class, weight, signals) result(code)
    type(gang_job), intent(inout) :: job
    integer(c_int), intent(in) :: pid
    character(len=*), intent(in), optional :: name
    integer(c_int), intent(in), optional :: cpus, min_cpus, job_class, weight
    logical, intent(in), optional :: signals
    integer(c_int) :: code
    character(kind=c_char), allocatable, target :: named(:)
    type(c_gang_spec) :: spec

    call ended(name, named)
    code = filled(spec, named, cpus, min_cpus, job_class, weight, signals)
    if (code == GANG_OK) code = c_gang_adopt(spec, pid, job%handle)
  end function gang_adopt

  ! A job by its id.
  function gang_open(id, job) result(code)
    integer(c_int64_t), intent(in) :: id
    type(gang_job), intent(inout) :: job
    integer(c_int) :: code
    code = c_gang_open(id, job%handle)
  end function gang_open

  ! The job that `gang run` made for this program.
  function gang_current(job) result(code)
    type(gang_job), intent(inout) :: job
    integer(c_int) :: code
    code = c_gang_current(job%handle)
  end function gang_current

  ! Gives the handle back; the job goes on.
  function gang_close(job) result(code)
    type(gang_job), intent(inout) :: job
    integer(c_int) :: code
    code = c_gang_close(job%handle)
    if (code == GANG_OK) job%handle = c_null_ptr
  end function gang_close

  function gang_id(job, id) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int64_t), intent(inout) :: id
    integer(c_int) :: code
    code = c_gang_id(job%handle, id)
  end function gang_id

  ! Takes a process with all its threads and future children into the job; without pid, this one.
  function gang_add_process(job, pid) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int), intent(in), optional :: pid
    integer(c_int) :: code
    code = c_gang_add_process(job%handle, or_this(pid))
  end function gang_add_process

  ! Takes it out again: it is scheduled as it was before.
  function gang_remove_process(job, pid) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int), intent(in), optional :: pid
    integer(c_int) :: code
    code = c_gang_remove_process(job%handle, or_this(pid))
  end function gang_remove_process

  ! Takes a single thread into the job, by its number in the kernel; without tid, the calling one.
  ! A job has either processes or single threads.
  function gang_add_thread(job, tid) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int), intent(in), optional :: tid
    integer(c_int) :: code
    code = c_gang_add_thread(job%handle, or_this(tid))
  end function gang_add_thread

  ! Takes it out again: it is scheduled as it was before. With its last thread the job ends.
  function gang_remove_thread(job, tid) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int), intent(in), optional :: tid
    integer(c_int) :: code
    code = c_gang_remove_thread(job%handle, or_this(tid))
  end function gang_remove_thread

  ! The owner of a job may lower its class, administrators may set any.
  function gang_set_class(job, job_class) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int), intent(in) :: job_class
    integer(c_int) :: code
    code = c_gang_set_class(job%handle, job_class)
  end function gang_set_class

  ! Changes what is said, all of it or nothing; 0 bytes: nothing is promised any more.
  function gang_resize(job, cpus, min_cpus, weight, mem_bytes, disk_bytes) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int), intent(in), optional :: cpus, min_cpus, weight
    integer(c_int64_t), intent(in), optional :: mem_bytes, disk_bytes
    integer(c_int) :: code
    type(c_gang_change) :: change

    code = c_gang_change_init(change)
    if (present(cpus)) change%cpus = cpus
    if (present(min_cpus)) change%min_cpus = min_cpus
    if (present(weight)) change%weight = weight
    if (present(mem_bytes)) change%mem_bytes = mem_bytes
    if (present(disk_bytes)) change%disk_bytes = disk_bytes
    if (code == GANG_OK) code = c_gang_resize(job%handle, change)
  end function gang_resize

  function gang_set_signals(job, on) result(code)
    type(gang_job), intent(in) :: job
    logical, intent(in) :: on
    integer(c_int) :: code
    code = c_gang_set_signals(job%handle, merge(1_c_int, 0_c_int, on))
  end function gang_set_signals

  function gang_suspend(job) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int) :: code
    code = c_gang_suspend(job%handle)
  end function gang_suspend

  function gang_resume(job) result(code)
    type(gang_job), intent(in) :: job
    integer(c_int) :: code
    code = c_gang_resume(job%handle)
  end function gang_resume

  ! Reports the progress of the job: done of total, in any unit. Made for inner loops: a few times
  ! a second a report goes on to the daemon, without waiting.
  function gang_job_progress(job, done, total) result(code)
    type(gang_job), intent(in) :: job
    real(c_double), intent(in) :: done, total
    integer(c_int) :: code
    code = c_gang_job_progress(job%handle, done, total)
  end function gang_job_progress

  function gang_get_use(job, use) result(code)
    type(gang_job), intent(in) :: job
    type(gang_use), intent(inout) :: use
    integer(c_int) :: code
    type(gang_use) :: now
    now%size = c_sizeof(now)
    code = c_gang_get_use(job%handle, now)
    if (code == GANG_OK) use = now
  end function gang_get_use

  function gang_get_load(load) result(code)
    type(gang_load), intent(inout) :: load
    integer(c_int) :: code
    type(gang_load) :: now
    now%size = c_sizeof(now)
    code = c_gang_get_load(now)
    if (code == GANG_OK) load = now
  end function gang_get_load

  ! Maps the slot page of a job; it stays mapped after gang_close, and in children.
  function gang_page_open(job, page) result(code)
    type(gang_job), intent(in) :: job
    type(gang_page), intent(inout) :: page
    integer(c_int) :: code
    code = c_gang_page_open(job%handle, page%mapped)
    if (code == GANG_OK) call c_f_pointer(page%mapped, page%content)
  end function gang_page_open

  function gang_page_close(page) result(code)
    type(gang_page), intent(inout) :: page
    integer(c_int) :: code
    code = c_gang_page_close(page%mapped)
    if (code /= GANG_OK) return
    page%mapped = c_null_ptr
    nullify (page%content)
  end function gang_page_close

  ! True while the slot of the job runs, so that its other threads run too. False also where nobody
  ! knows: the job is not scheduled, gangd is gone, or the page is not open.
  function gang_page_running(page) result(running)
    type(gang_page), intent(in) :: page
    logical :: running
    type(c_gang_page), pointer, volatile :: now
    now => page%content
    running = .false.
    if (associated(now)) running = now%running /= 0
  end function gang_page_running

  ! Whether gang_page_running can be relied on.
  function gang_page_is_valid(page) result(is_valid)
    type(gang_page), intent(in) :: page
    logical :: is_valid
    type(c_gang_page), pointer, volatile :: now
    now => page%content
    is_valid = .false.
    if (associated(now)) is_valid = now%validity == 0
  end function gang_page_is_valid

  ! UTC; the slot lasts until then at least. 0 out of slot.
  function gang_page_until_ns(page) result(until_ns)
    type(gang_page), intent(in) :: page
    integer(c_int64_t) :: until_ns
    type(c_gang_page), pointer, volatile :: now
    now => page%content
    until_ns = 0
    if (associated(now)) until_ns = now%until_ns
  end function gang_page_until_ns

  function gang_page_slice_ns(page) result(slice_ns)
    type(gang_page), intent(in) :: page
    integer(c_int64_t) :: slice_ns
    slice_ns = 0
    if (associated(page%content)) slice_ns = page%content%slice_ns
  end function gang_page_slice_ns

  ! Threads of the job for which the slot has CPUs, as planned: those that sleep count.
  function gang_page_on_cpus(page) result(on_cpus)
    type(gang_page), intent(in) :: page
    integer(c_int32_t) :: on_cpus
    type(c_gang_page), pointer, volatile :: now
    now => page%content
    on_cpus = 0
    if (associated(now)) on_cpus = now%on_cpus
  end function gang_page_on_cpus

  ! CPUs of the slot.
  function gang_page_cpus(page) result(cpus)
    type(gang_page), intent(in) :: page
    integer(c_int32_t) :: cpus
    type(c_gang_page), pointer, volatile :: now
    now => page%content
    cpus = 0
    if (associated(now)) cpus = now%cpus
  end function gang_page_cpus

  ! Slots so far, counted some times a second.
  function gang_page_slots(page) result(slots)
    type(gang_page), intent(in) :: page
    integer(c_int64_t) :: slots
    type(c_gang_page), pointer, volatile :: now
    now => page%content
    slots = 0
    if (associated(now)) slots = now%slots
  end function gang_page_slots

  ! A barrier for so many threads. With a page it knows whether the partners run. The page must
  ! stay open for as long.
  function gang_barrier_init(barrier, threads, page) result(code)
    type(gang_barrier), intent(inout), target :: barrier
    integer(c_int32_t), intent(in) :: threads
    type(gang_page), intent(in), optional :: page
    integer(c_int) :: code
    code = c_gang_barrier_init(barrier, threads, or_none(page))
  end function gang_barrier_init

  function gang_mutex_init(mutex, page) result(code)
    type(gang_mutex), intent(inout), target :: mutex
    type(gang_page), intent(in), optional :: page
    integer(c_int) :: code
    code = c_gang_mutex_init(mutex, or_none(page))
  end function gang_mutex_init

  function filled(spec, named, cpus, min_cpus, job_class, weight, signals) result(code)
    type(c_gang_spec), intent(inout) :: spec
    character(kind=c_char), allocatable, target, intent(in) :: named(:)
    integer(c_int), intent(in), optional :: cpus, min_cpus, job_class, weight
    logical, intent(in), optional :: signals
    integer(c_int) :: code

    code = c_gang_spec_init(spec)
    if (allocated(named)) spec%name = c_loc(named)
    if (present(cpus)) spec%cpus = cpus
    if (present(min_cpus)) spec%min_cpus = min_cpus
    if (present(job_class)) spec%job_class = job_class
    if (present(weight)) spec%weight = weight
    if (present(signals)) spec%signals = merge(1, 0, signals)
  end function filled

  ! A name as C has it: without the blanks at its end, and with a zero; nothing for none.
  subroutine ended(name, named)
    character(len=*), intent(in), optional :: name
    character(kind=c_char), allocatable, intent(out) :: named(:)
    integer :: at

    if (.not. present(name)) return
    allocate (named(len_trim(name) + 1))
    do at = 1, len_trim(name)
       named(at) = name(at:at)
    end do
    named(size(named)) = c_null_char
  end subroutine ended

  ! A text of C; it belongs to libgang.
  function copied(from) result(text)
    type(c_ptr), intent(in) :: from
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: of_c(:)
    integer :: at

    if (.not. c_associated(from)) then
       text = ""
       return
    end if
    call c_f_pointer(from, of_c, [c_strlen(from)])
    allocate (character(len=size(of_c)) :: text)
    do at = 1, size(of_c)
       text(at:at) = of_c(at)
    end do
  end function copied

  pure function or_none(page) result(mapped)
    type(gang_page), intent(in), optional :: page
    type(c_ptr) :: mapped
    mapped = c_null_ptr
    if (present(page)) mapped = page%mapped
  end function or_none

  ! The number that C has for this process is 0.
  pure function or_this(pid) result(number)
    integer(c_int), intent(in), optional :: pid
    integer(c_int) :: number
    number = 0
    if (present(pid)) number = pid
  end function or_this
end module gang
