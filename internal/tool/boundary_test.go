package tool_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/tool"
)

func input(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// INT-09, MOD-07: the set of tools is fixed, and none of them reaches another repository,
// another task, the network, a helper agent or the task's own limits.
func TestTheToolsAreTheseAlone_INT09_MOD07(t *testing.T) {
	r := tool.NewRegistry()
	if got := r.Names(); !slices.Equal(got, []string{"decline", "edit", "read", "reproduce", "run", "search", "submit", "symbols", "write"}) {
		t.Errorf("tools %v: a new one needs a look at what it can reach", got)
	}
	for _, s := range r.Specs() {
		var schema struct {
			Properties           map[string]any `json:"properties"`
			AdditionalProperties bool           `json:"additionalProperties"`
		}
		if err := json.Unmarshal(s.Schema, &schema); err != nil || schema.AdditionalProperties {
			t.Errorf("%s: %v, additional properties %v", s.Name, err, schema.AdditionalProperties)
		}
		for p := range schema.Properties {
			for _, word := range []string{"repo", "task", "url", "host", "branch", "limit_usd", "budget", "profile", "agent", "env", "user", "privileged"} {
				if strings.EqualFold(p, word) {
					t.Errorf("%s takes %q", s.Name, p)
				}
			}
		}
	}
	b := newBench(t)
	for _, name := range []string{"spawn", "agent", "task", "set_limits", "fetch", "RUN", "run ", "../run", ""} {
		if got := b.call(t, name, `{}`); !got.IsError || !strings.Contains(got.Text, "There is no tool") {
			t.Errorf("%q: %+v", name, got)
		}
	}
	for _, in := range []string{`{"command":"true","profile":"none"}`, `{"command":"true","privileged":true}`, `{"command":"true","env":{"A":"b"}}`, `{"command":"true","user":"root"}`} {
		if got := b.call(t, "run", in); !got.IsError || got.ExitCode != nil || !strings.Contains(got.Text, "has no parameter") {
			t.Errorf("%s: %+v", in, got)
		}
	}
}

// MOD-08: what the record shows is what runs, byte for byte, and there is one of it.
func TestTheCommandThatRunsIsTheOneOnRecord_MOD08(t *testing.T) {
	b := newBench(t)
	for _, command := range []string{
		"printf '%s' 'a\u202eb\u200bc\U000e0041'", "printf '%s'" + strings.Repeat(" ", 4000) + "hidden", "printf '%s' $'tab\\there' # \u2066",
	} {
		p := filepath.Join(b.dir, "got")
		if r := b.call(t, "run", input(t, map[string]string{"command": "cat > got <<'END_OF_IT'\n" + command + "\nEND_OF_IT"})); r.IsError {
			t.Fatalf("%+v", r)
		}
		got, err := os.ReadFile(p)
		if err != nil || string(got) != command+"\n" {
			t.Errorf("%q ran as %q: %v", command, got, err)
		}
		if r := b.call(t, "read", `{"path":"got"}`); strings.ContainsAny(r.Text, "\u202e\u200b\U000e0041\u2066") {
			t.Errorf("shown raw: %q", r.Text)
		}
	}
	for _, in := range []string{
		`{"command":"echo shown","command":"touch ran"}`, `{"command":"echo shown","\u0063ommand":"touch ran"}`, `{"Command":"touch ran"}`, `{"command":"true","COMMAND":"touch ran"}`,
	} {
		if r := b.call(t, "run", in); !r.IsError || r.ExitCode != nil {
			t.Errorf("%s: %+v", in, r)
		}
		if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
			t.Fatalf("%s ran", in)
		}
	}
}

