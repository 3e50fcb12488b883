! A program that makes itself a gang, and looks at its slots without a system call.
!
!     gfortran $(pkg-config --cflags gang-fortran) gang.f90 $(pkg-config --libs gang-fortran)
program example
  use, intrinsic :: iso_fortran_env, only: error_unit
  use gang
  implicit none
  type(gang_job) :: job
  type(gang_page) :: page
  type(gang_use) :: use
  integer :: begun
  logical :: runs, ran

  call check("register", gang_register(job, name="example", cpus=1))
  call check("add this process", gang_add_process(job))
  call check("open the slot page", gang_page_open(job, page))

  ! Work, until some slots of the job have begun and ended.
  begun = 0
  ran = .false.
  do while (begun < 3)
     runs = gang_page_running(page)
     if (runs .and. .not. ran) begun = begun + 1
     ran = runs
  end do

  call check("use", gang_get_use(job, use))
  print '(i0, a, i0, a)', use%processes, " processes, ", begun, " slots seen"
  call check("close the page", gang_page_close(page))
  call check("close the job", gang_close(job))

contains

  subroutine check(what, result)
    character(len=*), intent(in) :: what
    integer, intent(in) :: result
    if (result == GANG_OK) return
    write (error_unit, '(a)') what//": "//gang_result_text(result)//": "//gang_error()
    stop 1
  end subroutine check
end program example
