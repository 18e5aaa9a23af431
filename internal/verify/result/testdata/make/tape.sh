#!/usr/bin/env bash
# Makes the tape-*.tap and nodetap-a.tap fixtures again: tape 5 and node-tap 16 from their npm packages.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
(npm init -y && npm install tape@5 tap@16) >/dev/null 2>&1
mkdir t
cat >t/a.js <<'J'
const test = require('tape');
test('one', (t) => { t.equal(1, 1, 'same'); t.equal(1, 2, 'differs'); t.end(); });
test('two', (t) => { t.ok(true); t.end(); });
J
cat >t/b.js <<'J'
const test = require('tape');
test('one', (t) => { t.ok(true); setTimeout(() => { throw new Error('crash'); }, 1); });
test('two', (t) => { t.ok(true); t.end(); });
J
cat >t/c.js <<'J'
const test = require('tape');
test('wraps both', (t) => {
    t.deepEqual({ a: { b: 'c', d: true } }, { a: [{ b: 'c' }, 'd'] }, 'object then primitive');
    t.equal(1, 1, 'one');
    t.end();
});
J
mv t/c.js t/deep.js
cat >t/ntap.js <<'J'
const t = require('tap');
  t.test('subset', (t) => {
    t.equal(false, true, 'a ⊂ b = true');
    t.same({ a: 1 }, { a: 2 }, 'same');
    t.throws(() => { throw new TypeError('bad'); }, new Error('good'), 'throws');
    t.end();
  });
J
run() { # file, name
  node "t/$1.js" >"$work/log" 2>/dev/null || true
  sed -E -e "s#$work#/srv/tree#g" -e 's/time=[0-9.]+ms/time=1.5ms/' "$work/log" >"$out/$2.tap"
}
run a tape-a
run b tape-b
run deep tape-c
run ntap nodetap-a
