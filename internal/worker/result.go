package worker

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Result is the last line of `--json`: what came of a task.
type Result struct {
	Type         string              `json:"type"` // "result"
	Task         task.ID             `json:"task"`
	State        task.State          `json:"state"`
	Verdict      task.VerdictKind    `json:"verdict"`
	Reason       string              `json:"reason"`
	Repo         string              `json:"repo"`
	Base         string              `json:"base"`
	Head         string              `json:"head"`
	Branch       string              `json:"branch"`
	PullRequest  string              `json:"pull_request"`
	Question     string              `json:"question,omitempty"` // that the task waits with
	Reproduction []task.Reproduction `json:"reproduction"`
	Suite        task.SuiteResult    `json:"suite"`
	Findings     []task.Finding      `json:"findings"`
	Budget       ResultBudget        `json:"budget"`
	Timing       ResultTiming        `json:"timing_ms"`
	Sandbox      ResultSandbox       `json:"sandbox"`
}

// ResultBudget is what the task used.
type ResultBudget struct {
	Steps      int     `json:"steps"`
	Input      int64   `json:"input"`
	Output     int64   `json:"output"`
	CacheRead  int64   `json:"cache_read"`
	CacheWrite int64   `json:"cache_write"`
	USD        float64 `json:"usd"`
	Unpriced   bool    `json:"unpriced,omitempty"` // the model has no known price: usd is too low
	Wall       float64 `json:"wall_s"`
}

// ResultTiming is in milliseconds.
type ResultTiming struct {
	SandboxReady int64   `json:"sandbox_ready"`
	PerStep      float64 `json:"harness_per_step_p50"` // between a reply and the next request, less the tools' time
	Verify       int64   `json:"verify"`               // of the last verification
}

// ResultSandbox names what isolated the agent's commands.
type ResultSandbox struct {
	Runtime   string `json:"runtime"`
	Isolation string `json:"isolation"`
}

// ResultOf reads a task's result out of its log.
func ResultOf(ctx context.Context, st store.Store, id task.ID) (Result, error) {
	events, err := st.Events(ctx, id, 0, 0)
	if err != nil {
		return Result{}, err
	}
	sum, err := event.Fold(events)
	if err != nil {
		return Result{}, err
	}
	res := Result{
		Type: "result", Task: id, State: sum.State, Reason: sum.Reason, Repo: sum.Created.Repo, Base: sum.Created.Base,
		Reproduction: []task.Reproduction{}, Findings: []task.Finding{},
		Budget: ResultBudget{
			Steps: sum.Spent.Steps, Input: sum.Spent.Tokens.Input, Output: sum.Spent.Tokens.Output,
			CacheRead: sum.Spent.Tokens.CacheRead, CacheWrite: sum.Spent.Tokens.CacheWrite,
			USD: sum.Spent.Cost.USD(), Unpriced: sum.Unpriced, Wall: sum.Spent.Wall.Seconds(),
		},
	}
	res.Suite.Flaky = []string{}
	if s := sum.AgentSandbox; s != nil {
		res.Sandbox = ResultSandbox{s.Runtime, s.Isolation}
		res.Timing.SandboxReady = s.Millis
	}
	if sum.Verification != nil {
		res.Verdict, res.Timing.Verify = sum.Verification.Kind, sum.Verification.Millis
		if res.Reason == "" {
			res.Reason = sum.Verification.Reason
		}
		doc, err := store.Load(ctx, st, sum.Verification.Document)
		if err != nil {
			return res, err
		}
		var v task.Verdict
		if err := json.Unmarshal([]byte(doc), &v); err != nil {
			return res, err
		}
		res.Reproduction = append(res.Reproduction, v.Reproduction...)
		res.Suite = v.Suite
		if res.Suite.Flaky == nil {
			res.Suite.Flaky = []string{}
		}
		res.Findings = append(res.Findings, v.Findings...)
	} else {
		if sum.Baseline != nil && sum.Baseline.Problem != "" {
			res.Verdict = task.EnvBlocked
		}
		res.Findings = append(res.Findings, sum.Findings...)
	}
	if sum.Parked() {
		res.Question = sum.Asked.Question
	}
	if pr := sum.PullRequest; pr != nil {
		res.Head, res.Branch, res.PullRequest = pr.Head, pr.Branch, pr.URL
	}
	res.Timing.PerStep = stepOverhead(events)
	return res, nil
}

// stepOverhead is the median of what the harness itself took between a reply and the next
// request, in milliseconds, from the log's own times.
func stepOverhead(events []event.Event) float64 {
	var (
		replied time.Time
		tools   int64
		all     []float64
	)
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			continue
		}
		switch p := p.(type) {
		case *event.ModelResponded:
			replied, tools = e.Time, 0
		case *event.ToolFinished:
			tools += p.Millis
		case *event.RunStarted:
			replied = time.Time{}
		case *event.ModelRequested:
			if !replied.IsZero() {
				all = append(all, max(float64(e.Time.Sub(replied).Microseconds())/1000-float64(tools), 0))
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
