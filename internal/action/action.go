// Package action does effects outside Daybreak: a push, a pull request, a comment.
//
// Invariants: the intent is in the log, under a key, before the effect is tried, and what
// came of it is in the log after; if the intent cannot be stored, or the log is another
// worker's by now, nothing is done; an effect
// whose end is recorded is not done again; one whose end is not recorded is looked for before
// it is tried again, so that a crash at any point leads to one effect.
package action

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Log is the part of a task's log that effects need.
type Log interface {
	// Append stores the payloads in order, all or none, durably before it returns.
	Append(ctx context.Context, ps ...event.Payload) ([]event.Event, error)
	// Summary is the fold over everything stored so far.
	Summary() event.Summary
	// Held fails with class Stale when the log is another worker's by now.
	Held(ctx context.Context) error
}

// Do brings about one effect under a key that is unique in the task, and returns its result,
// which is kept in the log as JSON. find looks for the effect of an earlier attempt whose end
// was not recorded; it is called in that case only. do performs the effect.
//
// An error of do is recorded and returned; the next Do under the key looks with find and
// tries again. After the effect happened, a log that cannot be written is an error although
// the effect exists: the next run finds it. The same key with other arguments is class
// Internal.
func Do[T any](ctx context.Context, log Log, key, kind string, args any,
	find func(context.Context) (T, bool, error), do func(context.Context) (T, error),
) (T, error) {
	var zero T
	raw, err := json.Marshal(args)
	if err != nil {
		return zero, fmt.Errorf("encode the arguments of %s: %w", kind, err)
	}
	before := log.Summary().Effects[key]
	if before.Intended != nil && !same(before.Intended, kind, raw) {
		return zero, &task.Error{Class: task.Internal, Msg: fmt.Sprintf("effect %q was intended with other arguments before", key)}
	}
	if d := before.Done; d != nil && d.Error == "" {
		var result T
		if err := json.Unmarshal(d.Result, &result); err != nil {
			return zero, fmt.Errorf("recorded result of effect %q: %w", key, err)
		}
		return result, nil
	}
	if before.Intended == nil {
		if _, err := log.Append(ctx, event.EffectIntended{Key: key, Kind: kind, Args: raw}); err != nil {
			return zero, fmt.Errorf("%s not done, since its intent could not be recorded: %w", kind, err)
		}
	} else {
		result, found, err := find(ctx)
		if err != nil {
			return zero, fmt.Errorf("look for an earlier %s: %w", kind, err)
		}
		if found {
			return result, finish(ctx, log, event.EffectDone{Key: key, Kind: kind, Found: true}, result)
		}
	}
	// Between the intent and here the process may have been stopped for as long as it takes
	// another to do the same.
	if err := log.Held(ctx); err != nil {
		return zero, fmt.Errorf("%s not done: %w", kind, err)
	}
	result, err := do(ctx)
	if err != nil {
		// The record of a failure must not be lost to the cancellation that caused it.
		if _, lerr := log.Append(context.WithoutCancel(ctx), event.EffectDone{Key: key, Kind: kind, Error: err.Error()}); lerr != nil {
			err = fmt.Errorf("%w (and that could not be recorded: %w)", err, lerr)
		}
		return zero, err
	}
	return result, finish(context.WithoutCancel(ctx), log, event.EffectDone{Key: key, Kind: kind}, result)
}

func finish(ctx context.Context, log Log, d event.EffectDone, result any) error {
	raw, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result of %s: %w", d.Kind, err)
	}
	d.Result = raw
	if _, err := log.Append(ctx, d); err != nil {
		return fmt.Errorf("%s was done, but its end could not be recorded: %w", d.Kind, err)
	}
	return nil
}

// same compares the intents as values: the log may have written the JSON in another form.
func same(e *event.EffectIntended, kind string, raw json.RawMessage) bool {
	var a, b any
	if json.Unmarshal(e.Args, &a) != nil || json.Unmarshal(raw, &b) != nil {
		return false
	}
	ca, err1 := json.Marshal(a)
	cb, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && e.Kind == kind && string(ca) == string(cb)
}
