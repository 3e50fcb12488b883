# shellcheck shell=bash
# The blocks of commands and files below a heading of a page, one after another.

# block_of FILE HEADING N
block_of() {
  awk -v heading="## $2" -v wanted="$3" '
    /^## / { inside = $0 == heading; next }
    inside && /^    / { if (!open) { number++; open = 1 } if (number == wanted) print substr($0, 5); next }
    { open = 0 }' "$1"
}
