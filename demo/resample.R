# The bootstrap of a median by R's package parallel: a process for each CPU draws samples, and all
# of them are waited for.
#
# resample.R VALUES TIMES does so TIMES times, and prints one line of JSON.

arguments <- as.integer(commandArgs(trailingOnly = TRUE))
processes <- parallel::detectCores()
draws <- 20
set.seed(1)
values <- rnorm(arguments[1])
error <- 0
for (time in seq_len(arguments[2])) {
  medians <- parallel::mclapply(seq_len(processes), function(process) {
    replicate(draws, median(sample(values, replace = TRUE)))
  }, mc.cores = processes)
  error <- sd(unlist(medians))
}
now_ns <- as.numeric(Sys.time()) * 1e9
cat(sprintf("{\"finished_at_ns\": %.0f, \"error\": %g}\n", now_ns, error))
quit(status = if (is.finite(error)) 0 else 1)
