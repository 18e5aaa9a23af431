package gitea

import (
	"net/http"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func FuzzParse(f *testing.F) {
	f.Add("issue_label", []byte(`{"action":"label_updated","issue":{"number":1,"labels":[{"name":"x"}]},"repository":{"id":1}}`))
	f.Add("issue_comment", []byte(`{"action":"created","comment":{"id":1},"repository":{"id":1}}`))
	f.Add("pull_request_review_comment", []byte(`{"action":"reviewed","review":{},"pull_request":{"head":null},"repository":{"id":1}}`))
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		h := &Forge{cfg: Config{Name: "gitea"}}
		d, err := h.Parse(http.Header{"X-Gitea-Event": {event}, "X-Gitea-Delivery": {"x"}}, body)
		if err != nil && task.ClassOf(err) != task.Invalid {
			t.Errorf("%v", err)
		}
		if err == nil && d.Kind == forge.Commented && (d.Comment == nil || d.Issue == nil && d.Pull == nil) {
			t.Errorf("%+v", d)
		}
	})
}

func TestGhosts(t *testing.T) {
	h := &Forge{cfg: Config{Name: "gitea"}}
	for _, sender := range []string{`null`, `{"id":-1,"login":"Ghost"}`, `{"id":-2,"login":"gitea-actions"}`, `{"login":"wanda"}`} {
		d, err := h.Parse(http.Header{"X-Gitea-Event": {"issues"}, "X-Gitea-Delivery": {"x"}}, []byte(`{"action":"edited","issue":{"number":1},"repository":{"id":1},"sender":`+sender+`}`))
		if err != nil || d.Sender != (forge.User{}) {
			t.Errorf("%s: %+v %v", sender, d.Sender, err)
		}
	}
}
