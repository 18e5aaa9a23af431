#!/usr/bin/env bash
# Makes the node-* fixtures again: the test runner of Node.js 20.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >a.test.js <<'J'
const { test, describe, it } = require('node:test'); const assert = require('node:assert');
test('top ok', () => {});
test('top bad', () => { assert.strictEqual(1, 2); });
test('parent', async (t) => { await t.test('child # hash', () => {}); await t.test('child bad', () => { throw new Error('boom\nsecond line'); }); });
test('skipped', { skip: 'why' }, () => {});
test('todo fails', { todo: 'later' }, () => { throw new Error('todo'); });
describe('suite', () => { it('one', () => {}); it('one', () => {}); });
J
cat >b.test.js <<'J'
const { test } = require('node:test');
test('never ends', () => new Promise(() => {}));
test('after', () => {});
J
cat >c.test.js <<'J'
const { test } = require('node:test');
test('leaves', () => { process.exit(0); });
test('fails', () => { throw new Error('not seen'); });
J
echo 'const x = ;' >d.test.js
# What never started took 0, which is told from the rest.
run() { # file, reporter, ending
  node --test --test-reporter="$2" "$1.test.js" >"$work/log" 2>/dev/null || true
  sed -E -e "s#$work#/srv/tree#g" -e 's/(duration_ms:? )[0-9]+\.[0-9]+/\11.5/' -e '/time="0.000000"/!s/ time="[0-9.]*"/ time="0.001"/' -e 's/hostname="[^"]*"/hostname="host"/' "$work/log" >"$out/node-$1.$3"
}
for f in a b c d; do run $f tap tap; done
for f in a b c; do run $f junit xml; done
