! Every function of the module, as it is meant and misused.
program calls
  use, intrinsic :: iso_fortran_env, only: error_unit, int64
  use gang
  implicit none
  type(gang_job) :: job, same, none, closed
  type(gang_page) :: page, nowhere
  type(gang_use) :: use
  type(gang_load) :: load
  integer(int64) :: id, other
  logical :: ran(2)

  ! A job that was never opened.
  id = 7
  call expect("id of nothing", GANG_INVALID, gang_id(none, id))
  call hold("a failed call leaves the id", id == 7)
  call expect("add to nothing", GANG_INVALID, gang_add_process(none))
  call expect("remove from nothing", GANG_INVALID, gang_remove_process(none))
  call expect("add a thread to nothing", GANG_INVALID, gang_add_thread(none))
  call expect("remove a thread from nothing", GANG_INVALID, gang_remove_thread(none))
  call expect("class of nothing", GANG_INVALID, gang_set_class(none, GANG_BATCH))
  call expect("resize nothing", GANG_INVALID, gang_resize(none, cpus=1))
  call expect("signals of nothing", GANG_INVALID, gang_set_signals(none, .true.))
  call expect("suspend nothing", GANG_INVALID, gang_suspend(none))
  call expect("resume nothing", GANG_INVALID, gang_resume(none))
  call expect("progress of nothing", GANG_INVALID, gang_job_progress(none, 1.0d0, 4.0d0))
  use%processes = 7
  call expect("use of nothing", GANG_INVALID, gang_get_use(none, use))
  call hold("a failed call leaves the use", use%processes == 7)
  call expect("page of nothing", GANG_INVALID, gang_page_open(none, nowhere))
  call expect("close no page", GANG_INVALID, gang_page_close(nowhere))
  call expect("close nothing", GANG_INVALID, gang_close(none))
  call hold("a page that is not open", .not. gang_page_running(nowhere))
  call hold("its validity", .not. gang_page_is_valid(nowhere))
  call hold("its end", gang_page_until_ns(nowhere) == 0)
  call hold("its slots", gang_page_slots(nowhere) == 0)
  call expect("no such job", GANG_NO_SUCH_JOB, gang_open(2_int64**40, none))
  call expect("not under gang run", GANG_NO_SUCH_JOB, gang_current(none))

  ! Arguments out of bounds.
  call expect("CPUs", GANG_INVALID, gang_register(none, cpus=-1))
  call expect("least CPUs", GANG_INVALID, gang_register(none, cpus=1, min_cpus=2))
  call expect("class", GANG_INVALID, gang_register(none, cpus=1, job_class=9))
  call expect("weight", GANG_INVALID, gang_register(none, cpus=1, weight=-5))
  call expect("name", GANG_INVALID, gang_register(none, name=repeat("n", 65), cpus=1))
  call expect("blank name", GANG_INVALID, gang_register(none, name="  ", cpus=1))
  call expect("memory", GANG_NOT_ENOUGH, gang_register(none, cpus=1, mem_bytes=2_int64**60))
  call hold("the error has a text", len(gang_error()) > 10)
  call hold("results have texts", gang_result_text(GANG_NO_DAEMON) == "no gangd listens")
  call expect("process", GANG_NO_SUCH_PROCESS, gang_adopt(none, 99999999, cpus=1))

  call expect("register", GANG_OK, gang_register(job, name="calls", cpus=1, min_cpus=1, &
       job_class=GANG_INTERACTIVE, weight=50, mem_bytes=1048576_int64, disk_bytes=1048576_int64, &
       wait=.true., signals=.false.))
  call expect("add", GANG_OK, gang_add_process(job))
  call expect("add no process", GANG_NO_SUCH_PROCESS, gang_add_process(job, 99999999))
  call expect("add a thread of a member", GANG_OK, gang_add_thread(job))
  call expect("it is none by itself", GANG_NO_SUCH_PROCESS, gang_remove_thread(job))
  call expect("add a thread that is not there", GANG_NO_SUCH_PROCESS, gang_add_thread(job, 99999999))
  ! Not lower: a program in standby may have no CPU for long.
  call expect("class", GANG_OK, gang_set_class(job, GANG_BATCH))
  call expect("no class", GANG_INVALID, gang_set_class(job, 0))
  call expect("resize", GANG_OK, gang_resize(job, weight=100, mem_bytes=0_int64))
  call expect("resize to too much", GANG_NOT_ENOUGH, gang_resize(job, mem_bytes=2_int64**60))
  call expect("signals on", GANG_OK, gang_set_signals(job, .true.))
  call expect("signals off", GANG_OK, gang_set_signals(job, .false.))
  call expect("use", GANG_OK, gang_get_use(job, use))
  call hold("one process", use%processes == 1 .and. use%state /= GANG_SUSPENDED)
  call expect("progress", GANG_OK, gang_job_progress(job, 1.0d0, 4.0d0))
  call expect("more than all", GANG_INVALID, gang_job_progress(job, 5.0d0, 4.0d0))
  call expect("load", GANG_OK, gang_get_load(load))
  call hold("the load", load%cpus >= 1 .and. load%mem_total_bytes > load%mem_free_bytes)
  call expect("id", GANG_OK, gang_id(job, id))
  call expect("open", GANG_OK, gang_open(id, same))
  call expect("its id", GANG_OK, gang_id(same, other))
  call hold("the same job", id == other)
  closed = same
  call expect("close", GANG_OK, gang_close(same))
  call expect("close again", GANG_INVALID, gang_close(same))
  call expect("close a copy", GANG_INVALID, gang_close(closed))

  call expect("page", GANG_OK, gang_page_open(job, page))
  ran = .false.
  do while (.not. all(ran))
     if (gang_page_running(page)) then
        ran(1) = .true.
     else
        ran(2) = .true.
     end if
  end do
  call hold("slots begin and end", all(ran))
  call hold("the page is valid", gang_page_is_valid(page))
  call threads()
  call hold("slices have a length", gang_page_slice_ns(page) > 0)
  call hold("CPUs of the slot", gang_page_cpus(page) >= 0)
  call hold("CPUs in use", gang_page_on_cpus(page) >= 0)
  call expect("close the page", GANG_OK, gang_page_close(page))
  call hold("a closed page", .not. gang_page_running(page))

  call expect("remove", GANG_OK, gang_remove_process(job))
  call expect("close the job", GANG_OK, gang_close(job))
  print '(a)', "all calls"

