package api

import (
	_ "embed"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/outcome"
)

//go:embed openapi.yaml
var description []byte

// describe gives out the description of this API (OpenAPI 3.1).
func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write(description) // a caller that left cannot be told
}

// Me is who the caller is.
type Me struct {
	Name     string         `json:"name"`
	Via      access.Via     `json:"via"`
	Operates bool           `json:"operates"` // sees every task, the fleet and the queue
	Scopes   []access.Scope `json:"scopes"`
	Repos    []string       `json:"repos"` // globs of the repositories that a token is for; empty: any
	Expires  time.Time      `json:"expires,omitzero"`
	Key      string         `json:"checkpoint_key"` // verifies the checkpoints of this installation
}

func (a *API) whoami(w http.ResponseWriter, r *http.Request) error {
	v := viewer(r)
	me := Me{v.Name, v.Via, v.Operates(), []access.Scope{}, append([]string{}, v.Repos...), v.Expires, a.cfg.Key}
	for _, s := range access.Scopes() {
		if v.Has(s) {
			me.Scopes = append(me.Scopes, s)
		}
	}
	return answer(w, http.StatusOK, me)
}

func (a *API) fleet(w http.ResponseWriter, r *http.Request) error {
	f, err := a.cfg.Board.Fleet(r.Context(), viewer(r))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, f)
}

// sums adds up what became of the tasks that the viewer may read.
func (a *API) sums(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	since, err := outcome.ParseSince(q.Get("since"), a.cfg.Now())
	if err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	by := q.Get("by")
	if by == "" {
		by = "repository"
	}
	key, err := outcome.Grouping(by)
	if err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	o, err := a.cfg.Board.Outcomes(r.Context(), viewer(r), since, q.Get("repo"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, outcome.NewReport(since, by, key, a.cfg.Now(), o.All))
}
