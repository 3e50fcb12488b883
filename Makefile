# make demo                        two OpenMP programs, under plain Linux and as gangs, in a minute
# make test                        all tests
# make check                       formatting, lints, documentation: no warning is left
# make build                       the programs, optimised
# make install PREFIX= DESTDIR=    programs, man pages and completions where they belong
# make uninstall PREFIX= DESTDIR=
# make deps, make deps-demo        only install what building and testing, or the demo, need
#
# demo, test and check install what they need first: scripts/deps.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(TARGET_DIR)/release

BINDIR := $(DESTDIR)$(PREFIX)/bin
SBINDIR := $(DESTDIR)$(PREFIX)/sbin
LIBEXECDIR := $(DESTDIR)$(PREFIX)/libexec/gangd
MANDIR := $(DESTDIR)$(PREFIX)/share/man
BASHDIR := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISHDIR := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

# Where rustup puts cargo, for shells that were open before.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: build check demo deps deps-check deps-demo install test uninstall

deps:
	@scripts/deps build test
deps-demo:
	@scripts/deps build demo
deps-check:
	@scripts/deps check

# The daemon raises programs, and the picture needs the kernel's record of context switches: both
# take root. Without it the demo shows what is left.
demo: deps-demo build
	@set -e; root=; \
	  if [ "$$(id -u)" != 0 ] && command -v sudo >/dev/null; then \
	    echo "The demo runs as root, by sudo."; root=sudo; fi; \
	  $$root $(BUILT)/gang lab demo --out demo-out; \
	  if [ -n "$$root" ]; then sudo chown -R "$$(id -u):$$(id -g)" demo-out; fi

# Built before, so that tests of whole programs find them side by side.
test: deps
	$(CARGO) build --workspace --locked --bins --tests
	$(CARGO) test --workspace --locked --no-fail-fast
	tests/deps.sh

check: deps-check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --locked --no-deps --document-private-items
	@if command -v shellcheck >/dev/null; then \
	  shellcheck scripts/deps tests/*.sh .ci/run; fi

build:
	$(CARGO) build --release --locked -p gang -p gangd -p gang-lab

# Man pages and completions come from the programs themselves. What was built is not built again
# here, so that `sudo make install` needs no cargo.
install:
	@test -x $(BUILT)/gang -a -x $(BUILT)/gangd -a -x $(BUILT)/gang-lab || \
	  { echo "$(BUILT) lacks gang, gangd or gang-lab: run 'make build' first" >&2; exit 1; }
	install -d $(BINDIR) $(SBINDIR) $(LIBEXECDIR) $(MANDIR)/man1 $(MANDIR)/man8 \
	  $(BASHDIR) $(ZSHDIR) $(FISHDIR)
	install -m 755 $(BUILT)/gang $(BINDIR)/gang
	install -m 755 $(BUILT)/gangd $(SBINDIR)/gangd
	install -m 755 $(BUILT)/gang-lab $(LIBEXECDIR)/gang-lab
	set -e; pages=$$(mktemp -d); trap 'rm -rf "$$pages"' EXIT; \
	  $(BUILT)/gang manual "$$pages"; install -m 644 "$$pages"/*.1 $(MANDIR)/man1; \
	  $(BUILT)/gangd --manual > "$$pages/gangd.8"; \
	  install -m 644 "$$pages/gangd.8" $(MANDIR)/man8; \
	  for shell in bash zsh fish; do \
	    $(BUILT)/gang completions $$shell > "$$pages/$$shell"; done; \
	  install -m 644 "$$pages/bash" $(BASHDIR)/gang; \
	  install -m 644 "$$pages/zsh" $(ZSHDIR)/_gang; \
	  install -m 644 "$$pages/fish" $(FISHDIR)/gang.fish

uninstall:
	rm -f $(BINDIR)/gang $(SBINDIR)/gangd $(LIBEXECDIR)/gang-lab
	rm -f $(MANDIR)/man1/gang.1 $(MANDIR)/man1/gang-*.1 $(MANDIR)/man8/gangd.8
	rm -f $(BASHDIR)/gang $(ZSHDIR)/_gang $(FISHDIR)/gang.fish
	-rmdir $(LIBEXECDIR)
