"""Programs that run other programs, or change what later commands mean.

No such list is complete. It is there so that a pattern that looks harmless (``find *``) does not allow everything; what any
program does with its arguments is still known only to whoever allows it.
"""

from __future__ import annotations

__all__ = ["GIT", "LISTED", "OPTIONS", "RUNNERS", "base_name"]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


RUNNERS = _set(
    # words of the shell's own language, and commands that change what a later one means or run a text
    """ ! . : [ [[ ]] { } alias bg bind break builtin caller case command compgen complete compopt continue coproc declare
    disown do done dot elif else enable esac eval exec export fc fg fi for function getopts hash if in let local
    logout mapfile newgrp nocorrect noglob read readarray readonly repeat return select set setopt shift shopt
    source suspend then time trap type typeset unalias unset until wait while zmodload autoload emulate"""
    # other shells
    """ ash bash busybox csh dash elvish fish ksh mksh nu oil osh pdksh posh powershell pwsh rbash rc sash scsh sh tcsh
    toybox xonsh yash zsh"""
    # programs whose arguments are a program to run
    """ at aa-exec batch capsh catchsegv chpst chroot choom chrt cgexec chronic cpulimit daemonize dbus-launch dbus-run-
    session direnv doas docker dotenv dumb-init entr env fakechroot fakeroot faketime firejail flatpak flock foreman
    gdb gdbserver hyperfine inotifywait ionice ip kubectl ld.so ld-linux ld-linux-x86-64.so ldd linux32 linux64 lldb
    ltrace lxc machinectl ncat nc netcat newuidmap nerdctl nice nodemon nohup nsenter numactl parallel perf pkexec
    podman docker-compose podman-compose pidproxy proot prlimit rlwrap rsh run-parts runc runcon runuser
    s6-setuidgid schroot screen script setarch setpriv setsid setuidgid sg snap socat softlimit ssh ssh-agent
    sshpass start-stop-daemon stdbuf strace su sudo sudoedit systemd-nspawn systemd-run taskset telnet timeout tini
    tmux torify torsocks tsocks unbuffer unshare valgrind vagrant watch wine watchexec xargs xvfb-run bwrap
    bubblewrap zellij expect byobu dtach"""
    # interpreters, and small languages with a way out
    """ awk gawk mawk nawk bc bun clojure csi deno dc elixir emacs erl escript ghci groovy guile irb java jjs jshell julia
    lua luajit m4 maxima node nodejs ocaml octave perl php phpdbg pike pry psql ptpython pypy python qjs r racket
    raku rscript ruby rustc sbcl scala sed smbclient sqlite sqlite3 mysql mariadb swift tclsh tsx ts-node wish
    ipython gnuplot ghc runghc runhaskell"""
    # editors and pagers
    """ ed ex edit less man micro more most nano neovim nvim pager pico rview rvim sensible-editor sensible-pager vi view
    vim vimdiff vimtutor info joe jed kak hx helix mail mailx mutt ftp lftp xdg-open"""
    # what builds, installs and fetches: it runs what a file or a package says
    """ ant apt apt-get aptitude bazel bazelisk brew bundle bundler cargo cmake composer conda corepack cpan crontab ctest
    dnf dpkg easy_install gcc g++ cc c++ clang gem go gradle gradlew grunt gulp hatch helm invoke just lerna make
    gmake mamba meson micromamba msbuild mvn mvnw ninja nix nix-env nix-shell nox npm npx nx opkg pacman pdm pear
    pip pipenv pipx pnpm pnpx poetry pre-commit rake rbenv pyenv nvm asdf mise rpm rustup rye sbt scons snapcraft
    task terraform tofu tox turbo uv uvx waf yarn yum zypper ansible ansible-playbook fab logrotate service
    systemctl init openrc puppet salt pytest py.test jest vitest mocha"""
    # what runs a helper that is named in an argument and not in an option
    """ tar bsdtar gtar star cpio pax dd mount sftp scp rclone tcpdump
    convert magick mogrify identify montage composite arch-chroot"""
)
"""Only whole commands of these can be allowed, none with a wildcard."""

OPTIONS = _set(
    """ ack ag bat batcat csplit ctags curl date delta fd fdfind ffmpeg find fzf gh git glab gpg gpg2 hg iconv install nmap
    openssl patch printf rg rsync shuf sort split ssh-keygen svn tree unzip wget zip 7z 7za 7zr"""
)
"""Options of these can run a program or write a file, so no wildcard stands for their options."""

GIT = _set(
    """ add annotate apply blame branch cat-file check-ignore checkout cherry cherry-pick clean clone commit count-objects
    describe diff diff-tree fetch for-each-ref format-patch fsck grep init log ls-files ls-remote ls-tree merge
    merge-base mv name-rev notes pull push range-diff reflog remote reset restore rev-list rev-parse revert rm
    shortlog show show-branch show-ref sparse-checkout stash status switch symbolic-ref tag verify-commit verify-tag
    whatchanged worktree"""
)
"""The commands of git that run nothing but git, and that an alias cannot stand for."""

LISTED = RUNNERS | OPTIONS


def base_name(program: str) -> str:
    """The name of a program in lower case without its folder, and without its version if that is how it is in a list.

    >>> base_name("/usr/bin/python3.11"), base_name("7z"), base_name("ls2"), base_name("LESS")
    ('python', '7z', 'ls2', 'less')
    """
    name = program.rpartition("/")[2].lower()
    shorter = name
    while shorter and shorter not in LISTED:
        if shorter[-1] not in "0123456789.-":
            return name
        shorter = shorter[:-1]
    return shorter or name
