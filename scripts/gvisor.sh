#!/usr/bin/env bash
# Builds gVisor's runsc from its Go module, which has a go.mod of its own so that its
# dependencies stay out of everybody else's. Says nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools/bin
mkdir -p "$tools"

version=$(cd tools/gvisor && go list -m -f '{{.Version}}' gvisor.dev/gvisor)
if [ "$(cat "$tools/.runsc-version" 2>/dev/null)" != "$version" ] || [ ! -x "$tools/runsc" ]; then
  echo "gvisor: building runsc $version (about two minutes on two cores, once)"
  # With cgo every sandbox dies at its start: the kernel must not load a C library.
  (cd tools/gvisor && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" \
    -o "$tools/runsc.new" gvisor.dev/gvisor/runsc)
  mv "$tools/runsc.new" "$tools/runsc"
  echo "$version" >"$tools/.runsc-version"
fi
