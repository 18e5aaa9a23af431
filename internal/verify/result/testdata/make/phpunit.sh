#!/usr/bin/env bash
# Makes the phpunit-*.xml fixtures again: PHPUnit 9.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tests"
cat >"$work/tests/PriceTest.php" <<'P'
<?php
use PHPUnit\Framework\TestCase;
final class PriceTest extends TestCase {
  public function testAdds(): void { $this->assertSame(3, 1 + 2); }
  public function testWrong(): void { $this->assertSame(4, 1 + 2, "the sum"); }
  public function testRaises(): void { throw new RuntimeException("boom"); }
  public function testSkipped(): void { $this->markTestSkipped("no network"); }
  public function testIncomplete(): void { $this->markTestIncomplete("later"); }
  public function testRisky(): void {}
  public function testWarns(): void { $a = []; $this->assertNull($a["x"]); }
  /** @dataProvider rows */
  public function testRows(int $a, int $b): void { $this->assertSame($a, $b); }
  public function rows(): array { return [[1, 1], [1, 2], "a name with #1" => [3, 3]]; }
  /** @depends testWrong */
  public function testDepends(): void { $this->assertTrue(true); }
}
P
cat >"$work/tests/SetUpTest.php" <<'P'
<?php
final class SetUpTest extends PHPUnit\Framework\TestCase {
  protected function setUp(): void { throw new LogicException("no database"); }
  public function testNever(): void { $this->assertTrue(true); }
}
P
(cd "$work" && phpunit --log-junit r.xml tests) >/dev/null 2>&1 || true
sed -E -e "s#$work#/srv/tree#g" -e 's/time="[0-9.]*"/time="0.01"/g' "$work/r.xml" >"$out/phpunit.xml"
