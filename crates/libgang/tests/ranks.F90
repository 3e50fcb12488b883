! Each rank says in which job it is, after all have met. F08: by the interface of Fortran 2008. The
! first argument is how it begins.
program ranks
#ifdef F08
    use mpi_f08
#endif
    implicit none
#ifndef F08
    include 'mpif.h'
#endif
    integer :: rank, error, provided, groups, status
    character(len=4096) :: how, line

    call get_command_argument(1, how)
    if (how == 'threads') then
        call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, error)
    else
        call MPI_Init(error)
    end if
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
    call MPI_Barrier(MPI_COMM_WORLD, error)
    open (newunit=groups, file='/proc/self/cgroup', action='read')
    do
        read (groups, '(a)', iostat=status) line
        if (status /= 0) exit
        if (line(1:3) == '0::') print '(a, i0, 2a)', 'rank ', rank, ' in ', trim(line(4:))
    end do
    call MPI_Finalize(error)
end program ranks
