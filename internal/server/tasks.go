package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Tasks is what the API does with them.
type Tasks interface {
	// Create makes a task, or finds the one that was made under the same key; made tells which.
	// Trouble with the input is class Invalid, Auth or NotFound; a task may have been made to
	// record it, whose id is returned with the error.
	Create(ctx context.Context, n Request) (v View, made bool, err error)
	// View is what there is to know about a task, as JSON. Class NotFound.
	View(ctx context.Context, id task.ID) (json.RawMessage, error)
	// Approve lets the verified change of a task that waits for it be published; who goes into the
	// record. Class NotFound, and Conflict when nothing waits for an approval.
	Approve(ctx context.Context, id task.ID, who string) error
}

// NewTask is the body of POST /api/tasks.
type NewTask struct {
	Repo        string `json:"repo"`         // path or URL
	Ref         string `json:"ref"`          // base: commit, branch or tag; "": the default branch
	Issue       string `json:"issue"`        // the issue's text, its title in the first line
	Model       string `json:"model"`        // "provider/model"; "": the configured one
	RequestedBy string `json:"requested_by"` // whom caps count it for
	Priority    int    `json:"priority"`     // 1 (first) to 4; 0: 2
	Key         string `json:"key"`          // names the request: sent again, it finds its task; also by the header Idempotency-Key
	Budget      Budget `json:"budget"`
}

// Budget lowers the configured one; 0 leaves a meter as it is.
type Budget struct {
	Steps  int     `json:"steps"`
	Tokens int64   `json:"tokens"`
	USD    float64 `json:"usd"`
	Wall   string  `json:"wall"` // such as "40m"
}

// Request is a NewTask that was looked through.
type Request struct {
	NewTask
	Wall time.Duration
}

// View is a task in an answer.
type View struct {
	Task    task.ID    `json:"task"`
	State   task.State `json:"state"`
	Repo    string     `json:"repo"`
	Title   string     `json:"title"`
	Created time.Time  `json:"created"`
}

// The caps of a request.
const (
	maxBody  = 9 << 20 // an issue of 8 MiB and its JSON
	maxIssue = 8 << 20
	maxKey   = 200
	maxName  = 200
	maxRepo  = 2000
)

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is larger than 9 MiB")
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body could not be read")
		return
	}
	n, err := ParseNew(body, r.Header.Get("Idempotency-Key"))
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	v, made, err := s.cfg.Tasks.Create(r.Context(), n)
	if err != nil {
		if v.Task != "" {
			w.Header().Set("Location", "/api/tasks/"+string(v.Task))
		}
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Location", "/api/tasks/"+string(v.Task))
	code := http.StatusOK
	if made {
		code = http.StatusCreated
	}
	answer(w, code, struct {
		View
		Made bool `json:"made"`
	}{v, made})
}

// ParseNew reads a body, which nobody vouches for. header is a key given outside of it. Its
// errors say what is wrong in one line.
func ParseNew(body []byte, header string) (Request, error) {
	var n Request
	if !utf8.Valid(body) {
		return n, errors.New("the body is not UTF-8")
	}
	if err := decode(body, &n.NewTask); err != nil {
		return n, err
	}
	if header != "" {
		if n.Key != "" && n.Key != header {
			return n, errors.New("key and Idempotency-Key differ")
		}
		n.Key = header
	}
	switch {
	case n.Repo == "" || n.Issue == "":
		return n, errors.New("repo and issue are needed")
	case len(n.Repo) > maxRepo || len(n.Ref) > maxName || len(n.Model) > maxName || len(n.RequestedBy) > maxName:
		return n, errors.New("repo, ref, model or requested_by is too long")
	case len(n.Issue) > maxIssue:
		return n, errors.New("the issue is larger than 8 MiB")
	case len(n.Key) > maxKey:
		return n, errors.New("the key is longer than 200 bytes")
	case n.Priority < 0 || n.Priority > 4:
		return n, errors.New("priority is 1 (first) to 4")
	case n.Budget.Steps < 0 || n.Budget.Tokens < 0 || !(n.Budget.USD >= 0):
		return n, errors.New("a budget is negative")
	}
	if n.Budget.Wall != "" {
		d, err := time.ParseDuration(n.Budget.Wall)
		if err != nil || d <= 0 {
			return n, errors.New("budget.wall is not a time such as 40m")
		}
		n.Wall = d
	}
	return n, nil
}

// decode reads one JSON object; an unknown key is an error that names it.
func decode(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return errors.New("the body is not the JSON object that is expected: " + err.Error())
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("there is something after the JSON object")
	}
	return nil
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	id := task.ID(r.PathValue("id"))
	if !id.Valid() {
		refuse(w, http.StatusNotFound, "no such task")
		return
	}
	v, err := s.cfg.Tasks.View(r.Context(), id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	answer(w, http.StatusOK, v)
}

// approve answers once the approval is kept; the publication follows.
func (s *Server) approve(w http.ResponseWriter, r *http.Request) {
	id := task.ID(r.PathValue("id"))
	if !id.Valid() {
		refuse(w, http.StatusNotFound, "no such task")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<10))
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body could not be read, or is larger than 4 KiB")
		return
	}
	var by struct {
		By string `json:"by"` // whose word it is, for the record
	}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := decode(body, &by); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	if len(by.By) > maxName || !utf8.ValidString(by.By) {
		refuse(w, http.StatusBadRequest, "by is too long or not UTF-8")
		return
	}
	if by.By == "" {
		by.By = "api"
	}
	if err := s.cfg.Tasks.Approve(r.Context(), id, by.By); err != nil {
		s.fail(w, r, err)
		return
	}
	answer(w, http.StatusAccepted, map[string]string{"status": "approved"})
}
