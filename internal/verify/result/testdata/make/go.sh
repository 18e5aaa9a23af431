#!/usr/bin/env bash
# Makes the go-*.json fixtures again: the go command is all it needs.
set -euo pipefail
out=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS= GOWORK=off GOTOOLCHAIN=local
goroot=$(go env GOROOT)
printf 'module example.com/shop\n\ngo 1.24\n' >go.mod
mkdir ok panics parallel hang mainlies exitfails osexit nobuild setup vetbad nofiles noisy
cat >ok/ok_test.go <<'G'
package ok
import ("fmt"; "os"; "testing")
func TestAdd(t *testing.T) { t.Log("adding") }
func TestSub(t *testing.T) {
	t.Run("two words", func(t *testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Errorf("got %d, want %d", 3, 4) })
	t.Run("bad", func(t *testing.T) { os.Stdout.WriteString("direct\n"); t.Error("second") })
}
func TestSkip(t *testing.T) { t.Skip("no network") }
func FuzzParse(f *testing.F) { f.Add("a"); f.Fuzz(func(t *testing.T, s string) {}) }
func Example_x() {
	fmt.Println("b")
	// Output: a
}
G
cat >panics/p_test.go <<'G'
package panics
import "testing"
func TestBefore(t *testing.T) {}
func TestBoom(t *testing.T) { var m map[string]int; m["a"] = 1 }
func TestAfter(t *testing.T) {}
G
cat >parallel/p_test.go <<'G'
package parallel
import "testing"
func TestWaits(t *testing.T) { t.Parallel() }
func TestGo(t *testing.T) { c := make(chan int); go func() { panic("in goroutine") }(); <-c }
G
cat >hang/h_test.go <<'G'
package hang
import "testing"
func TestBefore(t *testing.T) {}
func TestHang(t *testing.T) { t.Run("inner", func(t *testing.T) { select {} }) }
func TestAfter(t *testing.T) {}
G
# Since Go 1.15 the code counts although TestMain returns: to lose it takes an exit.
cat >mainlies/m_test.go <<'G'
package mainlies
import ("os"; "testing")
func TestMain(m *testing.M) { m.Run(); os.Exit(0) }
func TestBad(t *testing.T) { t.Error("wrong total") }
func TestGood(t *testing.T) {}
G
cat >exitfails/m_test.go <<'G'
package exitfails
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { m.Run(); fmt.Println("leak: 3 goroutines"); os.Exit(1) }
func TestGood(t *testing.T) {}
G
cat >osexit/m_test.go <<'G'
package osexit
import ("os"; "testing")
func TestGood(t *testing.T) {}
func TestQuits(t *testing.T) { os.Exit(0) }
func TestAfter(t *testing.T) { t.Error("not seen") }
G
printf 'package nobuild\nimport "testing"\nfunc TestX(t *testing.T) { _ = undefinedThing }\n' >nobuild/n_test.go
printf 'package setup\nimport ("testing"; "example.com/shop/missing")\nfunc TestX(t *testing.T) { missing.Do() }\n' >setup/n_test.go
printf 'package vetbad\nimport ("fmt"; "testing")\nfunc TestX(t *testing.T) { fmt.Printf("%%d", "s") }\n' >vetbad/n_test.go
printf 'package nofiles\n' >nofiles/n.go
cat >noisy/n_test.go <<'G'
package noisy
import ("fmt"; "testing")
func TestNoNewline(t *testing.T) { fmt.Print("no newline at end") }
func TestFails(t *testing.T) { fmt.Print("partial"); t.Error("after print") }
G
run() { # name, arguments of go test
  local name=$1
  shift
  go test -json -count=1 "$@" >"$work/log" 2>/dev/null || true
  # Times and addresses differ from run to run.
  sed -E -e "s#$work#/srv/tree#g" -e "s#$goroot#/goroot#g" -e 's/"Time":"[^"]*"/"Time":"2026-01-01T00:00:00Z"/' -e 's/"Elapsed":[0-9.]+/"Elapsed":0/' \
    -e 's/\t[0-9.]+s(\\n| \[)/\t0.002s\1/' -e 's/\\t[0-9.]+s/\\t0.002s/' -e 's/0x[0-9a-f]{6,}/0x1000/g' -e 's/goroutine [0-9]+/goroutine 20/g' "$work/log" >"$out/go-$name.json"
}
for p in ok panics parallel mainlies exitfails osexit nobuild setup nofiles noisy; do run $p -vet=off ./$p; done
run hang -vet=off -timeout 2s ./hang
run norun -vet=off -run NoSuchTest ./ok
run vetbad ./vetbad
