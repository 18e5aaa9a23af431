#!/usr/bin/env bash
# Installs what the browser's tests need: Debian's chromium, and the accessibility checker axe-core
# from the npm registry, held to the digest below. Says nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
version=4.14.1
sum=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5

missing=()
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
axe=$tools/axe/axe-$version.min.js
[ -s "$axe" ] || command -v npm >/dev/null || missing+=(npm)
if ((${#missing[@]})); then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "browser: installing ${missing[*]}"
    mkdir -p "$tools"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$tools/apt.log" 2>&1 ||
      { tail -5 "$tools/apt.log"; echo "browser: could not install ${missing[*]}" >&2; [ "${CI:-}" != true ] || exit 1; exit 0; }
  else
    echo "browser: ${missing[*]} is not installed; what needs it is skipped" >&2
    [ "${CI:-}" != true ] || exit 1
    exit 0
  fi
fi

[ -s "$axe" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent "axe-core@$version" >/dev/null) || { echo "browser: axe-core $version could not be fetched" >&2; [ "${CI:-}" != true ] || exit 1; exit 0; }
echo "$sum  $work/axe-core-$version.tgz" | sha512sum --check --quiet || { echo "browser: axe-core is not the one that is known" >&2; exit 1; }
tar -xzf "$work/axe-core-$version.tgz" -C "$work" package/axe.min.js
mkdir -p "$tools/axe"
mv "$work/package/axe.min.js" "$axe"
