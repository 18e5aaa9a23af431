package access

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Problem is an error of the API (RFC 9457).
type Problem struct {
	Type   string `json:"type"`   // "about:blank": Title is that of the status
	Title  string `json:"title"`  // for people
	Status int    `json:"status"` // of HTTP
	Detail string `json:"detail"` // one line: what is wrong and what to do
	Class  string `json:"class,omitempty"`
}

// Refuse answers with a problem. detail becomes one line.
func Refuse(w http.ResponseWriter, code int, detail string) { refuse(w, code, detail, "") }

// RefuseClass is [Refuse] with the class of what went wrong, for programs.
func RefuseClass(w http.ResponseWriter, code int, detail string, class task.Class) {
	refuse(w, code, detail, string(class))
}

func refuse(w http.ResponseWriter, code int, detail, class string) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// A caller that left cannot be told.
	_ = json.NewEncoder(w).Encode(Problem{"about:blank", http.StatusText(code), code, strings.Join(strings.Fields(detail), " "), class})
}
