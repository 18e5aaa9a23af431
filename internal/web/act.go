package web

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// maxWord is how long a person's word may be, in bytes.
const maxWord = 32 << 10

// said is what a page tells after a word was taken.
func said(key string) string {
	switch key {
	case "steer":
		return "Noted. The agent is told before its next step."
	case "stop":
		return "Noted. The task stops; what it changed is kept."
	case "approve":
		return "Approved. The change is being published."
	case "retry":
		return "The issue is worked on anew in this task."
	}
	return ""
}

func (s *Site) steer(w http.ResponseWriter, r *http.Request) error {
	return s.word(w, r, access.Steer, "steer", func(t store.Task, who, text string) (task.ID, error) {
		if text == "" {
			return "", &task.Error{Class: task.Invalid, Msg: "there is nothing to tell the agent", Fix: "write a sentence"}
		}
		return t.ID, s.cfg.Desk.Steer(r.Context(), t.ID, who, text)
	})
}

func (s *Site) stop(w http.ResponseWriter, r *http.Request) error {
	return s.word(w, r, access.Steer, "stop", func(t store.Task, who, text string) (task.ID, error) {
		return t.ID, s.cfg.Desk.Stop(r.Context(), t.ID, who, text)
	})
}

func (s *Site) approve(w http.ResponseWriter, r *http.Request) error {
	return s.word(w, r, access.Approve, "approve", func(t store.Task, who, tree string) (task.ID, error) {
		if tree == "" { // what waits by now may be another change than the one that was looked at
			return "", &task.Error{Class: task.Invalid, Msg: "the form names no change", Fix: "open the task's page again and look at what waits"}
		}
		return t.ID, s.cfg.Desk.Approve(r.Context(), t.ID, who, tree)
	})
}

func (s *Site) retry(w http.ResponseWriter, r *http.Request) error {
	return s.word(w, r, access.Steer, "retry", func(t store.Task, who, _ string) (task.ID, error) {
		if err := s.cfg.Gate.MayAct(r.Context(), viewer(r), t.Repo, access.Create); err != nil { // it makes a task
			return "", err
		}
		return s.cfg.Desk.Retry(r.Context(), t.ID, who)
	})
}

// word takes a person's word with the text of the form and goes back to the task's page. A script
// that asks for plain text is told in a line.
func (s *Site) word(w http.ResponseWriter, r *http.Request, scope access.Scope, key string, act func(t store.Task, who, text string) (task.ID, error)) error {
	t, err := s.open(r, scope)
	if err != nil {
		return err
	}
	if s.cfg.Desk == nil {
		return &task.Error{Class: task.Invalid, Msg: "nothing can be done from here", Fix: "use the command line"}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxWord+4<<10)
	if err := r.ParseForm(); err != nil {
		return &task.Error{Class: task.Invalid, Msg: "the form could not be read, or is too long"}
	}
	text := strings.TrimSpace(r.PostForm.Get("text"))
	if len(text) > maxWord || !utf8.ValidString(text) {
		return &task.Error{Class: task.Invalid, Msg: "the text is longer than 32 KiB, or not UTF-8"}
	}
	id, err := act(t, viewer(r).Signs(), text)
	if err != nil {
		return err
	}
	if wantsText(r) && id == t.ID {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(said(key)))
		return nil
	}
	http.Redirect(w, r, "/tasks/"+string(id)+"?said="+key, http.StatusSeeOther)
	return nil
}
