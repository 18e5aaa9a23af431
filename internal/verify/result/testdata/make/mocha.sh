#!/usr/bin/env bash
# Makes the mocha*.json fixtures again: mocha 11 from its npm package.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
(npm init -y && npm install mocha@11) >/dev/null 2>&1
mkdir m
cat >m/a.js <<'J'
const assert = require('assert');
describe('cart', () => { it('ok', () => {}); it('bad', () => { assert.equal(1, 2); }); it.skip('sk', () => {}); it('pend');
  describe('inner', () => { before(() => { throw new Error('no db'); }); it('never', () => {}); }); });
J
echo "it.only('chosen', () => {}); it('other', () => { throw new Error('x'); });" >m/o.js
run() { # name, file
  npx mocha --reporter json --reporter-option output="$work/r.json" "m/$2" >/dev/null 2>&1 || true
  sed -E -e "s#$work#/srv/tree#g" -e 's/"duration": [0-9]+/"duration": 1/' -e 's/"(start|end)": "[^"]*"/"\1": "2026-01-01T00:00:00.000Z"/' r.json >"$out/$1.json"
  rm r.json
}
run mocha a.js
run mocha-only o.js