contains

  ! Threads of OpenMP meet at a barrier and take turns by a lock.
  subroutine threads()
    type(gang_barrier), target :: barrier
    type(gang_mutex), target :: mutex
    integer :: turn, sum, failures, code

    call expect("no barrier", GANG_INVALID, gang_barrier_wait(barrier))
    call expect("no threads", GANG_INVALID, gang_barrier_init(barrier, 0))
    call expect("barrier", GANG_OK, gang_barrier_init(barrier, 2, page))
    call expect("lock", GANG_OK, gang_mutex_init(mutex))
    sum = 0
    failures = 0
    !$omp parallel num_threads(2) private(turn, code) reduction(+:failures)
    do turn = 1, 100
       code = gang_mutex_lock(mutex)
       if (code /= GANG_OK) failures = failures + 1
       sum = sum + 1
       code = gang_mutex_unlock(mutex)
       if (code /= GANG_OK) failures = failures + 1
       code = gang_barrier_wait(barrier)
       if (code /= GANG_OK) failures = failures + 1
       if (sum < 2*turn) failures = failures + 1
       code = gang_barrier_wait(barrier)
    end do
    !$omp end parallel
    call hold("threads meet", failures == 0 .and. sum == 200)
    call expect("destroy the barrier", GANG_OK, gang_barrier_destroy(barrier))
    call expect("destroy the lock", GANG_OK, gang_mutex_destroy(mutex))
    call expect("destroy it again", GANG_INVALID, gang_mutex_destroy(mutex))
  end subroutine threads

  subroutine expect(what, wanted, got)
    character(len=*), intent(in) :: what
    integer, intent(in) :: wanted, got
    if (wanted == got) return
    write (error_unit, '(a, i0, a, i0, a)') what//" gave ", got, ", not ", wanted, ": "//gang_error()
    stop 1
  end subroutine expect

  subroutine hold(what, holds)
    character(len=*), intent(in) :: what
    logical, intent(in) :: holds
    if (holds) return
    write (error_unit, '(a)') "does not hold: "//what
    stop 1
  end subroutine hold
end program calls
