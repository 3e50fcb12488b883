! The declarations of gang.h for Fortran: structs, numbers and functions, under the names of C.
!
! Programs use the module gang, which is made of these. A test compares the layouts with those of C.
module gang_c
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_int32_t, c_int64_t, c_null_ptr, c_ptr, &
       c_size_t
  implicit none
  public

  integer(c_int), parameter :: GANG_OK = 0
  ! An argument is out of bounds, or a job that is not open.
  integer(c_int), parameter :: GANG_INVALID = 1
  ! No daemon listens.
  integer(c_int), parameter :: GANG_NO_DAEMON = 2
  ! The job has ended, or was never there.
  integer(c_int), parameter :: GANG_NO_SUCH_JOB = 3
  integer(c_int), parameter :: GANG_NO_SUCH_PROCESS = 4
  integer(c_int), parameter :: GANG_NOT_PERMITTED = 5
  ! A limit of the daemon is reached: jobs, CPUs, connections.
  integer(c_int), parameter :: GANG_LIMIT = 6
  ! There is not as much memory or disk as was asked for.
  integer(c_int), parameter :: GANG_NOT_ENOUGH = 7
  ! The daemon did not answer in time, or went away in the middle.
  integer(c_int), parameter :: GANG_NO_ANSWER = 8
  ! The kernel or the machine refused.
  integer(c_int), parameter :: GANG_FAILED = 9
  ! The daemon does not know the request: it is of another version.
  integer(c_int), parameter :: GANG_UNSUPPORTED = 10

  ! Classes, in order of priority. Only administrators put a job into GANG_EXPRESS.
  integer(c_int), parameter :: GANG_EXPRESS = 1
  integer(c_int), parameter :: GANG_INTERACTIVE = 2
  integer(c_int), parameter :: GANG_BATCH = 3
  integer(c_int), parameter :: GANG_STANDBY = 4

  ! States.
  integer(c_int), parameter :: GANG_STARTING = 1
  integer(c_int), parameter :: GANG_WAITING = 2
  integer(c_int), parameter :: GANG_RUNNING = 3
  integer(c_int), parameter :: GANG_SLEEPING = 4
  integer(c_int), parameter :: GANG_IDLE = 5
  integer(c_int), parameter :: GANG_SUSPENDED = 6
  integer(c_int), parameter :: GANG_NOT_SCHEDULED = 7
  integer(c_int), parameter :: GANG_TOO_MANY_THREADS = 8
  integer(c_int), parameter :: GANG_TOO_FEW_CPUS = 9

  type, bind(c) :: c_gang_spec
     integer(c_size_t) :: size = 0
     type(c_ptr) :: name = c_null_ptr
     integer(c_int32_t) :: cpus = 0
     integer(c_int32_t) :: min_cpus = 0
     integer(c_int) :: job_class = 0
     integer(c_int32_t) :: weight = 0
     integer(c_int64_t) :: mem_bytes = 0
     integer(c_int64_t) :: disk_bytes = 0
     integer(c_int32_t) :: wait = 0
     integer(c_int32_t) :: signals = 0
  end type c_gang_spec

  type, bind(c) :: c_gang_change
     integer(c_size_t) :: size = 0
     integer(c_int32_t) :: cpus = 0
     integer(c_int32_t) :: min_cpus = 0
     integer(c_int32_t) :: weight = 0
     integer(c_int64_t) :: mem_bytes = 0
     integer(c_int64_t) :: disk_bytes = 0
  end type c_gang_change

  ! The use of a job.
  type, bind(c) :: gang_use
     integer(c_size_t) :: size = 0
     integer(c_int) :: state = 0
     integer(c_int32_t) :: processes = 0
     integer(c_int32_t) :: threads = 0
     integer(c_int64_t) :: slots = 0
     integer(c_int64_t) :: in_slot_ns = 0
     integer(c_int64_t) :: cpu_time_ns = 0
     real(c_double) :: share_wanted = 0
     real(c_double) :: share_had = 0          ! over the last ten seconds
     integer(c_int64_t) :: mem_used_bytes = 0 ! negative where it is not known
  end type gang_use

  ! How busy the machine is.
  type, bind(c) :: gang_load
     integer(c_size_t) :: size = 0
     integer(c_int32_t) :: cpus = 0
     integer(c_int32_t) :: jobs = 0
     real(c_double) :: load_average = 0 ! over the last minute
     integer(c_int64_t) :: mem_total_bytes = 0
     integer(c_int64_t) :: mem_free_bytes = 0
     integer(c_int64_t) :: mem_promised_bytes = 0
     integer(c_int64_t) :: disk_free_bytes = 0
     integer(c_int64_t) :: disk_promised_bytes = 0
  end type gang_load

  type, bind(c) :: c_gang_page
     integer(c_int32_t) :: magic
     integer(c_int32_t) :: version
     integer(c_int32_t) :: running
     integer(c_int32_t) :: on_cpus
     integer(c_int64_t) :: until_ns
     integer(c_int64_t) :: slice_ns
     integer(c_int32_t) :: cpus
     integer(c_int32_t) :: validity
     integer(c_int64_t) :: slots
  end type c_gang_page

  ! A barrier and a lock for the threads of a gang: they spin while the slot runs, and block out of
  ! it. Both are to stay where they are (target), and are for threads and, in memory that processes
  ! share, for processes.
  type, bind(c) :: gang_barrier
     integer(c_int64_t) :: opaque(48) = 0
  end type gang_barrier

  type, bind(c) :: gang_mutex
     integer(c_int64_t) :: opaque(4) = 0
  end type gang_mutex

  interface
     function c_gang_result_text(result) bind(c, name="gang_result_text") result(text)
       import :: c_int, c_ptr
       integer(c_int), value :: result
       type(c_ptr) :: text
     end function c_gang_result_text

     function c_gang_error() bind(c, name="gang_error") result(text)
       import :: c_ptr
       type(c_ptr) :: text
     end function c_gang_error

     function c_gang_spec_init(spec) bind(c, name="gang_spec_init") result(code)
       import :: c_gang_spec, c_int
       type(c_gang_spec), intent(inout) :: spec
       integer(c_int) :: code
     end function c_gang_spec_init

     function c_gang_change_init(change) bind(c, name="gang_change_init") result(code)
       import :: c_gang_change, c_int
       type(c_gang_change), intent(inout) :: change
       integer(c_int) :: code
     end function c_gang_change_init

     function c_gang_register(spec, job) bind(c, name="gang_register") result(code)
       import :: c_gang_spec, c_int, c_ptr
       type(c_gang_spec), intent(in) :: spec
       type(c_ptr), intent(inout) :: job
       integer(c_int) :: code
     end function c_gang_register

     function c_gang_adopt(spec, pid, job) bind(c, name="gang_adopt") result(code)
       import :: c_gang_spec, c_int, c_ptr
       type(c_gang_spec), intent(in) :: spec
       integer(c_int), value :: pid
       type(c_ptr), intent(inout) :: job
       integer(c_int) :: code
     end function c_gang_adopt

     function c_gang_open(id, job) bind(c, name="gang_open") result(code)
       import :: c_int, c_int64_t, c_ptr
       integer(c_int64_t), value :: id
       type(c_ptr), intent(inout) :: job
       integer(c_int) :: code
     end function c_gang_open

     function c_gang_current(job) bind(c, name="gang_current") result(code)
       import :: c_int, c_ptr
       type(c_ptr), intent(inout) :: job
       integer(c_int) :: code
     end function c_gang_current

     function c_gang_close(job) bind(c, name="gang_close") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int) :: code
     end function c_gang_close

     function c_gang_id(job, id) bind(c, name="gang_id") result(code)
       import :: c_int, c_int64_t, c_ptr
       type(c_ptr), value :: job
       integer(c_int64_t), intent(inout) :: id
       integer(c_int) :: code
     end function c_gang_id

     function c_gang_add_process(job, pid) bind(c, name="gang_add_process") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int), value :: pid
       integer(c_int) :: code
     end function c_gang_add_process

     function c_gang_remove_process(job, pid) bind(c, name="gang_remove_process") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int), value :: pid
       integer(c_int) :: code
     end function c_gang_remove_process

     function c_gang_add_thread(job, tid) bind(c, name="gang_add_thread") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int), value :: tid
       integer(c_int) :: code
     end function c_gang_add_thread

     function c_gang_remove_thread(job, tid) bind(c, name="gang_remove_thread") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int), value :: tid
       integer(c_int) :: code
     end function c_gang_remove_thread

     function c_gang_set_class(job, job_class) bind(c, name="gang_set_class") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int), value :: job_class
       integer(c_int) :: code
     end function c_gang_set_class

     function c_gang_resize(job, change) bind(c, name="gang_resize") result(code)
       import :: c_gang_change, c_int, c_ptr
       type(c_ptr), value :: job
       type(c_gang_change), intent(in) :: change
       integer(c_int) :: code
     end function c_gang_resize

     function c_gang_set_signals(job, on) bind(c, name="gang_set_signals") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int), value :: on
       integer(c_int) :: code
     end function c_gang_set_signals

     function c_gang_suspend(job) bind(c, name="gang_suspend") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int) :: code
     end function c_gang_suspend

     function c_gang_resume(job) bind(c, name="gang_resume") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       integer(c_int) :: code
     end function c_gang_resume

     function c_gang_job_progress(job, done, total) bind(c, name="gang_job_progress") result(code)
       import :: c_double, c_int, c_ptr
       type(c_ptr), value :: job
       real(c_double), value :: done, total
       integer(c_int) :: code
     end function c_gang_job_progress

     function c_gang_get_use(job, use) bind(c, name="gang_get_use") result(code)
       import :: c_int, c_ptr, gang_use
       type(c_ptr), value :: job
       type(gang_use), intent(inout) :: use
       integer(c_int) :: code
     end function c_gang_get_use

     function c_gang_get_load(load) bind(c, name="gang_get_load") result(code)
       import :: c_int, gang_load
       type(gang_load), intent(inout) :: load
       integer(c_int) :: code
     end function c_gang_get_load

     function c_gang_page_open(job, page) bind(c, name="gang_page_open") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: job
       type(c_ptr), intent(inout) :: page
       integer(c_int) :: code
     end function c_gang_page_open

     function c_gang_page_close(page) bind(c, name="gang_page_close") result(code)
       import :: c_int, c_ptr
       type(c_ptr), value :: page
       integer(c_int) :: code
     end function c_gang_page_close

     function c_gang_barrier_init(barrier, threads, page) bind(c, name="gang_barrier_init") &
          result(code)
       import :: c_int, c_int32_t, c_ptr, gang_barrier
       type(gang_barrier), intent(inout), target :: barrier
       integer(c_int32_t), value :: threads
       type(c_ptr), value :: page
       integer(c_int) :: code
     end function c_gang_barrier_init

     ! Returns when all threads have come; then the barrier is ready for the next time.
     function gang_barrier_wait(barrier) bind(c, name="gang_barrier_wait") result(code)
       import :: c_int, gang_barrier
       type(gang_barrier), intent(inout), target :: barrier
       integer(c_int) :: code
     end function gang_barrier_wait

     ! When every thread has returned from it. GANG_INVALID while threads wait.
     function gang_barrier_destroy(barrier) bind(c, name="gang_barrier_destroy") result(code)
       import :: c_int, gang_barrier
       type(gang_barrier), intent(inout), target :: barrier
       integer(c_int) :: code
     end function gang_barrier_destroy

     function c_gang_mutex_init(mutex, page) bind(c, name="gang_mutex_init") result(code)
       import :: c_int, c_ptr, gang_mutex
       type(gang_mutex), intent(inout), target :: mutex
       type(c_ptr), value :: page
       integer(c_int) :: code
     end function c_gang_mutex_init

     ! Not recursive; threads do not get it in the order in which they came.
     function gang_mutex_lock(mutex) bind(c, name="gang_mutex_lock") result(code)
       import :: c_int, gang_mutex
       type(gang_mutex), intent(inout), target :: mutex
       integer(c_int) :: code
     end function gang_mutex_lock

     ! By the thread that holds it. GANG_INVALID where nobody does.
     function gang_mutex_unlock(mutex) bind(c, name="gang_mutex_unlock") result(code)
       import :: c_int, gang_mutex
       type(gang_mutex), intent(inout), target :: mutex
       integer(c_int) :: code
     end function gang_mutex_unlock

     ! When nobody uses it any more. GANG_INVALID while somebody holds it.
     function gang_mutex_destroy(mutex) bind(c, name="gang_mutex_destroy") result(code)
       import :: c_int, gang_mutex
       type(gang_mutex), intent(inout), target :: mutex
       integer(c_int) :: code
     end function gang_mutex_destroy
  end interface
end module gang_c
