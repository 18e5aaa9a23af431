#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files '*_test.go' | xargs grep -lE '^func Fuzz' | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -hoE '^func Fuzz\w+' "$dir"/*_test.go | sed 's/func //' | sort -u | while read -r target; do
    echo "== $dir $target"
    go test "./$dir" -run '^$' -fuzz "^$target\$" -fuzztime "$1"
  done
done
