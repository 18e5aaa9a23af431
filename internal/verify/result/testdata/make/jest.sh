#!/usr/bin/env bash
# Makes jest.json again: jest 30 from its npm package.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
(npm init -y && npm install jest@30) >/dev/null 2>&1
mkdir j
cat >j/a.test.js <<'J'
describe('cart', () => { test('ok', () => {}); test('bad', () => { expect(1).toBe(2); }); test.skip('sk', () => {}); test.todo('td'); });
test('top', () => {}); test('same', () => {}); test('same', () => {});
J
echo "const x = ;" >j/b.test.js
echo "test.only('one', () => {}); test('two', () => { throw new Error('x'); });" >j/c.test.js
echo "beforeAll(() => { throw new Error('no db') }); test('z', () => {});" >j/e.test.js
npx jest --ci -i --json --outputFile="$work/r.json" j >/dev/null 2>&1 || true
# Times differ, the files come in any order, and what jest advises about a syntax error is long.
node -e '
  const r = JSON.parse(require("fs").readFileSync("r.json", "utf8").replaceAll(process.cwd(), "/srv/tree"), (k, v) => /^(startTime|endTime|startAt)$/.test(k) ? 1 : k === "duration" && v !== null ? 1 : v);
  r.testResults.sort((a, b) => a.name < b.name ? -1 : 1);
  for (const t of r.testResults) t.message = t.message.replace(/Jest failed to parse[^]*Details:/, "Details:");
  process.stdout.write(JSON.stringify(r));
' >"$out/jest.json"
