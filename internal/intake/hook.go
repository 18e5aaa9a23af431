package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// MaxDelivery is how many bytes a delivery may have: the most that any of the forges sends.
const MaxDelivery = 25 << 20

// stale is how old an event may be: forges send again for some days at most.
const stale = 7 * 24 * time.Hour

// Hook receives the deliveries of one configured forge. What it answers with success is kept.
//
//	413 too large   401 not signed with a secret of this forge   400 cannot be read
//	202 kept, known or not for us   503 cannot be read or kept now: send it again
func (in *Intake) Hook(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, ok := in.cfg.Hosts[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			answer(w, http.StatusMethodNotAllowed, "deliveries are posted")
			return
		}
		body, free, err := in.bodies.read(w, r)
		defer free()
		switch {
		case errors.Is(err, errLarge):
			answer(w, http.StatusRequestEntityTooLarge, err.Error())
			return
		case errors.Is(err, errBusy):
			w.Header().Set("Retry-After", "30")
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		case err != nil:
			answer(w, http.StatusBadRequest, "the delivery was cut")
			return
		}
		code, text := in.receive(r, name, host, body)
		answer(w, code, text)
	})
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}

// receive proves, reads and keeps a delivery, in that order.
func (in *Intake) receive(r *http.Request, name string, host Host, body []byte) (int, string) {
	ctx := r.Context()
	log := in.cfg.Logger.With("forge", name, "remote", r.RemoteAddr)
	now := in.cfg.Now()
	proven, with := false, -1
	for i, s := range host.Secrets { // all of them, so that the time does not say which
		err := host.Verify(r.Header, body, s.Value)
		if err == nil && (s.Until.IsZero() || now.Before(s.Until)) && !proven {
			proven, with = true, i
		}
	}
	if !proven {
		log.WarnContext(ctx, "a delivery was not signed with a secret of this forge", "bytes", len(body))
		return http.StatusUnauthorized, "not signed with a secret of this forge"
	}
	if with > 0 {
		log.InfoContext(ctx, "a delivery was signed with the old secret, which is good until "+host.Secrets[with].Until.UTC().Format(time.RFC3339))
	}
	d, err := host.Parse(r.Header, body)
	if err != nil {
		log.WarnContext(ctx, "a delivery cannot be read", "error", err)
		return http.StatusBadRequest, "the delivery cannot be read"
	}
	if d.Kind == forge.Ignored || d.Kind == forge.Ping {
		return http.StatusAccepted, "not for us"
	}
	if !d.At.IsZero() && now.Sub(d.At) > stale {
		log.InfoContext(ctx, "a stale delivery was ignored", "delivery", d.ID, "of", d.At)
		return http.StatusAccepted, "stale"
	}
	if d.Kind == forge.RetryPressed && d.At.IsZero() { // no forge says it, and the text of this moment counts
		d.At = now
	}
	if _, ok, err := in.cfg.Registry.Find(ctx, name, d.Repository); err != nil {
		return http.StatusServiceUnavailable, "cannot be kept now"
	} else if !ok {
		log.InfoContext(ctx, "a delivery for a repository that is not registered was ignored", "repository", d.Path)
		return http.StatusAccepted, "not for us"
	}
	first, err := in.keep(r, name, d)
	switch {
	case err != nil:
		log.ErrorContext(ctx, "a delivery cannot be kept", "delivery", d.ID, "error", err)
		return http.StatusServiceUnavailable, "cannot be kept now"
	case !first:
		return http.StatusAccepted, "known"
	}
	return http.StatusAccepted, "kept"
}

func (in *Intake) keep(r *http.Request, name string, d forge.Delivery) (bool, error) {
	d.Forge = name
	b, err := json.Marshal(d)
	if err != nil {
		return false, err
	}
	if len(d.ID) > 200 {
		return false, &task.Error{Class: task.Invalid, Msg: "the id of the delivery is too long"}
	}
	first, err := in.cfg.Store.Deliver(r.Context(), store.Delivery{Forge: name, ID: d.ID, Repository: d.Repository, Body: b})
	if first {
		in.wake()
	}
	return first, err
}

func (in *Intake) wake() {
	select {
	case in.mail <- struct{}{}:
	default:
	}
}
