#!/usr/bin/env bash
# Builds the Gitea that the tests of forges talk to, from its Go module, into .tools. It needs gcc
# and about seven minutes of processor time, once. Its pages have no style sheets, which are not in
# the module; everything else is real.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
version=v1.26.0
sum='h1:fJP9dqLbzKrKWUVnCVTfVersZdVDuyJQLEDzCAOmKKA='

[ "$(cat "$tools/gitea/.version" 2>/dev/null)" = "$version" ] && [ -x "$tools/bin/gitea" ] && exit 0
echo "gitea: building $version (some minutes, once)"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
info=$(cd "$work" && go mod download -json "code.gitea.io/gitea@$version")
field() { sed -n "s/.*\"$1\": \"\(.*\)\".*/\1/p" <<<"$info"; }
[ "$(field Sum)" = "$sum" ] || { echo "gitea: the module is not the one that is known" >&2; exit 1; }
cp -r "$(field Dir)" "$work/src"
chmod -R u+w "$work/src"
mkdir -p "$tools/bin"
(cd "$work/src" && CGO_ENABLED=1 GOFLAGS=-mod=mod go build -trimpath -ldflags '-s -w' -tags 'sqlite sqlite_unlock_notify' -o "$tools/bin/gitea" .)
rm -rf "$tools/gitea"
mkdir -p "$tools/gitea"
cp -r "$work/src/templates" "$work/src/options" "$work/src/public" "$tools/gitea/"
echo "$version" >"$tools/gitea/.version"
