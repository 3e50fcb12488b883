! The interface of LLNL's gang scheduler (Jette, 1998), for programs written for it.
!
!     use GangUserAPI
!     type (GangJobId) job_id
!     type (GangResources) gang_resources(1)
!     gang_resources(1)%machine = hostname
!     gang_resources(1)%cpu_count = cpu_count
!     rc = GangJobRegister(job_id, CLASS_INTERACTIVE, gang_resources)
!     if (rc .ne. gsSuccess) print *, GangErrMsg(rc)
!     rc = GangProcAdd(job_id, PROC_ID, getpid())
!
! GangUserAPI.h says more about each function. A list of resources is an array, with an element for
! each computer. New programs use the module gang.
module GangUserAPI
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_f_pointer, c_int, c_int64_t, &
       c_loc, c_null_char, c_null_ptr, c_ptr, c_size_t
  implicit none
  private

  public :: GangJobId, GangResources, GangUse, GangLoad
  public :: GangJobRegister, GangProcAdd, GangProcRemove, GangJobClass, GangJobResources
  public :: GangJobUse, GangMachineLoad, GangSignalsDisable, GangSignalsEnable, GangErrMsg

  ! Results.
  integer(c_int), parameter, public :: gsSuccess = 0
  ! An argument is out of bounds.
  integer(c_int), parameter, public :: gsBadArgument = 1
  ! No daemon of the gang scheduler listens.
  integer(c_int), parameter, public :: gsNoDaemon = 2
  ! The id is of no job, or of one that has ended.
  integer(c_int), parameter, public :: gsNoSuchJob = 3
  ! No process has the number, or the process is not of the job.
  integer(c_int), parameter, public :: gsNoSuchProcess = 4
  ! The job or process is another user's, or only administrators may.
  integer(c_int), parameter, public :: gsNotPermitted = 5
  ! There are too many jobs, CPUs or connections.
  integer(c_int), parameter, public :: gsLimit = 6
  ! There is not as much memory or disk as was asked for.
  integer(c_int), parameter, public :: gsNoResources = 7
  ! The daemon did not answer in time.
  integer(c_int), parameter, public :: gsNoAnswer = 8
  ! The kernel or the machine refused.
  integer(c_int), parameter, public :: gsFailed = 9
  ! The daemon is of another version.
  integer(c_int), parameter, public :: gsUnsupported = 10
  ! This daemon does not look after the computer.
  integer(c_int), parameter, public :: gsBadMachine = 11
  ! No class has that number.
  integer(c_int), parameter, public :: gsBadClass = 12
  ! Only processes have ids here: PROC_ID.
  integer(c_int), parameter, public :: gsBadIdType = 13

  ! Classes, in order of priority. Only administrators put a job into CLASS_EXPRESS.
  integer(c_int), parameter, public :: CLASS_EXPRESS = 1
  integer(c_int), parameter, public :: CLASS_INTERACTIVE = 2
  integer(c_int), parameter, public :: CLASS_BATCH = 3
  integer(c_int), parameter, public :: CLASS_STANDBY = 4

  ! The kind of thing that a number identifies: a process.
  integer(c_int), parameter, public :: PROC_ID = 1

  ! The length of a computer's name in C, with its zero byte.
  integer, parameter :: MACHINE_LENGTH = 256

  ! Zero: a job to be. Set: one that runs.
  type, bind(c) :: GangJobId
     integer(c_int64_t) :: computer = 0
     integer(c_int64_t) :: job = 0
  end type GangJobId

  ! The needs of a job on one computer.
  type :: GangResources
     character(len=MACHINE_LENGTH - 1) :: machine = " " ! the name of this computer, or blank
     integer(c_int) :: cpu_count = 0                    ! wanted
     integer(c_int) :: cpu_min = 0                      ! least acceptable; 0: cpu_count
     integer(c_int) :: mega_mem = 0                     ! MB, 0: not said
     integer(c_int) :: giga_disk = 0                    ! GB, 0: not said
  end type GangResources

  type, bind(c) :: GangUse
     real(c_double) :: cpu_seconds = 0
     real(c_double) :: slot_seconds = 0
     integer(c_int64_t) :: slots = 0
     integer(c_int) :: processes = 0
     integer(c_int) :: threads = 0
     real(c_double) :: mega_mem = 0 ! negative where it is not known
  end type GangUse

  type, bind(c) :: GangLoad
     integer(c_int) :: cpu_count = 0
     integer(c_int) :: jobs = 0
     real(c_double) :: load_average = 0
     real(c_double) :: mega_mem_free = 0
     real(c_double) :: giga_disk_free = 0
  end type GangLoad

  ! GangResources as C has it.
  type, bind(c) :: needs_in_c
     character(kind=c_char) :: machine(MACHINE_LENGTH) = c_null_char
     integer(c_int) :: cpu_count = 0
     integer(c_int) :: cpu_min = 0
     integer(c_int) :: mega_mem = 0
     integer(c_int) :: giga_disk = 0
  end type needs_in_c

  interface
     function c_strlen(text) bind(c, name="strlen") result(length)
       import :: c_ptr, c_size_t
       type(c_ptr), value :: text
       integer(c_size_t) :: length
     end function c_strlen

     function c_register(job_id, job_class, list) bind(c, name="GangJobRegister") result(rc)
       import :: GangJobId, c_int, c_ptr
       type(GangJobId), intent(inout) :: job_id
       integer(c_int), value :: job_class
       type(c_ptr), intent(in) :: list(*)
       integer(c_int) :: rc
     end function c_register

     function c_resources(job_id, list) bind(c, name="GangJobResources") result(rc)
       import :: GangJobId, c_int, c_ptr
       type(GangJobId), intent(in) :: job_id
       type(c_ptr), intent(in) :: list(*)
       integer(c_int) :: rc
     end function c_resources

     function c_load(machine, load) bind(c, name="GangMachineLoad") result(rc)
       import :: GangLoad, c_char, c_int
       character(kind=c_char), intent(in) :: machine(*)
       type(GangLoad), intent(inout) :: load
       integer(c_int) :: rc
     end function c_load

     function c_text(rc) bind(c, name="GangErrMsg") result(text)
       import :: c_int, c_ptr
       integer(c_int), value :: rc
       type(c_ptr) :: text
     end function c_text

     ! Adds a process with its future children.
     function GangProcAdd(job_id, id_type, process) bind(c, name="GangProcAdd") result(rc)
       import :: GangJobId, c_int
       type(GangJobId), intent(in) :: job_id
       integer(c_int), value :: id_type, process
       integer(c_int) :: rc
     end function GangProcAdd

     ! Takes a process out again.
     function GangProcRemove(job_id, id_type, process) bind(c, name="GangProcRemove") result(rc)
       import :: GangJobId, c_int
       type(GangJobId), intent(in) :: job_id
       integer(c_int), value :: id_type, process
       integer(c_int) :: rc
     end function GangProcRemove

     ! The owner of a job may lower its class, administrators may set any.
     function GangJobClass(job_id, job_class) bind(c, name="GangJobClass") result(rc)
       import :: GangJobId, c_int
       type(GangJobId), intent(in) :: job_id
       integer(c_int), value :: job_class
       integer(c_int) :: rc
     end function GangJobClass

     function GangJobUse(job_id, use) bind(c, name="GangJobUse") result(rc)
       import :: GangJobId, GangUse, c_int
       type(GangJobId), intent(in) :: job_id
       type(GangUse), intent(inout) :: use
       integer(c_int) :: rc
     end function GangJobUse

     ! Processes that handle SIGUSR1 and SIGUSR2 get them around the slots of the job, or do not.
     function GangSignalsDisable(job_id) bind(c, name="GangSignalsDisable") result(rc)
       import :: GangJobId, c_int
       type(GangJobId), intent(in) :: job_id
       integer(c_int) :: rc
     end function GangSignalsDisable

     function GangSignalsEnable(job_id) bind(c, name="GangSignalsEnable") result(rc)
       import :: GangJobId, c_int
       type(GangJobId), intent(in) :: job_id
       integer(c_int) :: rc
     end function GangSignalsEnable
  end interface