// GW-04: the environment of a command is the sandbox's own business: what it sets there is
// gone with it, and no parameter of a tool sets any.
func TestACommandsEnvironmentEndsWithIt_GW04(t *testing.T) {
	b := newBench(t)
	mark := filepath.Join(b.dir, "evil.sh")
	b.put(t, "evil.sh", "touch "+filepath.Join(b.dir, "fired")+"\n")
	for _, set := range []string{"BASH_ENV=" + mark, "ENV=" + mark, "LD_PRELOAD=" + mark, "GIT_EXTERNAL_DIFF=" + mark, "NODE_OPTIONS=--require=" + mark, "GOFLAGS=-toolexec=" + mark, "HTTP_PROXY=http://127.0.0.1:1", "PATH=" + b.dir, "HOME=" + b.dir} {
		name, _, _ := strings.Cut(set, "=")
		before := os.Getenv(name)
		b.call(t, "run", input(t, map[string]string{"command": "export " + set + "; true"}))
		r := b.call(t, "run", input(t, map[string]string{"command": `printf 'is:%s:' "$` + name + `"`}))
		if strings.Contains(r.Text, strings.TrimPrefix(set, name+"=")) {
			t.Errorf("%s lives on: %s", set, r.Text)
		}
		if os.Getenv(name) != before {
			t.Errorf("%s reached this process", name)
		}
		for _, c := range []struct{ tool, in string }{{"search", `{"pattern":"touch"}`}, {"read", `{"path":"evil.sh"}`}} {
			if r := b.call(t, c.tool, c.in); r.IsError {
				t.Errorf("%s after %s: %s", c.tool, set, r.Text)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "fired")); err == nil {
		t.Error("a variable of one command ran code in another")
	}
}

// GW-05: no spelling of a command is special to us; one shell inside reads it.
func TestNoCommandIsSpecial_GW05(t *testing.T) {
	b := newBench(t)
	chain := strings.Repeat("true; ", 60) + "echo at-the-end"
	for _, c := range []struct{ command, says string }{
		{`echo "a'b" 'c"d' $(echo in) ` + "`echo tick`", `a'b c"d in tick`},
		{"echo one\necho two", "one\ntwo"},
		{"echo a; echo b && echo c || echo d", "a\nb\nc"},
		{chain, "at-the-end"},
		{"type cd; builtin echo built", "built"},
		{"cp \"$(type -P echo)\" ./renamed && ./renamed copied", "copied"},
		{"exec -a other bash -c 'echo $0 ran'", "other ran"},
		{"$(ls /lib64/ld-linux*.so.2 /lib/ld-linux*.so.* 2>/dev/null | head -1) \"$(type -P echo)\" by-loader", "by-loader"},
		{"echo $((1+1)) ${x:-dflt} {a,b}", "2 dflt a b"},
		{"cat <<'E'\n$(not run)\nE", "$(not run)"},
	} {
		r := b.call(t, "run", input(t, map[string]string{"command": c.command}))
		if r.ExitCode == nil || *r.ExitCode != 0 || !strings.Contains(r.Text, c.says) {
			t.Errorf("%q: %s", c.command, r.Text)
		}
	}
}

// MOD-01, GW-05: inputs of every odd shape are answered, none is run, none is a failure of ours.
func TestHostileInputsAreAnswered_MOD01(t *testing.T) {
	b := newBench(t)
	deep := strings.Repeat(`{"a":`, 3000) + "1" + strings.Repeat("}", 3000)
	for _, name := range b.Names() {
		for _, in := range []string{
			``, `null`, `[]`, `"x"`, `1e999`, `{`, `{"command":{}}`, `{"path":["a"]}`, deep, strings.Repeat("[", 20_000), `{"command":` + deep + `}`,
			`{"command":"` + strings.Repeat("x", 3<<20) + `"}`, `{"path":"` + strings.Repeat("a/", 5000) + `"}`, `{"path":"\u0000"}`, `{"path":"../../../etc/passwd"}`,
			`{"path":"/proc/self/environ\u0000"}`, `{"command":"true","timeout_s":99999999999999999999}`, `{"command":"true","timeout_s":-1}`, `{"wait":-5}`, `{"kill":1.5}`,
			`{"tests":["` + strings.Repeat(`x","`, 5000) + `"]}`, `{"pattern":"(((((","max":-1}`, "{\"pattern\":\"\xff\"}",
		} {
			r := b.call(t, name, in)
			if r.Text == "" || len(r.Text) > 70_000 || strings.ContainsAny(r.Text, "\x00\x1b") {
				t.Errorf("%s %.60s: %d bytes: %.80q", name, in, len(r.Text), r.Text)
			}
			if r.ExitCode != nil {
				t.Errorf("%s %.60s ran something: %.200s", name, in, r.Text)
			}
		}
	}
}
