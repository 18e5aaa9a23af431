#!/usr/bin/env bash
# Makes the gradle-*.xml fixture and console-gradle-nobuild.log again: Gradle 4.4.1, JUnit 4 and its repository as Debian packages them.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/test/java/shop"
cat >"$work/build.gradle" <<'G'
apply plugin: 'java'
repositories { maven { url 'file:///usr/share/maven-repo' } }
dependencies { testCompile 'junit:junit:4.13.2' }
G
cat >"$work/src/test/java/shop/PriceTest.java" <<'J'
package shop;
import static org.junit.Assert.*;
import org.junit.*;
public class PriceTest {
  @Test public void adds() { assertEquals(3, 1 + 2); }
  @Test public void wrong() { System.out.println("said"); assertEquals(4, 1 + 2); }
  @Test public void npe() { String s = null; s.length(); }
  @Test @Ignore public void ignored() {}
}
J
run() { (cd "$work" && gradle --offline --no-daemon --console=plain --continue test) >"$work/log" 2>&1 || true; }
run
sed -E -e "s#$work#/srv/tree#g" -e 's/time="[0-9.]*"/time="0.01"/g' -e 's/(timestamp|hostname)="[^"]*"/\1=""/g' -e '/^\tat (java.base|jdk|org.gradle)/d' "$work"/build/test-results/test/TEST-shop.PriceTest.xml >"$out/gradle-PriceTest.xml"
echo 'package shop; public class NoTest { int t() { return Nothing.at(1); } }' >"$work/src/test/java/shop/NoTest.java"
run
sed -E -e "s#$work#/srv/tree#g" -e '/^\tat |^OpenJDK|^openjdk|ClassNotFoundException|system dependency/d' "$work/log" >"$out/console-gradle-nobuild.log"
