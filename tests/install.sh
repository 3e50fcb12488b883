#!/usr/bin/env bash
# make install and make uninstall, of the programs that the tests have built. All that is promised
# is there, programs are compiled and linked by pkg-config against it and run, and nothing stays
# behind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
built=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Variables that somebody else has set are not looked at.
unset GANG_JOB GANG_CPUS GANG_CLASS GANG_NAME

work=$(mktemp -d)
started=()
clean_up() {
  local pid
  for pid in "${started[@]}"; do
    kill "$pid" 2>/dev/null || continue
    wait "$pid" 2>/dev/null || true
  done
  [[ ! -x $work/prefix/sbin/gangd ]] || "$work/prefix/sbin/gangd" --socket "$work/gangd.sock" --release >/dev/null
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  [[ ! -e $work/log ]] || tail -n 20 "$work/log" >&2
  exit 1
}
skipped() {
  echo "skipped: $1"
  echo "tests/install.sh: $1" >>"${GANG_SKIPS:-/dev/null}"
}
has() { command -v "$1" >/dev/null; }
# A daemon of a machine that is slow, and tests that hang.
export GANG_TIMEOUT=180
# wait_until WHAT COMMAND… : for a bounded time.
wait_until() {
  local end=$((SECONDS + GANG_TIMEOUT))
  until "${@:2}" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "not within $GANG_TIMEOUT s: $1"
    sleep 0.05
  done
}

stage=$work/built
tests/stage.sh "$built" "$stage"
scripts/build-fortran "$stage/fortran" 2>/dev/null
run_make() { make -s --no-print-directory BUILT="$stage" "$@"; }
# The files below a directory, without directories.
files() { (cd "$1" && find . ! -type d -printf '%P\n' | LC_ALL=C sort); }

