#!/usr/bin/env bash
# Installs what Daybreak needs on this machine: an OCI runtime built from its Go module, and
# Debian packages. Says nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools/bin
mkdir -p "$tools"

declare -A package=([rg]=ripgrep [ctags]=universal-ctags [git]=git [node]=nodejs [gcc]=gcc [pkg-config]=pkg-config [newuidmap]=uidmap)
missing=()
for command in rg ctags git node gcc pkg-config newuidmap; do
  command -v "$command" >/dev/null || missing+=("${package[$command]}")
done
pkg-config --exists libseccomp 2>/dev/null || missing+=(libseccomp-dev)
/usr/bin/python3 -c 'import pytest' 2>/dev/null || missing+=(python3-pytest)
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=(postgresql)
if ((${#missing[@]})); then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    # The tests start servers of their own: the package's must not run.
    quiet_postgres() {
      [[ " ${missing[*]} " != *" postgresql "* ]] && return
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql-common &&
        sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    }
    { apt-get update -qq && quiet_postgres && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$tools/../apt.log" 2>&1 ||
      { tail -5 "$tools/../apt.log"; echo "setup: could not install ${missing[*]}; install them and run make setup again" >&2; exit 1; }
  else
    echo "setup: please install ${missing[*]}, then run make setup again" >&2
    exit 1
  fi
fi

# The runtime's version is pinned in tools/go.mod; the stamp holds what was built.
version=$(cd tools && go list -m -f '{{.Version}}' github.com/opencontainers/runc)
if [ "$(cat "$tools/.runc-version" 2>/dev/null)" != "$version" ] || [ ! -x "$tools/runc" ]; then
  echo "setup: building runc $version (a minute or two, once)"
  (cd tools && go build -trimpath -tags seccomp -ldflags '-s -w' -o "$tools/runc" github.com/opencontainers/runc)
  echo "$version" >"$tools/.runc-version"
fi
