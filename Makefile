# make build                       the programs, optimised
# make install PREFIX= DESTDIR=    programs, man pages and completions where they belong
# make uninstall PREFIX= DESTDIR=

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

.PHONY: build install uninstall

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
