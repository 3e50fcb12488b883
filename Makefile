# make demo                        two OpenMP programs, under plain Linux and as gangs, in a minute
# make test                        all tests; ends with those that this machine made skip
# make test-hosts                  hosts of a cluster on this machine, with etcd, MPI and Slurm, as root; CASES="page slurm" takes some
# make test-vm                     what this machine may lack, in virtual ones: some minutes, as root
# make test-nightly                what takes quiet or hours, as root; PARTS="figures distros" takes some of it
# make check                       formatting, lints, documentation: no warning is left
# make build                       the programs, optimised
# make install PREFIX= DESTDIR= LIBDIR=
#                                  programs, libgang, man pages and completions where they belong
# make uninstall PREFIX= DESTDIR=
# make deb                         a Debian package, in target/debian
# make wheel                       the Python package, in target/wheels
# make web                         the page of gang web anew from its sources, into crates/view/web/dist
# make deps, make deps-demo        only install what building and testing, or the demo, need
#
# demo, test and check install what they need first: scripts/deps.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# A path with a blank: see scripts/target-dir.
ifneq ($(words [$(CURDIR)]),1)
ifndef CARGO_TARGET_DIR
export CARGO_TARGET_DIR := $(shell scripts/target-dir)
endif
endif
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(TARGET_DIR)/release

BINDIR := $(DESTDIR)$(PREFIX)/bin
SBINDIR := $(DESTDIR)$(PREFIX)/sbin
LIBEXECDIR := $(DESTDIR)$(PREFIX)/libexec/gangd
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
UNITDIR ?= $(PREFIX)/lib/systemd/system
MANDIR := $(DESTDIR)$(PREFIX)/share/man
LIBDIR ?= $(PREFIX)/lib
SLURMDIR := $(DESTDIR)$(PREFIX)/share/gangd/slurm
INCLUDEDIR := $(DESTDIR)$(PREFIX)/include
FORTRANDIR := $(DESTDIR)$(LIBDIR)/gang/fortran
PCDIR := $(DESTDIR)$(LIBDIR)/pkgconfig
BASHDIR := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISHDIR := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

# Where rustup puts cargo, for shells that were open before.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: build check deb demo deps deps-check deps-demo deps-hosts deps-nightly deps-vm install test test-hosts \
  test-nightly test-vm \
  uninstall web wheel

deps:
	@scripts/deps build test
deps-demo:
	@scripts/deps build demo
deps-check:
	@scripts/deps check
deps-hosts:
	@scripts/deps build hosts
deps-vm:
	@scripts/deps build vm
deps-nightly:
	@scripts/deps build demo test hosts vm distros

# The daemon raises programs, and the picture needs the kernel's record of context switches: both
# take root. Without it the demo shows what is left.
demo: deps-demo build
	@set -e; root=; \
	  if [ "$$(id -u)" != 0 ] && command -v sudo >/dev/null; then \
	    echo "The demo runs as root, by sudo."; root=sudo; fi; \
	  $$root "$(BUILT)/gang" lab demo --out demo-out; \
	  if [ -n "$$root" ]; then sudo chown -R "$$(id -u):$$(id -g)" demo-out; fi

test: deps
	@CARGO="$(CARGO)" tests/all.sh

test-hosts: deps-hosts
	$(CARGO) build --workspace --locked --lib --bins
	tests/hosts.sh $(or $(CASES),all)

test-vm: deps-vm deb
	tests/vm.sh

test-nightly: deps-nightly deb
	@CARGO="$(CARGO)" tests/nightly.sh $(PARTS)

