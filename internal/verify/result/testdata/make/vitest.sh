#!/usr/bin/env bash
# Makes the vitest*.json fixtures again: vitest 4 from its npm package, vitest.json by vitest 1, whose names begin with an empty suite,
# and vitest-0.json by 0.34, which says of a file that does not load that it passed.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
install() { (mkdir -p "$1" && cd "$1" && npm init -y && npm install "$2") >/dev/null 2>&1; }
install . vitest@4
install one vitest@1
install zero vitest@0.34
run() { # directory, fixture
  npx vitest run --reporter=json --outputFile="$work/r.json" "$1/" >/dev/null 2>&1 || true
  # Times differ, and the files come in any order.
  node -e '
    const r = JSON.parse(require("fs").readFileSync(process.argv[1], "utf8").replaceAll(process.argv[2], "/srv/tree"), (k, v) => /^(startTime|endTime|duration)$/.test(k) ? 1 : v);
    r.testResults.sort((a, b) => a.name < b.name ? -1 : 1);
    process.stdout.write(JSON.stringify(r));
  ' "$work/r.json" "$PWD" >"$out/$2.json"
  rm "$work/r.json"
}
mkdir mixed rejects only exits
cat >mixed/a.test.js <<'J'
import { beforeEach, describe, it, expect } from 'vitest';
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
describe('hook', () => { beforeEach(() => new Promise(() => {}), 50); it('waits', () => {}); });
J
echo "import { x } from './missing.js'; import { it } from 'vitest'; it('never', () => x);" >mixed/b.test.js
printf "import { it, beforeAll } from 'vitest';\nbeforeAll(() => { throw new Error('no database'); });\nit('needs it', () => {});\n" >mixed/c.test.js
printf "import { it } from 'vitest';\nit('passes', () => { Promise.reject(new Error('nobody waits')); });\n" >rejects/r.test.js
printf "import { it } from 'vitest';\nit.only('chosen', () => {}); it('other', () => { throw new Error('x'); });\n" >only/o.test.js
printf "import { it } from 'vitest';\nit('leaves', () => { process.exit(0); }); it('after', () => {});\n" >exits/x.test.js
for d in mixed rejects only exits; do run $d vitest-$d; done
mkdir v
cat >v/a.test.js <<'J'
import { describe, it, expect } from 'vitest';
describe('cart', () => { it('ok', () => {}); it('bad', () => { expect(1).toBe(2); }); it.skip('s', () => {}); it('hangs', () => new Promise(() => {}), 50); });
J
echo "const x = ;" >v/b.test.js
cp -r v one && (cd one && run v vitest)
mv v zero && (cd zero && run v vitest-0)
