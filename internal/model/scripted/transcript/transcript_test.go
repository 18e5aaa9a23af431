package transcript_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const head = "transcript: 1\nname: n\ndescription: d\n---\n"

func same(s string) string { return s }

func TestParse(t *testing.T) {
	tr, err := transcript.Parse(strings.NewReader("# a comment\n---\n" + head + `# first
text: |
  func main() {
  	if x {
  		return
  	}
  }
  ---
  after the dashes
calls:
  - name: edit
    input:
      z: 1
      a: {q: true, b: "2", n: null}
      l: [1.5, {y: 1, x: "${v}"}]
      code: |
        package x

        	foo("<&>")
---
expect:
  - {tool: edit, error: false, matches: 'o+k'}
capture: [{name: v, matches: 'id (\w+)'}]
text: hi
fail: [{status: 429, retry_after: 0.5}, {cut: 3}, {hang: true}, {error_event: overloaded_error}]
delay_ms: 20
repeat: 3
`))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Name != "n" || tr.Description != "d" || len(tr.Turns) != 4 {
		t.Fatalf("%+v", tr)
	}
	if want := "func main() {\n\tif x {\n\t\treturn\n\t}\n}\n---\nafter the dashes"; tr.Turns[0].Text != want {
		t.Errorf("text %q", tr.Turns[0].Text)
	}
	args, err := tr.Turns[0].Calls[0].Arguments(func(s string) string { return strings.ReplaceAll(s, "${v}", "\"7\"") })
	want := `{"z":1,"a":{"q":true,"b":"2","n":null},"l":[1.5,{"y":1,"x":"\"7\""}],"code":"package x\n\n\tfoo(\"<&>\")\n"}`
	if err != nil || args != want {
		t.Errorf("arguments %s\nwant %s\n%v", args, want, err)
	}
	first, again := tr.Turns[1], tr.Turns[3]
	if len(first.Fail) != 4 || again.Fail != nil || again.Delay != 20*time.Millisecond || first.Expect[0].Pattern == nil || first.Capture[0].Pattern == nil {
		t.Errorf("%+v\n%+v", first, again)
	}
}

func TestErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "line 1: the transcript is empty",
		"name: x\n":                     "line 1: the first document must say",
		"transcript: 2\n---\ntext: a\n": "line 1: the first document",
		"transcript: 1\nturns: 3\n":     `line 2: unknown field "turns"`,
		"transcript: 1\n":               "has no turns",
		head + "\ntext: a\nbogus: 1\n":  `line 7: unknown field "bogus"`,
		head + "text: a\n---\n\ncalls:\n  - {}\n":                  "line 8: a call needs a name",
		head + "text: |\n\tno\n":                                   "line 6: found a tab",
		head + "text: [\n":                                         "line 5: ",
		head + "delay_ms: 5\n":                                     "says nothing",
		head + "text: a\nstop: halt\n":                             "stop must be",
		head + "text: a\nrepeat: -1\n":                             "repeat must be",
		head + "text: a\ndelay_ms: -1\n":                           "delay_ms must be",
		head + "text: a\nexpect: [{}]\n":                           "an expectation needs",
		head + "text: a\nexpect: [{matches: '('}]\n":               "matches: error parsing regexp",
		head + "text: a\ncapture: [{name: a, matches: b}]\n":       "exactly one group",
		head + "text: a\nfail: [{}]\n":                             "exactly one of",
		head + "text: a\nfail: [{cut: 1, hang: true}]\n":           "exactly one of",
		head + "text: a\nfail: [{status: 200}]\n":                  "between 300 and 599",
		head + "calls: [{name: a, input: {b: 1}, raw_input: x}]":   "not both",
		head + "text: " + strings.Repeat("x", transcript.MaxBytes): "longer than",
	} {
		_, err := transcript.Parse(strings.NewReader(in))
		if task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %v, want %q", in, err, want)
		}
	}
}

// FuzzParse holds that whatever parses can be played: its arguments are JSON objects.
func FuzzParse(f *testing.F) {
	f.Add(head + "text: a\n")
	f.Add(head + "calls: [{name: a, input: {b: [1, {c: d}], e: 2001-01-01, .inf: .nan}}]\n---\ntext: |\n  a\n  ---\nrepeat: 2\n")
	f.Add(head + "calls:\n  - name: a\n    input: &x\n      b: *x\n")
	f.Add("transcript: 1\r\n---\r\ntext: \"\\u2028\"\r\nfail: [{status: 529}]\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > 4096 {
			return
		}
		tr, err := transcript.Parse(strings.NewReader(in))
		if err != nil {
			if task.ClassOf(err) != task.Invalid {
				t.Fatalf("class of %v", err)
			}
			return
		}
		if len(tr.Turns) == 0 {
			t.Fatal("no turns and no error")
		}
		for _, turn := range tr.Turns[:min(len(tr.Turns), 10)] {
			for _, c := range turn.Calls {
				args, err := c.Arguments(same)
				var obj map[string]any
				if err != nil || c.RawInput == "" && json.Unmarshal([]byte(args), &obj) != nil {
					t.Fatalf("arguments %q, %v", args, err)
				}
			}
		}
	})
}