check: deps-check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --locked --no-deps --document-private-items
	@if command -v shellcheck >/dev/null; then \
	  shellcheck scripts/link-fabric scripts/build-fortran scripts/build-wheel scripts/deps scripts/make-deb scripts/man3 scripts/source-date scripts/target-dir demo/*.sh tests/*.sh tests/hosts/*.sh tests/hosts/cases/*.sh tests/vm/init tests/vm/report tests/vm/*.sh .ci/run; fi

build:
	$(CARGO) build --release --locked -p gang -p gangd -p gang-doctor -p gang-lab -p gang-trace -p libgang -p gang-fabric
	scripts/link-libgang "$(BUILT)/libgang.a" "$(BUILT)"
	scripts/link-preload "$(BUILT)/libgang.a" "$(BUILT)"
	scripts/link-fabric "$(BUILT)/libgang_fabric.a" "$(BUILT)"
	scripts/build-fortran "$(BUILT)/fortran"

# With the system's Python where it can, as the tests do.
wheel:
	@set -e; python=python3; \
	  if /usr/bin/python3 -c 'import setuptools, wheel, pip' 2>/dev/null; then python=/usr/bin/python3; fi; \
	  scripts/build-wheel $$python "$(TARGET_DIR)/wheels"; ls "$(TARGET_DIR)"/wheels/*.whl

# The built page is kept beside its sources, so that cargo alone builds gang; tests/web.sh compares them.
web:
	npm --prefix crates/view/web ci --ignore-scripts --no-audit --no-fund
	npm --prefix crates/view/web run --silent check
	npm --prefix crates/view/web run --silent build

# Man pages and completions come from the programs themselves, but for those of libgang, which has a
# page for each group of functions, and a link to it for each other name. Nothing is
# built again here, so that `sudo make install` needs no cargo.
install:
	@test -x "$(BUILT)/gang" -a -x "$(BUILT)/gangd" -a -x "$(BUILT)/gang-lab" \
	  -a -x "$(BUILT)/gang-doctor" -a -x "$(BUILT)/gang-trace" -a -e "$(BUILT)/libgang.so.1" || \
	  { echo "$(BUILT) lacks programs or libgang: run 'make build' first" >&2; exit 1; }
	install -d "$(BINDIR)" "$(SBINDIR)" "$(LIBEXECDIR)" "$(MANDIR)/man1" "$(MANDIR)/man3" "$(MANDIR)/man5" \
	  "$(MANDIR)/man8" \
	  "$(BASHDIR)" "$(ZSHDIR)" "$(FISHDIR)" "$(INCLUDEDIR)" "$(PCDIR)" "$(SLURMDIR)"
	install -m 644 "$(BUILT)/libgang.so.1" "$(BUILT)/libgang.a" "$(DESTDIR)$(LIBDIR)"
	strip --strip-unneeded "$(DESTDIR)$(LIBDIR)/libgang.so.1"
	strip --strip-debug "$(DESTDIR)$(LIBDIR)/libgang.a"
	ln -sf libgang.so.1 "$(DESTDIR)$(LIBDIR)/libgang.so"
	install -m 644 "$(BUILT)/libgang-preload.so" "$(DESTDIR)$(LIBDIR)"
	strip --strip-unneeded "$(DESTDIR)$(LIBDIR)/libgang-preload.so"
	if test -e "$(BUILT)/libgang-fi.so"; then \
	  install -m 644 "$(BUILT)/libgang-fi.so" "$(DESTDIR)$(LIBDIR)" && \
	  strip --strip-unneeded "$(DESTDIR)$(LIBDIR)/libgang-fi.so"; fi
	install -m 644 crates/libgang/include/gang.h crates/libgang/include/GangUserAPI.h "$(INCLUDEDIR)"
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' \
	  crates/libgang/gang.pc.in > "$(PCDIR)/gang.pc"
	install -m 644 integrations/slurm/gang_spank.c integrations/slurm/plugstack.conf integrations/slurm/slurm.conf \
	  "$(SLURMDIR)"
	if test -e "$(BUILT)/fortran/gang.mod"; then \
	  install -d "$(FORTRANDIR)" && \
	  install -m 644 "$(BUILT)/fortran/gang.mod" "$(BUILT)/fortran/gang_c.mod" \
	    "$(BUILT)/fortran/ganguserapi.mod" "$(FORTRANDIR)" && \
	  install -m 644 "$(BUILT)/fortran/libgang_fortran.a" "$(DESTDIR)$(LIBDIR)" && \
	  sed -e 's|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' \
	    bindings/fortran/gang-fortran.pc.in > "$(PCDIR)/gang-fortran.pc"; fi
	install -d "$(DESTDIR)$(UNITDIR)" "$(DESTDIR)$(SYSCONFDIR)/gangd" "$(DESTDIR)$(PREFIX)/lib/sysusers.d"
	install -m 644 integrations/systemd/gangd.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/gangd.conf"
	install -m 644 integrations/systemd/gangd.socket "$(DESTDIR)$(UNITDIR)"
	sed -e 's|@SBINDIR@|$(PREFIX)/sbin|' integrations/systemd/gangd.service.in \
	  > "$(DESTDIR)$(UNITDIR)/gangd.service"
	test -e "$(DESTDIR)$(SYSCONFDIR)/gangd/gangd.toml" || \
	  install -m 644 etc/gangd.toml "$(DESTDIR)$(SYSCONFDIR)/gangd/gangd.toml"
	install -m 755 "$(BUILT)/gang" "$(BINDIR)/gang"
	install -m 755 "$(BUILT)/gangd" "$(SBINDIR)/gangd"
	install -m 755 "$(BUILT)/gang-doctor" "$(LIBEXECDIR)/gang-doctor"
	install -m 755 "$(BUILT)/gang-lab" "$(LIBEXECDIR)/gang-lab"
	install -m 755 "$(BUILT)/gang-trace" "$(LIBEXECDIR)/gang-trace"
	set -e; pages=$$(mktemp -d); trap 'rm -rf "$$pages"' EXIT; \
	  "$(BUILT)/gang" manual "$$pages"; install -m 644 "$$pages"/*.1 "$(MANDIR)/man1"; \
	  "$(BUILT)/gangd" --manual gangd.8 > "$$pages/gangd.8"; \
	  install -m 644 "$$pages/gangd.8" "$(MANDIR)/man8"; \
	  "$(BUILT)/gangd" --manual gangd.toml.5 > "$$pages/gangd.toml.5"; \
	  install -m 644 "$$pages/gangd.toml.5" "$(MANDIR)/man5"; \
	  scripts/man3 | while read -r name page; do echo ".so man3/$$page.3" > "$$pages/$$name.3"; done; \
	  cp crates/libgang/man/*.3 "$$pages"; install -m 644 "$$pages"/*.3 "$(MANDIR)/man3"; \
	  for shell in bash zsh fish; do \
	    "$(BUILT)/gang" completions $$shell > "$$pages/$$shell"; done; \
	  install -m 644 "$$pages/bash" "$(BASHDIR)/gang"; \
	  install -m 644 "$$pages/zsh" "$(ZSHDIR)/_gang"; \
	  install -m 644 "$$pages/fish" "$(FISHDIR)/gang.fish"

deb: build
	scripts/make-deb $(VERSION) "$(TARGET_DIR)/debian"

uninstall:
	rm -f "$(BINDIR)/gang" "$(SBINDIR)/gangd" "$(LIBEXECDIR)/gang-doctor" "$(LIBEXECDIR)/gang-lab" \
	  "$(LIBEXECDIR)/gang-trace"
	rm -f "$(MANDIR)/man1/gang.1" "$(MANDIR)/man1"/gang-*.1 "$(MANDIR)/man8/gangd.8" \
	  "$(MANDIR)/man5/gangd.toml.5"
	scripts/man3 | while read -r name page; do rm -f "$(MANDIR)/man3/$$name.3"; done
	rm -f "$(DESTDIR)$(LIBDIR)/libgang.so.1" "$(DESTDIR)$(LIBDIR)/libgang.so" "$(DESTDIR)$(LIBDIR)/libgang.a"
	rm -f "$(DESTDIR)$(LIBDIR)/libgang-preload.so" "$(DESTDIR)$(LIBDIR)/libgang-fi.so"
	rm -f "$(DESTDIR)$(UNITDIR)/gangd.socket" "$(DESTDIR)$(UNITDIR)/gangd.service"
	rm -f "$(DESTDIR)$(PREFIX)/lib/sysusers.d/gangd.conf"
	cmp -s etc/gangd.toml "$(DESTDIR)$(SYSCONFDIR)/gangd/gangd.toml" && \
	  rm -f "$(DESTDIR)$(SYSCONFDIR)/gangd/gangd.toml" || true
	rmdir "$(DESTDIR)$(SYSCONFDIR)/gangd" 2>/dev/null || true
	rm -f "$(INCLUDEDIR)/gang.h" "$(INCLUDEDIR)/GangUserAPI.h" "$(PCDIR)/gang.pc"
	rm -f "$(FORTRANDIR)/gang.mod" "$(FORTRANDIR)/gang_c.mod" "$(FORTRANDIR)/ganguserapi.mod" \
	  "$(PCDIR)/gang-fortran.pc"
	rm -f "$(DESTDIR)$(LIBDIR)/libgang_fortran.a"
	rmdir "$(FORTRANDIR)" "$(DESTDIR)$(LIBDIR)/gang" 2>/dev/null || true
	rm -f "$(SLURMDIR)/gang_spank.c" "$(SLURMDIR)/plugstack.conf" "$(SLURMDIR)/slurm.conf"
	rmdir "$(SLURMDIR)" "$(DESTDIR)$(PREFIX)/share/gangd" 2>/dev/null || true
	rm -f "$(BASHDIR)/gang" "$(ZSHDIR)/_gang" "$(FISHDIR)/gang.fish"
	rmdir "$(LIBEXECDIR)" 2>/dev/null || true
