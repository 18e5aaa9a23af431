#!/usr/bin/env bash
# Makes the pytest*.xml fixtures and unittest.txt again: Python 3.11 and pytest 7 as Debian packages them; PYTHON names another.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
mkdir u empty
cat >test_shop.py <<'P'
import pytest, unittest
def test_ok(): pass
def test_bad():
    print("hello \x1b[31mred\x07")
    assert 3 == 4, "totals"
@pytest.mark.parametrize("n", [1, 2])
def test_p(n): assert n == 1
@pytest.mark.skip(reason="later")
def test_skip(): pass
@pytest.mark.xfail
def test_xf(): assert 0
@pytest.mark.xfail
def test_xp(): pass
@pytest.mark.xfail(strict=True)
def test_xps(): pass
@pytest.fixture
def down():
    yield 1
    raise RuntimeError("teardown broke")
def test_td(down): pass
@pytest.fixture
def up(): raise OSError("no db")
def test_up(up): pass
class TestC:
    def test_m(self): pass
class TestU(unittest.TestCase):
    def test_u(self): self.assertEqual(1, 2)
    def test_sub(self):
        for i in range(2):
            with self.subTest(i=i): self.assertEqual(i, 0)
def test_raise(): {}["k"]
P
echo 'import nothere_zz' | tee test_coll.py >u/test_imp.py
cat >u/test_u.py <<'P'
import unittest
class A(unittest.TestCase):
    def test_ok(self): pass
    def test_bad(self):
        """Doc line."""
        print("printed")
        self.assertEqual(1, 2, "why")
    def test_err(self): raise KeyError("k")
    @unittest.skip("later")
    def test_skip(self): pass
    @unittest.expectedFailure
    def test_xf(self): self.fail()
    @unittest.expectedFailure
    def test_xp(self): pass
    def test_sub(self):
        for i in range(2):
            with self.subTest(i=i): self.assertEqual(i, 0)
P
run() { # name, arguments of pytest
  local name=$1
  shift
  "$python" -m pytest -q -p no:cacheprovider --junitxml="$work/r.xml" "$@" >/dev/null 2>&1 || true
  sed -E -e "s#$work#/srv/tree#g" -e 's/ time="[0-9.]*"/ time="0.001"/g' -e 's/timestamp="[^"]*"/timestamp=""/' -e 's/hostname="[^"]*"/hostname="host"/' r.xml >"$out/$name.xml"
  rm r.xml
}
run pytest --continue-on-collection-errors test_coll.py test_shop.py
run pytest1 --continue-on-collection-errors -o junit_family=xunit1 test_coll.py u/test_imp.py test_shop.py u/test_u.py
run pytest-coll test_coll.py test_shop.py
run pytest-empty empty
"$python" -m unittest discover -v -s u >"$work/log" 2>&1 || true
sed -E -e "s#$work#/srv/tree#g" -e 's/ in [0-9.]+s$/ in 0.001s/' "$work/log" >"$out/unittest.txt"
