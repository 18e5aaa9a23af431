package agent

import (
	"strings"
	"testing"
)

func TestPromptPlaces(t *testing.T) {
	in := PromptInput{WorkDir: "/workspace", Repo: "shop", Base: "abc", Suite: "go test: 3 passed", Issue: "see {{suite}} and {{.Guidance}} and {{"}
	p, err := BuildPrefix(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := p.First.Blocks[0].Text
	if want := "Repository: shop at commit abc, in /workspace.\n\n# The suite on this commit\n\ngo test: 3 passed\n\n# The issue\n\n" + in.Issue + "\n\n"; !strings.HasPrefix(first, want) {
		t.Errorf("the first message is\n%s\nand should begin with\n%s", first, want)
	}
	if strings.Contains(p.System, "{{") || !strings.Contains(p.System, "/workspace") {
		t.Error("the system text has a place that was not filled")
	}
	in.Guidance, in.Notes = "Use tabs.", []string{"a submodule is empty", "another"}
	p, err = BuildPrefix(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "3 passed\nNote: a submodule is empty\nNote: another\n\n# Guidance for contributors, from the repository\n\nUse tabs.\n\n# The issue\n"; !strings.Contains(p.First.Blocks[0].Text, want) {
		t.Errorf("the first message is\n%s\nand should hold\n%s", p.First.Blocks[0].Text, want)
	}
}

func TestRenderRefusesUnknownPlaces(t *testing.T) {
	for _, text := range []string{"{{nobody}}", "{{base", "a {{}} b"} {
		if got, err := render("x", text, map[string]string{"base": "b"}); err == nil {
			t.Errorf("%q gave %q, want an error", text, got)
		}
	}
}
