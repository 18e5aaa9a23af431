#!/usr/bin/env bash
# Makes the maven-*.xml fixtures again: Maven, Surefire, JUnit 4 and 5 as Debian packages them
# (maven-debian-helper, libsurefire-java, junit4, junit5), without a network.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

project() { # name, dependencies
  mkdir -p "$work/$1/src/main/java/shop" "$work/$1/src/test/java/shop"
  cat >"$work/$1/pom.xml" <<X
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>shop</groupId><artifactId>shop</artifactId><version>1</version>
<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target>
<project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>
<dependencies>$2</dependencies>
</project>
X
  echo 'package shop; public class Price { public static int add(int a, int b) { return a + b; } }' >"$work/$1/src/main/java/shop/Price.java"
}
run() { # name, arguments of mvn
  local name=$1
  shift
  (cd "$work/$name" && mvn -o -B -ntp -Dmaven.repo.local=/usr/share/maven-repo "$@" test) >"$work/$name.log" 2>&1 || true
  for f in "$work/$name"/target/surefire-reports/TEST-*.xml; do
    # The JVM's properties are this machine's and say nothing of tests.
    sed -E -e '/<properties>/,/<\/properties>/d' -e "s#$work/$name#/srv/tree#g" -e 's/time="[0-9.]*"/time="0.01"/g' "$f" >"$out/maven-$name-$(basename "$f" .xml | sed 's/.*\.//').xml"
  done
}
junit4='<dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency>'

project four "$junit4"
cat >"$work/four/src/test/java/shop/PriceTest.java" <<'J'
package shop;
import static org.junit.Assert.*;
import org.junit.*;
public class PriceTest {
  @Test public void adds() { assertEquals(3, Price.add(1, 2)); }
  @Test public void wrong() { System.out.println("said"); assertEquals(4, Price.add(1, 2)); }
  @Test public void npe() { String s = null; s.length(); }
  @Test @Ignore("later") public void ignored() {}
  @Test public void assumed() { Assume.assumeTrue("no network", false); }
  @Test(timeout = 100) public void hangs() throws Exception { Thread.sleep(60000); }
}
J
cat >"$work/four/src/test/java/shop/SetupTest.java" <<'J'
package shop;
import org.junit.*;
public class SetupTest {
  @BeforeClass public static void fails() { throw new IllegalStateException("no database"); }
  @Test public void never() {}
}
J
cat >"$work/four/src/test/java/shop/RowsTest.java" <<'J'
package shop;
import static org.junit.Assert.*;
import org.junit.*;
import org.junit.runner.RunWith;
import org.junit.runners.Parameterized;
@RunWith(Parameterized.class)
public class RowsTest {
  @Parameterized.Parameters(name = "{0}") public static Object[] rows() { return new Object[]{"1", "two\u0001"}; }
  @Parameterized.Parameter public String row;
  @Test public void isOne() { assertEquals("1", row); }
}
J
run four

project flaky "$junit4"
cat >"$work/flaky/src/test/java/shop/FlakyTest.java" <<'J'
package shop;
import static org.junit.Assert.*;
import org.junit.Test;
public class FlakyTest {
  static int n;
  @Test public void secondTime() { assertEquals(2, ++n); }
  @Test public void never() { fail("always"); }
}
J
run flaky -Dsurefire.rerunFailingTestsCount=1

project exits "$junit4"
cat >"$work/exits/src/test/java/shop/AFirstTest.java" <<'J'
package shop;
import org.junit.Test;
public class AFirstTest { @Test public void ok() {} }
J
cat >"$work/exits/src/test/java/shop/LeavesTest.java" <<'J'
package shop;
import org.junit.Test;
public class LeavesTest { @Test public void leaves() { System.exit(0); } }
J
run exits
sed -E -e "s#$work/exits#/srv/tree#g" -e '/^\[INFO\]|^\[ERROR\] +at |^\[ERROR\] Command was|^$/d' "$work/exits.log" >"$out/console-maven-exits.log"

project nobuild "$junit4"
echo 'package shop; import org.junit.Test; public class NoTest { @Test public void t() { Price.minus(1, 2); } }' >"$work/nobuild/src/test/java/shop/NoTest.java"
run nobuild 2>/dev/null || true
sed -E -e "s#$work/nobuild#/srv/tree#g" -e '/^$/d' "$work/nobuild.log" >"$out/console-maven-nobuild.log"
rm -f "$out/maven-nobuild-TEST-*.xml"
