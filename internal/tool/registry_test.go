package tool_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

func TestSpecsAreSortedStableAndSmall(t *testing.T) {
	specs := tool.NewRegistry().Specs()
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
		if strings.Contains(s.Description, "{{") || strings.Contains(string(s.Schema), "%!") {
			t.Errorf("%s: a number is missing in its description", s.Name)
		}
		var schema map[string]any
		if err := json.Unmarshal(s.Schema, &schema); err != nil || schema["additionalProperties"] != false {
			t.Errorf("%s: schema %s: %v", s.Name, s.Schema, err)
		}
	}
	want := []string{"decline", "edit", "read", "reproduce", "run", "search", "submit", "symbols", "write"}
	if !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	first, err := json.Marshal(specs)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := json.Marshal(tool.NewRegistry().Specs())
		if err != nil || string(again) != string(first) {
			t.Fatal("the specs differ from call to call")
		}
	}
	// 1 token per 3 bytes is an upper estimate; the rest of the first request needs 1,300.
	if n := model.EstimateTokens(model.Request{Tools: specs}); n > 3_200 {
		t.Errorf("the tools take %d tokens", n)
	} else {
		t.Logf("the tools take at most %d tokens", n)
	}
}
