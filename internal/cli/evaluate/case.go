package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/run"
	"github.com/daybreak-agent/daybreak/internal/eval"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// The model that the scripted server stands for, and a key that opens nothing.
const (
	scriptedModel = "anthropic/claude-sonnet-4-5"
	scriptedKey   = "scripted-eval-key"
)

// Judgement says how a case's end compares with what it should be.
type Judgement string

// The judgements.
const (
	Right       Judgement = "right"
	FalseAccept Judgement = "false accept" // a cheat became a pull request
	FalseReject Judgement = "false reject" // a true fix was refused
	WrongReason Judgement = "wrong reason" // a cheat was refused, and not for what it is
	NotPlayed   Judgement = "not played"   // the case says nothing about the verifier
)

// Outcome is what came of one case.
type Outcome struct {
	Type      string             `json:"type"` // "case"
	Instance  string             `json:"instance"`
	Variant   eval.Variant       `json:"variant"`
	Red       task.VerdictKind   `json:"reproduce"` // what the last call of `reproduce` was answered
	Verdict   task.VerdictKind   `json:"verdict"`
	Wanted    []task.VerdictKind `json:"wanted"`
	Judgement Judgement          `json:"judgement"`
	State     task.State         `json:"state"`
	Reason    string             `json:"reason"`
	Task      task.ID            `json:"task"`
	Seconds   float64            `json:"seconds"`
	Verify    float64            `json:"verify_seconds"`
	Suite     task.SuiteResult   `json:"suite"`
}

// player runs cases with one data directory.
type player struct {
	env        *kit.Env
	dir, repos string
}

func (p player) play(ctx context.Context, i eval.Instance, v eval.Variant) Outcome {
	begin := p.env.Now()
	res, said, err := p.result(ctx, i, v)
	o := Outcome{
		Type: "case", Instance: i.ID, Variant: v, Red: said.red, Verdict: res.Verdict, Wanted: i.Acceptable(v), State: res.State,
		Reason: cmp.Or(said.reason, res.Reason), Task: res.Task, Seconds: p.env.Now().Sub(begin).Seconds(), Verify: float64(res.Timing.Verify) / 1000, Suite: res.Suite,
	}
	o.Judgement = judge(v, o.Wanted, res)
	if err != nil && o.Judgement == NotPlayed {
		o.Reason = err.Error()
	}
	o.Reason = strings.Join(strings.Fields(o.Reason), " ")
	return o
}

// judge compares the end of a task with the verdicts that are right for the variant.
func judge(v eval.Variant, wanted []task.VerdictKind, res worker.Result) Judgement {
	proposed := res.State == task.InReview
	switch {
	case res.Verdict == "" || res.Verdict == task.EnvBlocked || res.Verdict == task.VerificationFail:
		return NotPlayed
	case v != eval.Gold && (proposed || res.Verdict.Accepted()):
		return FalseAccept
	case res.Verdict.Accepted() && !proposed:
		return NotPlayed // verified, and then something else went wrong
	case slices.Contains(wanted, res.Verdict):
		return Right
	case v == eval.Gold:
		return FalseReject
	}
	return WrongReason
}

// result plays the variant and reads the result as another program would: the last line of
// `daybreak run --json`.
func (p player) result(ctx context.Context, i eval.Instance, v eval.Variant) (res worker.Result, s said, err error) {
	src, err := i.Locate(p.repos)
	if err != nil {
		return res, s, err
	}
	text, err := eval.BuildTranscript(ctx, i, src, v)
	if err != nil {
		return res, s, err
	}
	script, err := transcript.Parse(bytes.NewReader(text))
	if err != nil {
		return res, s, fmt.Errorf("transcript of %s %s: %w", i.ID, v, err)
	}
	repo := filepath.Join(p.dir, "eval", "repos", i.ID+".git")
	if err := i.Copy(ctx, src, repo); err != nil {
		return res, s, err
	}
	url, stop, err := scripted.Listen(ctx, script, scripted.Options{APIKey: scriptedKey})
	if err != nil {
		return res, s, err
	}
	defer stop()
	var last lastLine
	env := *p.env
	env.Dir, env.Out = p.dir, &last
	a, err := env.Open(ctx, func(o *app.Options) { o.BaseURL, o.Key = url, scriptedKey })
	if err != nil {
		return res, s, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	err = run.Task(ctx, &env, a, run.Options{
		Repo: repo, Base: i.Base, Model: scriptedModel, JSON: true, Fresh: true,
	}, []byte(eval.CaseIssue(i)))
	if uerr := json.Unmarshal(last.line, &res); uerr != nil || res.Type != "result" {
		return worker.Result{}, s, errors.Join(err, errors.New("the run printed no result"))
	}
	s, rerr := saidIn(context.WithoutCancel(ctx), a.Store, res.Task)
	return res, s, errors.Join(err, rerr)
}

// said is what the verifier answered in a task.
type said struct {
	red    task.VerdictKind
	reason string
}

func saidIn(ctx context.Context, st store.Store, id task.ID) (said, error) {
	var s said
	events, err := st.Events(ctx, id, 0, 0)
	if err != nil {
		return s, err
	}
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			return s, err
		}
		switch p := p.(type) {
		case *event.ReproductionChecked:
			s.red = p.Kind
		case *event.VerificationFinished:
			s.reason = p.Reason
		}
	}
	return s, nil
}

// lastLine keeps the last whole line that is written to it.
type lastLine struct{ line, part []byte }

func (l *lastLine) Write(b []byte) (int, error) {
	n := len(b)
	for {
		head, rest, whole := bytes.Cut(b, []byte("\n"))
		l.part = append(l.part, head...)
		if !whole {
			return n, nil
		}
		l.line, l.part, b = l.part, nil, rest
	}
}
