package app

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/policy"
)

func TestLogsAreMasked(t *testing.T) {
	const secret = "hunter2-and-more"
	var out bytes.Buffer
	asked := 0
	log := maskedLogger(slog.New(slog.NewTextHandler(&out, nil)), func() []policy.Secret {
		asked++
		return []policy.Secret{{Name: "API token", Value: secret}}
	})
	log.Debug("not written " + secret)
	if asked != 0 {
		t.Error("secrets were read for a line that nobody sees")
	}
	log.With("a", secret).WithGroup("g").Info("about "+secret, "b", "x "+secret, "c", errors.New("no: "+secret), "task", "t_1",
		slog.Group("h", slog.Any("d", []string{secret})), "n", 7)
	got := out.String()
	if strings.Contains(got, secret) || strings.Count(got, "\n") != 1 || asked != 1 {
		t.Errorf("asked %d times: %s", asked, got)
	}
	for _, want := range []string{"g.task=t_1", "g.n=7", "API token"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
}
