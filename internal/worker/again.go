package worker

import (
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/tool"
)

// Again is how a recorded task is run a second time; see [Config.Again].
type Again struct {
	Source string                        // where the repository is; "" is what the record says
	Nonce  []byte                        // of the marks in the prompt; nil: new ones
	Tools  func([]tool.Tool) []tool.Tool // watches the agent's tools; may be nil
}

// source is where the task's repository is read from.
func (r *run) source(recorded string) string {
	if a := r.cfg.Again; a != nil && a.Source != "" {
		return a.Source
	}
	return recorded
}

// nonce is what no text of the task can know, for the marks around what others wrote.
func (r *run) nonce() (string, error) {
	if a := r.cfg.Again; a != nil && a.Nonce != nil {
		return fmt.Sprintf("%x", a.Nonce), nil
	}
	b := make([]byte, 8)
	if _, err := r.cfg.Rand.Read(b); err != nil {
		return "", fmt.Errorf("read randomness: %w", err)
	}
	return fmt.Sprintf("%x", b), nil
}

// watched are the agent's tools as they are run.
func (r *run) watched(tools []tool.Tool) []tool.Tool {
	if a := r.cfg.Again; a != nil && a.Tools != nil {
		return a.Tools(tools)
	}
	return tools
}