contains

  ! Registers a job, or changes one that runs where the id is set.
  function GangJobRegister(job_id, job_class, resources) result(rc)
    type(GangJobId), intent(inout) :: job_id
    integer(c_int), intent(in) :: job_class
    type(GangResources), intent(in) :: resources(:)
    integer(c_int) :: rc
    type(needs_in_c), target :: needs(size(resources))
    needs = in_c(resources)
    rc = c_register(job_id, job_class, listed(needs))
  end function GangJobRegister

  ! Changes the resources of a job; a 0 leaves its value as it is.
  function GangJobResources(job_id, resources) result(rc)
    type(GangJobId), intent(in) :: job_id
    type(GangResources), intent(in) :: resources(:)
    integer(c_int) :: rc
    type(needs_in_c), target :: needs(size(resources))
    needs = in_c(resources)
    rc = c_resources(job_id, listed(needs))
  end function GangJobResources

  ! A blank machine is this one.
  function GangMachineLoad(machine, load) result(rc)
    character(len=*), intent(in) :: machine
    type(GangLoad), intent(inout) :: load
    integer(c_int) :: rc
    rc = c_load(trim(machine)//c_null_char, load)
  end function GangMachineLoad

  ! Text for a result.
  function GangErrMsg(rc) result(text)
    integer(c_int), intent(in) :: rc
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: of_c(:)
    type(c_ptr) :: from
    integer :: at

    from = c_text(rc)
    call c_f_pointer(from, of_c, [c_strlen(from)])
    allocate (character(len=size(of_c)) :: text)
    do at = 1, size(of_c)
       text(at:at) = of_c(at)
    end do
  end function GangErrMsg

  elemental function in_c(resources) result(needs)
    type(GangResources), intent(in) :: resources
    type(needs_in_c) :: needs
    integer :: at

    do at = 1, len_trim(resources%machine)
       needs%machine(at) = resources%machine(at:at)
    end do
    needs%cpu_count = resources%cpu_count
    needs%cpu_min = resources%cpu_min
    needs%mega_mem = resources%mega_mem
    needs%giga_disk = resources%giga_disk
  end function in_c

  ! The list of C: pointers to all elements, and a null pointer.
  function listed(needs) result(list)
    type(needs_in_c), intent(in), target :: needs(:)
    type(c_ptr) :: list(size(needs) + 1)
    integer :: at

    do at = 1, size(needs)
       list(at) = c_loc(needs(at))
    end do
    list(size(list)) = c_null_ptr
  end function listed
end module GangUserAPI
