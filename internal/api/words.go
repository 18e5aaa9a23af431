package api

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Word is the body of a person's word to a task.
type Word struct {
	Text string `json:"text,omitempty"` // for steer and answer; the reason of a stop
	By   string `json:"by,omitempty"`   // whose word it is, from an operator's token
	Tree string `json:"tree,omitempty"` // for approve: the tree that was looked at; "": the one that waits
}

// Noted is the answer to a word that was taken.
type Noted struct {
	Status  string  `json:"status"`  // "noted" or "approved"
	Task    task.ID `json:"task"`    // of a retry, the new one
	Running bool    `json:"running"` // a worker has the task now; else it is taken up when it goes on
}

// word reads a word, asks the gate and lets act have it.
func (a *API) word(w http.ResponseWriter, r *http.Request, scope access.Scope, needsText bool, act func(t store.Task, who string, word Word) error) (store.Task, error) {
	t, err := a.open(r, scope)
	if err != nil {
		return t, err
	}
	body, err := read(w, r, maxWord)
	if err != nil {
		return t, err
	}
	var word Word
	if len(bytes.TrimSpace(body)) > 0 {
		if err := decode(body, &word); err != nil {
			return t, refusal{http.StatusBadRequest, err.Error()}
		}
	}
	word.Text = strings.TrimSpace(word.Text)
	switch {
	case len(word.By) > maxName || len(word.Tree) > maxName:
		return t, refusal{http.StatusBadRequest, "by or tree is too long"}
	case len(word.Text) > maxWord/2:
		return t, refusal{http.StatusBadRequest, "the text is longer than 32 KiB"}
	case needsText && word.Text == "":
		return t, refusal{http.StatusBadRequest, "text is needed"}
	case !needsText && scope != access.Steer && word.Text != "":
		return t, refusal{http.StatusBadRequest, "text has no meaning here"}
	case scope != access.Approve && word.Tree != "":
		return t, refusal{http.StatusBadRequest, "tree has no meaning here"}
	}
	name, err := who(viewer(r), word.By)
	if err != nil {
		return t, err
	}
	return t, act(t, name, word)
}

func (a *API) steer(w http.ResponseWriter, r *http.Request) error {
	t, err := a.word(w, r, access.Steer, true, func(t store.Task, who string, word Word) error {
		return a.cfg.Desk.Steer(r.Context(), t.ID, who, word.Text)
	})
	return noted(w, t, "noted", err)
}

func (a *API) answer(w http.ResponseWriter, r *http.Request) error {
	t, err := a.word(w, r, access.Steer, true, func(t store.Task, who string, word Word) error {
		return a.cfg.Desk.Answer(r.Context(), t.ID, who, word.Text)
	})
	return noted(w, t, "noted", err)
}

func (a *API) stop(w http.ResponseWriter, r *http.Request) error {
	t, err := a.word(w, r, access.Steer, false, func(t store.Task, who string, word Word) error {
		return a.cfg.Desk.Stop(r.Context(), t.ID, who, word.Text)
	})
	return noted(w, t, "noted", err)
}

// approve answers once the approval is kept; the publication follows.
func (a *API) approve(w http.ResponseWriter, r *http.Request) error {
	t, err := a.word(w, r, access.Approve, false, func(t store.Task, who string, word Word) error {
		return a.cfg.Desk.Approve(r.Context(), t.ID, who, word.Tree)
	})
	return noted(w, t, "approved", err)
}

func (a *API) retry(w http.ResponseWriter, r *http.Request) error {
	var again task.ID
	_, err := a.word(w, r, access.Steer, false, func(t store.Task, who string, word Word) error {
		if word.Text != "" {
			return refusal{http.StatusBadRequest, "text has no meaning here"}
		}
		if err := a.cfg.Gate.MayAct(r.Context(), viewer(r), t.Repo, access.Create); err != nil {
			return err
		}
		var err error
		again, err = a.cfg.Desk.Retry(r.Context(), t.ID, who)
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/tasks/"+string(again))
	return answer(w, http.StatusCreated, Noted{Status: "noted", Task: again})
}

func noted(w http.ResponseWriter, t store.Task, status string, err error) error {
	if err != nil {
		return err
	}
	return answer(w, http.StatusAccepted, Noted{Status: status, Task: t.ID, Running: t.Owner != ""})
}

// Raised is the answer to a raised budget: the new totals, 0 for no limit.
type Raised struct {
	Task   task.ID `json:"task"`
	Steps  int     `json:"steps"`
	Tokens int64   `json:"tokens"`
	USD    float64 `json:"usd"`
	Wall   float64 `json:"wall_s"`
}

func (a *API) budget(w http.ResponseWriter, r *http.Request) error {
	t, err := a.open(r, access.Budget)
	if err != nil {
		return err
	}
	body, err := read(w, r, maxWord)
	if err != nil {
		return err
	}
	var asked struct {
		Budget
		By string `json:"by"`
	}
	if err := decode(body, &asked); err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	limits, err := asked.Limits()
	switch {
	case err != nil:
		return refusal{http.StatusBadRequest, err.Error()}
	case len(asked.By) > maxName:
		return refusal{http.StatusBadRequest, "by is too long"}
	}
	name, err := who(viewer(r), asked.By)
	if err != nil {
		return err
	}
	l, err := a.cfg.Desk.Budget(r.Context(), t.ID, name, limits)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, Raised{t.ID, l.Steps, l.Tokens, l.Cost.USD(), l.Wall.Seconds()})
}
