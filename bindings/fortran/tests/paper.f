c     The program of LLNL's paper, as a programmer of Fortran writes it.
c     parallel.f supplies cpu_count and Parallel_Code.
      program main
      use GangUserAPI
      integer cpu_count, rc
      common /supplied/ cpu_count
      type (GangJobId) job_id
      type (GangResources) gang_resources(1)
      character*64 hostname

      job_id = GangJobId(0, 0)
      rc = hostnm(hostname)
      gang_resources(1)%machine = hostname
      gang_resources(1)%cpu_count = cpu_count
      gang_resources(1)%cpu_min = 1

      rc = GangJobRegister(job_id, CLASS_INTERACTIVE, gang_resources)
      if (rc .ne. gsSuccess) then
         write (0, *) 'GangJobRegister: ', GangErrMsg(rc)
         stop 1
      endif
      rc = GangProcAdd(job_id, PROC_ID, getpid())
      if (rc .ne. gsSuccess) then
         write (0, *) 'GangProcAdd: ', GangErrMsg(rc)
         stop 1
      endif

      call Parallel_Code
      end
