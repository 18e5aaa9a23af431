package mirror

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Reason says why a request was refused. Reasons are part of the record and never renamed.
type Reason string

// The reasons.
const (
	ReasonMethod   Reason = "method"         // not GET or HEAD
	ReasonForm     Reason = "form"           // CONNECT, absolute form, upgrade, not HTTP/1
	ReasonBody     Reason = "body"           // a body or a transfer encoding
	ReasonQuery    Reason = "query"          // a query string
	ReasonPath     Reason = "path"           // outside the grammar
	ReasonOffline  Reason = "offline"        // the session may not fetch anything
	ReasonUnknown  Reason = "name.unknown"   // the session has no budget for new names
	ReasonBudget   Reason = "name.budget"    // new names used up
	ReasonLong     Reason = "name.long"      // a new name over the cap
	ReasonForeign  Reason = "name.foreign"   // a Go module outside the known prefixes
	ReasonSimilar  Reason = "name.similar"   // one letter away from a known name
	ReasonYoung    Reason = "version.young"  // published too recently
	ReasonVersions Reason = "version.budget" // new versions used up
	ReasonCanary   Reason = "egress.canary"  // a name that carries a planted token
	ReasonRecord   Reason = "record"         // it could not be recorded, so it does not happen
	ReasonRate     Reason = "rate"
	ReasonConns    Reason = "connections"
	ReasonFetches  Reason = "fetch.budget"
	ReasonStopped  Reason = "stopped"  // too many refusals: the session is closed
	ReasonDigest   Reason = "digest"   // the bytes are not the ones that were promised
	ReasonUnproven Reason = "unproven" // nothing to verify the bytes against
	ReasonOrigin   Reason = "origin"   // a host outside the configured ones
	ReasonAddress  Reason = "address"  // an address that no registry has
	ReasonRedirect Reason = "redirect"
	ReasonTLS      Reason = "tls"
	ReasonSize     Reason = "size"
	ReasonUpstream Reason = "upstream" // the upstream failed or sent what cannot be read
)

// refusal is an answer other than 200 and 404.
type refusal struct {
	status int
	reason Reason
	msg    string
	err    error
}

func (r *refusal) Error() string {
	if r.err != nil {
		return r.msg + ": " + r.err.Error()
	}
	return r.msg
}

func (r *refusal) Unwrap() error { return r.err }

// Denial is what a ledger returns for a name that must not be asked for, for a reason of its own.
type Denial struct {
	Reason Reason
	Detail string
}

func (d *Denial) Error() string { return d.Detail }

// unrecorded turns a ledger's error into a refusal.
func unrecorded(err error) error {
	var d *Denial
	if errors.As(err, &d) {
		return deny(http.StatusForbidden, d.Reason, "%s", clip(d.Detail))
	}
	return deny(http.StatusServiceUnavailable, ReasonRecord, "the request could not be recorded")
}

// deny is a refusal that is the client's doing.
func deny(status int, reason Reason, format string, a ...any) error {
	return &refusal{status: status, reason: reason, msg: fmt.Sprintf(format, a...)}
}

// bad is a refusal that is the upstream's doing: 502.
func bad(reason Reason, format string, a ...any) error {
	return &refusal{status: http.StatusBadGateway, reason: reason, msg: fmt.Sprintf(format, a...)}
}

// errNotFound is the upstream's word, or an index's, that something does not exist.
var errNotFound = errors.New("not found")

func invalid(format string, a ...any) error {
	return &task.Error{Class: task.Invalid, Msg: "mirror: " + fmt.Sprintf(format, a...), Fix: "correct the mirror's configuration"}
}

func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return &refusal{status: http.StatusBadGateway, reason: ReasonUpstream, msg: "the upstream failed", err: err}
}

// ofSession reports whether an error is about the budget of the session that asked first.
func ofSession(err error) bool {
	var r *refusal
	return errors.As(err, &r) && (r.reason == ReasonOffline || r.reason == ReasonFetches)
}

// guard turns a panic over something an upstream sent into an error: no registry may end the
// mirror of all tasks.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = bad(ReasonUpstream, "reading the upstream's answer failed: %v", p)
		}
	}()
	return f()
}
