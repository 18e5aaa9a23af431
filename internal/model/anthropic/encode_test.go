package anthropic

import (
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
)

// BenchmarkEncode measures the body of the last step of a conversation of 60.
func BenchmarkEncode(b *testing.B) {
	c := &client{cfg: Config{Model: "m"}}
	req := model.Request{System: strings.Repeat("guidance ", 500), MaxOutput: 4096}
	for range 60 {
		req.Messages = append(req.Messages,
			model.Message{Role: model.User, Blocks: []model.Block{{Type: model.ToolResultBlock, ID: "toolu_1", Text: strings.Repeat("line of a \"result\"\n", 200)}}},
			model.Message{Role: model.Assistant, Blocks: []model.Block{
				{Type: model.TextBlock, Text: "Looking."},
				{Type: model.ToolUseBlock, ID: "toolu_1", Name: "read", Input: []byte(`{"path":"internal/cart/cart.go"}`)},
			}})
	}
	b.ReportAllocs()
	for b.Loop() {
		body, err := c.encode(req)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(body)))
	}
}
