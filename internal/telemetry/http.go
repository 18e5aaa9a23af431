package telemetry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// HTTP counts the requests that a handler answers, by the pattern of its route.
func (w *Watch) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		answer := &answer{ResponseWriter: rw, code: http.StatusOK}
		defer func() {
			route := r.Pattern // set by the mux
			if route == "" {
				route = "none"
			}
			w.Add(HTTPRequests, 1, route, oneOf(r.Method, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"), strconv.Itoa(answer.code))
			if !strings.HasPrefix(answer.Header().Get("Content-Type"), "text/event-stream") { // a live stream takes as long as somebody looks
				w.Time(HTTPSeconds, time.Since(begin), route)
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

// answer remembers the status of an answer.
type answer struct {
	http.ResponseWriter
	code int
	said bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if !a.said && code >= 200 {
		a.code, a.said = code, true
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.said = true
	return a.ResponseWriter.Write(b)
}

// Unwrap lets an http.ResponseController reach what is below.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
