! Every function of the module GangUserAPI, as it is meant and misused.
program llnl
  use, intrinsic :: iso_fortran_env, only: error_unit, int64
  use GangUserAPI
  implicit none
  type(GangJobId) :: job, none, foreign
  type(GangResources) :: here(1), elsewhere(1), twice(2), nowhere(0)
  type(GangUse) :: use
  type(GangLoad) :: load

  here(1)%cpu_count = 2
  here(1)%cpu_min = 1
  elsewhere = here
  elsewhere(1)%machine = "elsewhere.example.org"
  foreign = GangJobId(1_int64, 1_int64)

  call expect("no list", gsBadArgument, GangJobRegister(job, CLASS_BATCH, nowhere))
  call expect("twice", gsBadArgument, GangJobRegister(job, CLASS_BATCH, twice))
  call expect("elsewhere", gsBadMachine, GangJobRegister(job, CLASS_BATCH, elsewhere))
  elsewhere(1)%machine = repeat("x", len(elsewhere(1)%machine))
  call expect("a long name", gsBadMachine, GangJobRegister(job, CLASS_BATCH, elsewhere))
  call expect("no class", gsBadClass, GangJobRegister(job, 9, here))
  call expect("a foreign id", gsNoSuchJob, GangJobRegister(foreign, CLASS_BATCH, here))
  call hold("failed calls leave the id", job%computer == 0 .and. job%job == 0)
  call expect("add to nothing", gsNoSuchJob, GangProcAdd(none, PROC_ID, getpid()))
  call expect("remove from nothing", gsNoSuchJob, GangProcRemove(none, PROC_ID, getpid()))
  call expect("class of nothing", gsNoSuchJob, GangJobClass(none, CLASS_BATCH))
  call expect("resources of nothing", gsNoSuchJob, GangJobResources(none, here))
  call expect("signals of nothing", gsNoSuchJob, GangSignalsDisable(none))
  use%processes = 7
  call expect("use of nothing", gsNoSuchJob, GangJobUse(none, use))
  call hold("a failed call leaves the use", use%processes == 7)

  here(1)%mega_mem = huge(0)
  call expect("too much", gsNoResources, GangJobRegister(job, CLASS_INTERACTIVE, here))
  here(1)%mega_mem = 16
  here(1)%machine = "localhost"
  call expect("register", gsSuccess, GangJobRegister(job, CLASS_INTERACTIVE, here))
  call hold("its id", job%computer /= 0 .and. job%job /= 0)
  call expect("no kind", gsBadIdType, GangProcAdd(job, 2, getpid()))
  call expect("no process", gsNoSuchProcess, GangProcAdd(job, PROC_ID, 99999999))
  call expect("add", gsSuccess, GangProcAdd(job, PROC_ID, getpid()))
  call expect("use", gsSuccess, GangJobUse(job, use))
  call hold("one process", use%processes == 1 .and. use%threads >= 1)
  here(1)%cpu_count = 1
  call expect("register again", gsSuccess, GangJobRegister(job, CLASS_BATCH, here))
  call expect("resources", gsSuccess, GangJobResources(job, here))
  call expect("class", gsSuccess, GangJobClass(job, CLASS_BATCH))
  call expect("signals on", gsSuccess, GangSignalsEnable(job))
  call expect("signals off", gsSuccess, GangSignalsDisable(job))
  call expect("load", gsSuccess, GangMachineLoad("localhost   ", load))
  call hold("the load", load%cpu_count >= 1 .and. load%jobs >= 1 .and. load%mega_mem_free > 0)
  call expect("load elsewhere", gsBadMachine, GangMachineLoad("elsewhere", load))
  call expect("remove", gsSuccess, GangProcRemove(job, PROC_ID, getpid()))
  call hold("results have texts", GangErrMsg(gsNoDaemon) == "no gangd listens")
  call hold("also those that are none", len(GangErrMsg(99)) > 0)
  print '(a)', "all calls"

contains

  subroutine expect(what, wanted, rc)
    character(len=*), intent(in) :: what
    integer, intent(in) :: wanted, rc
    if (rc == wanted) return
    write (error_unit, '(a, i0, a)') what//" gave ", rc, ": "//GangErrMsg(rc)
    stop 1
  end subroutine expect

  subroutine hold(what, holds)
    character(len=*), intent(in) :: what
    logical, intent(in) :: holds
    if (holds) return
    write (error_unit, '(a)') "not so: "//what
    stop 1
  end subroutine hold
end program llnl
