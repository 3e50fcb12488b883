# shellcheck shell=bash disable=SC2154,SC2016
# CASE trace: docs/trace.md word by word: two hosts record a job whose slots begin together

# Of each slice in which the job has slots on both hosts, when these begin on the one and on the
# other, µs. The first slot of a record is cut where the record began.
COMMON_SLOTS='
  [.traceEvents[] | select(.cat == "slot" and .args.job == $job)
    | { host: (.pid / 10 | floor), slice: .args.slice, ts }]
  | [group_by(.host)[] | (map(.ts) | min) as $first | .[] | select(.ts > $first)]
  | group_by(.slice)[] | [first(.[] | select(.host == 0)), first(.[] | select(.host == 1))]
  | select(length == 2) | "\(.[0].ts) \(.[1].ts)"'

case_trace() {
  has sshd || skip_case "sshd is not here"
  has jq || skip_case "jq is not here"
  want_cluster one
  local name id commands merged="$BED/home/both.json" bound_us slots
  start_spanning_spinner traced
  id=$(job_named traced)
  # Beside a job of each host, so that there is something to switch.
  for name in node1 node2; do
    on "$name" gang run --name beside timeout 600 sh -c "$SPIN" >>"$BED/log/spinner" 2>&1 &
  done
  has_slots_everywhere "$id"
  commands=$(block trace.md "Several hosts" 1)
  [[ $commands == *"gang trace merge"* ]] || fail "the first block of the page merges nothing: $commands"
  say "$(tail -n 1 <<<"$commands")"
  on node1 timeout 300 bash -ec "$commands" >"$BED/log/trace" 2>&1 || fail "it said: $(cat "$BED/log/trace")"
  if grep -q "cannot record what runs" "$BED/log/trace"; then skip_case "$(cat "$BED/log/trace")"; fi
  sed 's/^/    /' "$BED/log/trace"
  # The hosts of the bed have one kernel.
  grep -q "all of it is by one clock" "$BED/log/trace" || fail "the command does not say that there is one clock"
  bound_us=$(jq '.metadata.between[0].bound_ns / 1e3' "$merged")
  slots=$(jq -r --argjson job "$id" "$COMMON_SLOTS" "$merged")
  # Where many others want the CPUs, the job has few.
  (($(wc -l <<<"$slots") >= 3)) || fail "the hosts have few slots in common: $slots"
  # A nanosecond, by which sums of µs may differ.
  awk -v bound="$bound_us" '{ apart = $1 - $2 } apart < 0 { apart = -apart }
    apart > bound + 0.001 { print "slots begin " apart " µs apart"; odd = 1 } END { exit odd }' <<<"$slots" ||
    fail "slots of the job begin further apart than the clocks may be, $bound_us µs"
  say "$(wc -l <<<"$slots") slices have slots of the job on both hosts, which begin within $bound_us µs of each other"
  for name in node1 node2; do
    jq -e --arg host "$name: threads, as they ran" --argjson job "$id" '
      (.traceEvents[] | select(.name == "process_name" and .args.name == $host) | .pid) as $group
      | any(.traceEvents[]; .pid == $group and .cat == "in slot" and .args.job == $job)' "$merged" >/dev/null ||
      fail "$name has no thread of the job in its slots on record"
  done
  on node1 gang kill "$id"
  for name in node1 node2; do on "$name" gang kill beside; done
  wait_until "the job is gone" is_gone_everywhere traced
}