# The files of a package: none of them knows of the directory in which they were collected.
libdir=/usr/lib/of-this-machine
run_make install DESTDIR="$work/package" PREFIX=/usr LIBDIR=$libdir UNITDIR=/lib/systemd/system
promised=(
  etc/gangd/gangd.toml
  lib/systemd/system/gangd.{service,socket}
  usr/bin/gang
  usr/include/{GangUserAPI,gang}.h
  "${libdir#/}"/libgang{-preload.so,.a,.so,.so.1}
  "${libdir#/}"/pkgconfig/gang.pc
  usr/lib/sysusers.d/gangd.conf
  usr/libexec/gangd/gang-{doctor,lab,trace}
  usr/sbin/gangd
  usr/share/bash-completion/completions/gang
  usr/share/gangd/slurm/{gang_spank.c,plugstack.conf,slurm.conf}
  usr/share/fish/vendor_completions.d/gang.fish
  usr/share/man/{man1/gang.1,man5/gangd.toml.5,man8/gangd.8}
  usr/share/zsh/site-functions/_gang
)
# Where the headers of libfabric are.
[[ ! -e $stage/libgang-fi.so ]] || promised+=("${libdir#/}/libgang-fi.so")
# Each command has a page.
commands=$("$stage/gang" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' | grep -vx help)
[[ $commands == *run* && $commands == *doctor* ]] || fail "gang --help names no commands: $commands"
for command in $commands; do promised+=("usr/share/man/man1/gang-$command.1"); done
# So has each function of the headers, and each header.
functions=$(sed -nE 's/^[a-zA-Z].*[ *]([gG]ang[A-Za-z_]+)\(.*/\1/p' crates/libgang/include/*.h)
[[ $functions == *gang_register* && $functions == *GangJobRegister* ]] || fail "the headers declare: $functions"
for function in gang GangUserAPI $functions; do promised+=("usr/share/man/man3/$function.3"); done
if [[ -e $stage/fortran/gang.mod ]]; then
  promised+=("${libdir#/}"/{gang/fortran/{gang,gang_c,ganguserapi}.mod,libgang_fortran.a,pkgconfig/gang-fortran.pc})
else
  skipped "gfortran is not here: the Fortran module was not installed"
fi
diff <(printf '%s\n' "${promised[@]}" | LC_ALL=C sort) <(files "$work/package") ||
  fail "make install leaves something else (>) than what is promised (<)"
if grep -rlIF "$work" "$work/package"; then fail "these know where they were put together"; fi
grep -qx 'ExecStart=/usr/sbin/gangd.*' "$work/package/lib/systemd/system/gangd.service" ||
  fail "the unit does not start what was installed"
run_make uninstall DESTDIR="$work/package" PREFIX=/usr LIBDIR=$libdir UNITDIR=/lib/systemd/system
[[ ! $(files "$work/package") ]] || fail "make uninstall left: $(files "$work/package")"
for own in etc/gangd usr/libexec/gangd usr/share/gangd "$libdir/gang"; do
  [[ ! -e $work/package/$own ]] || fail "make uninstall left the directory $own"
done
echo "ok: a package has what is promised, and nothing else"

# The installation of a user without privilege.
prefix=$work/prefix
mkdir -p "$prefix/bin"
echo "somebody else's" >"$prefix/bin/other"
run_make install PREFIX="$prefix"
"$prefix/sbin/gangd" --config "$prefix/etc/gangd/gangd.toml" --check-config >/dev/null ||
  fail "the configuration that is installed is not accepted"
bash -n "$prefix/share/bash-completion/completions/gang" || fail "the completions for bash"
for companion in doctor lab trace; do
  "$prefix/bin/gang" $companion --help >/dev/null || fail "gang $companion is not found where it was installed"
done
export GANG_SOCKET=$work/gangd.sock
"$prefix/sbin/gangd" --socket "$GANG_SOCKET" --config "$prefix/etc/gangd/gangd.toml" \
  </dev/null 2>"$work/log" &
started+=($!)
wait_until "the daemon answers" "$prefix/bin/gang" status
[[ $("$prefix/bin/gang" run -- echo ran) == ran ]] || fail "gang run ran nothing"
echo "ok: the programs find each other"

# Again, while it runs; what was changed in the configuration stays.
echo '# changed' >>"$prefix/etc/gangd/gangd.toml"
before=$(files "$prefix")
run_make install PREFIX="$prefix"
[[ $(files "$prefix") == "$before" ]] || fail "a second installation left something else"
[[ $(tail -n 1 "$prefix/etc/gangd/gangd.toml") == "# changed" ]] || fail "the configuration was overwritten"
"$prefix/bin/gang" status >/dev/null || fail "the daemon did not outlive a second installation"
echo "ok: it is installed again over itself"

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
[[ $(pkg-config --modversion gang) == "$version" ]] || fail "gang.pc is of another version"
read -ra shared <<<"$(pkg-config --cflags --libs gang)"
read -ra static <<<"$(pkg-config --static --cflags --libs gang)"
# expect PROGRAM TEXT : it runs, and says so.
expect() {
  local said
  said=$(timeout 600 "$1") || fail "$1 ended with $?"
  [[ $said == *"$2"* ]] || fail "$1 said: $said"
}
for compiler in cc c++; do
  if ! has $compiler; then
    skipped "$compiler is not here"
    continue
  fi
  language=${compiler/#cc/c}
  for example in gang llnl; do
    said="3 slots seen"
    [[ $example == gang ]] || said="3 processes"
    source=(-Wall -Werror -O1 -x "$language" "crates/libgang/examples/$example.c" -x none)
    program=$work/$example-$language
    $compiler "${source[@]}" -o "$program-shared" "${shared[@]}" "-Wl,-rpath,$prefix/lib"
    expect "$program-shared" "$said"
    if ! $compiler -static -o "$work/nothing" -x "$language" - <<<'int main(void) { return 0; }' 2>/dev/null; then
      skipped "$compiler links nothing statically here"
      continue
    fi
    # The linker warns of what glibc loads when it looks up names.
    $compiler "${source[@]}" -static -o "$program-static" "${static[@]}" 2>"$work/warnings" ||
      fail "no $program-static: $(<"$work/warnings")"
    expect "$program-static" "$said"
    if ldd "$program-static" >/dev/null 2>&1; then fail "$program-static takes shared libraries"; fi
  done
  echo "ok: programs by $compiler, linked with the shared library, and the static one"
done
if [[ -e $stage/fortran/gang.mod ]]; then
  read -ra flags <<<"$(pkg-config --cflags --libs gang-fortran)"
  gfortran bindings/fortran/examples/gang.f90 -o "$work/fortran" "${flags[@]}" "-Wl,-rpath,$prefix/lib"
  expect "$work/fortran" "3 slots seen"
  echo "ok: a program in Fortran"
fi
env GANG=1 GANG_CPUS=1 GANG_NAME=preloaded LD_PRELOAD="$prefix/lib/libgang-preload.so" sleep 600 &
started+=($!)
is_preloaded() { "$prefix/bin/gang" ls --json | grep -q '"preloaded"'; }
wait_until "what has the preload library is a gang" is_preloaded
echo "ok: a program with the preload library"
if [[ -e $stage/libgang-fi.so ]] && command -v fi_info >/dev/null; then
  FI_PROVIDER_PATH=$prefix/lib${FI_PROVIDER_PATH:+:$FI_PROVIDER_PATH} fi_info -p gang | grep -q FI_EP_RDM
  echo "ok: libfabric finds the provider"
fi

run_make uninstall PREFIX="$prefix"
[[ $(files "$prefix") == $'bin/other\netc/gangd/gangd.toml' ]] || fail "make uninstall left: $(files "$prefix")"
echo "ok: nothing stays but what somebody else has put there, or changed"
