package task

import (
	"errors"
	"time"
)

// Class says what kind of trouble an error is. Classes decide retries and exit codes; the
// text of an error never does.
type Class string

// The classes.
const (
	Transient   Class = "transient"    // network cut, 5xx, timeout: try again with backoff
	RateLimited Class = "rate_limited" // 429: try again after RetryAfter
	Overloaded  Class = "overloaded"   // 529 and its like: try again, slower
	TooLarge    Class = "too_large"    // the request exceeds the model's context: compact, then retry
	Auth        Class = "auth"         // key missing, refused or out of credit: a person must act
	Invalid     Class = "invalid"      // bad input from the user or a bad request: never retry
	NotFound    Class = "not_found"
	Conflict    Class = "conflict"    // somebody else changed it first: read again
	Stale       Class = "stale"       // the lease was lost; this run must stop at once
	Unavailable Class = "unavailable" // something this machine lacks; Fix says what to install
	Budget      Class = "budget"
	StoppedBy   Class = "stopped" // a person's stop
	Internal    Class = "internal"
)

// Error is the error every package of the module returns at its seam when the class matters.
// Msg is one line: what is wrong. Fix is what to do, or empty.
type Error struct {
	Class      Class
	Msg        string
	Fix        string
	RetryAfter time.Duration // 0 when the other side named none
	Err        error         // cause, may be nil
}

func (e *Error) Error() string {
	s := e.Msg
	if e.Err != nil {
		if s != "" {
			s += ": "
		}
		s += e.Err.Error()
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of the first *Error in err's chain, [Internal] for any other
// error, and "" for nil.
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Internal
}

// Retryable reports whether the class is worth another try.
func (c Class) Retryable() bool { return c == Transient || c == RateLimited || c == Overloaded }
