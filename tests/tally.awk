# Reads what programs of tests printed and writes a line for each outcome that the list at the end
# has:
#
#   failed PROGRAM: TEST      a test that failed, or a program that did not come to its end
#   nightly PROGRAM: TEST: REASON
#   passed N
#
# tests/one.sh announces each program by a line "program NAME"; the rest is the output of libtest.

function close_program() {
  if (program != "" && !ended) print "failed " program ": it did not come to its end"
  program = ""
}

/^program / { close_program(); program = $2 " " $3; ended = 0; next }

# The runner may announce them or not: rustdoc says itself when one cannot be built.
/^ *Doc-tests / { close_program(); program = $2 " doc"; ended = 1; next }

/^test .* \.\.\. ignored/ {
  test = $2
  reason = $0
  sub(/^.* \.\.\. ignored(, )?(nightly: )?/, "", reason)
  print "nightly " program ": " test (reason == "" ? "" : ": " reason)
  next
}

# The last of the two blocks has the names; of the first, the lines are no names.
/^failures:$/ { in_failures = 1; count = 0; next }
in_failures && /^    [^ ]+$/ { names[count++] = $1; next }

/^test result: / {
  ended = 1
  in_failures = 0
  passed += $4
  for (i = 0; i < count; i++) print "failed " program ": " names[i]
  count = 0
}

END {
  close_program()
  print "passed " passed + 0
}
