#!/usr/bin/env bash
# Makes the vitest-*.json fixtures again: vitest 2 from its npm package.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
(npm init -y && npm install vitest@2) >/dev/null 2>&1
run() { # directory
  npx vitest run --reporter=json --outputFile="$work/$1.json" "$1/" >/dev/null 2>&1 || true
  sed -E -e "s#$work#/srv/tree#g" -e 's/"(startTime|endTime|duration)":[0-9.e-]+/"\1":1/g' "$1.json" >"$out/vitest-$1.json"
}
mkdir mixed rejects only exits
cat >mixed/a.test.js <<'J'
import { describe, it, expect } from 'vitest';
describe('cart', () => {
  it('adds', () => expect(1 + 2).toBe(3));
  it('wrong', () => expect(1 + 2).toBe(4));
  it.skip('left out', () => {});
  it.todo('later');
  it('same', () => {}); it('same', () => { throw new Error('boom'); });
  it.each([[1, 1], [1, 2]])('row %i %i', (a, b) => expect(a).toBe(b));
  it('hangs', () => new Promise(() => {}), 50);
  let n = 0; it('second time', { retry: 1 }, () => expect(++n).toBe(2));
  it.fails('known bad', () => expect(1).toBe(2));
});
J
echo "import { x } from './missing.js'; import { it } from 'vitest'; it('never', () => x);" >mixed/b.test.js
printf "import { it, beforeAll } from 'vitest';\nbeforeAll(() => { throw new Error('no database'); });\nit('needs it', () => {});\n" >mixed/c.test.js
printf "import { it } from 'vitest';\nit('passes', () => { Promise.reject(new Error('nobody waits')); });\n" >rejects/r.test.js
printf "import { it } from 'vitest';\nit.only('chosen', () => {}); it('other', () => { throw new Error('x'); });\n" >only/o.test.js
printf "import { it } from 'vitest';\nit('leaves', () => { process.exit(0); }); it('after', () => {});\n" >exits/x.test.js
for d in mixed rejects only exits; do run $d; done
