package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

func TestDecodeIsBounded(t *testing.T) {
	good := `{"area":"a","name":"n","tried":"t","got":"g"}` + "\n"
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"one", good, ""},
		{"no JSON", "hello\n", "not an observation"},
		{"unknown field", `{"area":"a","name":"n","more":1}`, "not an observation"},
		{"two values", `{"area":"a","name":"n"} {}`, "more than one"},
		{"no name", `{"area":"a"}`, "no name"},
		{"too many", strings.Repeat(good, maxObservations+1), "more than"},
		{"a long line", `{"area":"a","name":"` + strings.Repeat("x", maxLine) + `"}`, "too long"},
	} {
		got, err := Decode(strings.NewReader(c.in))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, %v, want %q", c.name, got, err, c.want)
		}
	}
	got, err := Decode(strings.NewReader(`{"area":"a","name":"n","got":"\u001b[31mred\u202e\n"}`))
	if err != nil || got[0].Got != "?[31mred? " {
		t.Errorf("control characters: %q, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"area":"a","name":"n","tried":"t","got":"g"}`))
	f.Add([]byte("\xff\x00{}\n[]"))
	f.Fuzz(func(t *testing.T, in []byte) {
		all, err := Decode(bytes.NewReader(in))
		if err != nil {
			return
		}
		for _, x := range all {
			for _, s := range []string{x.Area, x.Name, x.Tried, x.Got} {
				if len(s) > maxGot || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%q", s)
				}
			}
		}
		_ = Judge(all, Facts{}) // whatever was said
	})
}

func TestJudge(t *testing.T) {
	facts := Facts{
		Namespaces: map[string]string{"net": "net:[1]"}, Env: []string{"GOFLAGS"}, Mounts: []string{"/opt/sdk"}, Writable: map[string]int64{"/tmp": 64 << 20},
		Ports: []int{3129, 3128},
	}
	own, user := facts, facts
	own.OwnKernel, user.Rootless = true, true
	for _, c := range []struct {
		facts           Facts
		area, name, got string
		want            bool
	}{
		{facts, areaIdentity, "uid map", "0 200000 65536", true},
		{facts, areaIdentity, "uid map", "0 0 65536", false},
		{facts, areaIdentity, "uid map", "0 1 1000 1000 0 1 1001 1001 23", false},
		{user, areaIdentity, "uid map", "0 1 1000 1000 0 1 1001 1001 23", true},
		{user, areaIdentity, "uid map", "0 0 1000", false},
		{own, areaIdentity, "uid map", "0 0 4294967295", true},
		{facts, areaIdentity, "capabilities, bounding", "0000000000000400", false},
		{facts, areaIdentity, "capabilities, bounding", "", false},
		{facts, areaHost, "/", "usr opt", true},
		{facts, areaHost, "/", "usr root", false},
		{facts, areaHost, "see /root", "ok", false},
		{facts, areaHost, "write /usr", "ok", false},
		{facts, areaMounts, "/tmp", "writable, 64 MiB, 16384 files", true},
		{facts, areaMounts, "/tmp", "writable, 65 MiB, 16384 files", false},
		{facts, areaMounts, "/tmp", "writable, 64 MiB, 0 files", false},
		{own, areaMounts, "/tmp", "writable, 64 MiB, 0 files", true},
		{facts, areaMounts, "/data", "writable, 1 MiB, 16 files", false},
		{facts, areaMounts, "/data", "EROFS", true},
		{facts, areaProc, "read keys", "64 bytes", false},
		{own, areaProc, "read cmdline", "40 bytes", true},
		{facts, areaNamespaces, "net", "net:[1]", false},
		{facts, areaNamespaces, "net", "net:[2]", true},
		{facts, areaNamespaces, "pid", "pid:[2]", false}, // the host's is not known
		{facts, areaCalls, "bpf", "EINVAL", false},
		{facts, areaNetwork, "listeners", "3128 3129", true},
		{facts, areaNetwork, "listeners", "3128", false},
		{facts, areaNetwork, "tcp 192.0.2.1:80", "not tried: there is a way out", false},
		{facts, areaMirror, "3128: PUT /probe", "HTTP/1.1 405 Method Not Allowed", true},
		{facts, areaMirror, "3128: PUT /probe", "HTTP/1.1 200 OK", false},
		{facts, areaMirror, "3128: GET /", "ECONNREFUSED", false},
		{facts, areaDevices, "list", "null kvm", false},
		{facts, areaEnvironment, "names from A", "GOFLAGS PATH", true},
		{facts, areaEnvironment, "names from A", "GOFLAGS AWS_SECRET_ACCESS_KEY", false},
		{facts, areaLimits, "open files", "unlimited", false},
		{facts, "elsewhere", "x", "ok", false},
	} {
		got := Judge([]Observation{{c.area, c.name, "", c.got}, {areaEnd, "end", "", "ok"}}, c.facts)
		if len(got) != 2 || got[0].Expected != c.want {
			t.Errorf("%s, %s: %q is expected: %v, want %v (%s)", c.area, c.name, c.got, got[0].Expected, c.want, got[0].Want)
		}
	}
	twice := []Observation{{areaCalls, "bpf", "", "EPERM"}, {areaCalls, "bpf", "", "EPERM"}}
	if got := Judge(twice, facts); len(got) != 3 || got[1].Expected || got[2].Expected {
		t.Errorf("told twice and without an end: %+v", got)
	}
}

// Outside a sandbox the self-test finds a great deal, and it is told in a form that can be read.
func TestRunOutsideASandbox(t *testing.T) {
	var out bytes.Buffer
	p := &prober{out: json.NewEncoder(&out)}
	p.descriptors()
	p.proc()
	p.environment()
	p.limits()
	p.say(areaTasks, "long", "", strings.Repeat("x", 2*maxGot))
	got, err := Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for _, f := range Judge(got, Facts{}) {
		if !f.Expected {
			bad++
		}
	}
	if bad < 10 {
		t.Errorf("%d unexpected findings outside a sandbox", bad)
	}
	if fmt.Sprint(p.err) != "<nil>" {
		t.Error(p.err)
	}
}
