c     The parallel part of the program of LLNL's paper: it goes on until
c     its input ends.
      subroutine Parallel_Code
      character*80 line
      print *, 'parallel'
      call flush(6)
   10 read (*, '(a)', end=20) line
      goto 10
   20 end

      block data
      integer cpu_count
      common /supplied/ cpu_count
      data cpu_count /2/
      end
