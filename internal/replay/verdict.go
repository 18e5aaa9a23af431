package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// verdict compares two verdicts without what says only when and how long.
func (c *comparison) verdict(w, n *event.VerificationFinished) (Divergence, error) {
	a, err := c.log.load(context.Background(), w.Document)
	if err != nil {
		return Divergence{}, err
	}
	b, err := c.own().load(context.Background(), n.Document)
	if err != nil {
		return Divergence{}, err
	}
	docs, err := parseVerdicts(a, b)
	if err != nil {
		return Divergence{}, err
	}
	if docs.short() && !slices.Contains(c.rep.Notes, tooShort) {
		c.rep.Notes = append(c.rep.Notes, tooShort)
	}
	if w.Kind != n.Kind && !(docs.short() && graded(w.Kind) && graded(n.Kind)) {
		return Divergence{Kind: Verdict, What: fmt.Sprintf("the verdict differs: recorded %s (%s), now %s (%s)", w.Kind, w.Reason, n.Kind, n.Reason)}, nil
	}
	recorded, now, err := docs.comparable()
	return c.line(Verdict, "the verdict is the same, its evidence is not", recorded, now), err
}

const tooShort = "the time for altering parts of the fix ran out in one of the two, so how well the tests guard it is not compared"

// graded reports whether how well the tests guard the change is all that tells a verdict from
// another of its kind.
func graded(k task.VerdictKind) bool { return k == task.Verified || k == task.VerifiedWeak }

// verdicts are the documents of two verdicts on the same thing.
type verdicts [2]map[string]any

func parseVerdicts(recorded, now string) (v verdicts, err error) {
	for i, s := range []string{recorded, now} {
		if err := json.Unmarshal([]byte(s), &v[i]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// short reports whether either had too little time to find out all about its probes: what it found
// is then the clock's doing.
func (v verdicts) short() bool {
	for _, doc := range v {
		if g, ok := doc["guard"].(map[string]any); ok && (g["complete"] != true || g["unsure"] != nil) {
			return true
		}
	}
	return false
}

// comparable are the two documents without what belongs to one machine at one time. Which small
// mutants of the change are tried is the verifier's choice and no result of the task, and so is
// which tests are run before the whole suite; how the tests guard the change's parts is compared
// where there was time to find out.
func (v verdicts) comparable() (recorded, now string, err error) {
	short := v.short()
	older := v.both("phases", "name", "older tests") // an earlier build ran none
	_, a := v[0]["table"]
	_, b := v[1]["table"]
	var out [2]string
	for i, doc := range v {
		for _, k := range []string{"environment", "verifier", "sandbox"} {
			delete(doc, k)
		}
		if !a || !b { // an earlier build kept none
			delete(doc, "table")
		}
		if t, ok := doc["table"].(map[string]any); ok {
			t["runs"] = without(t["runs"], func(r map[string]any) bool {
				return r["phase"] == "P6" || r["what"] == "reached tests" || !older && r["what"] == "the base's tests"
			})
		}
		if g, ok := doc["guard"].(map[string]any); ok {
			delete(g, "mutants")
			delete(g, "note")
			for _, h := range objects(g["hunks"]) {
				if delete(h, "by"); h["outcome"] == string(task.Broken) { // a hang, which a slow machine has sooner
					h["outcome"] = string(task.Caught)
				}
			}
		}
		if short {
			delete(doc, "guard")
			delete(doc, "reason") // it says verified, or how well
			delete(doc, "kind")
			doc["findings"] = without(doc["findings"], func(f map[string]any) bool { return f["kind"] == "unneeded" })
		}
		doc["phases"] = without(doc["phases"], func(p map[string]any) bool {
			switch p["name"] {
			case "guard": // its account counts the mutants
				delete(p, "note")
				delete(p, "runs")
				delete(p, "complete")
			case "verdict":
				if short {
					delete(p, "note")
				}
			case "regression": // says why nothing ran before it, where the suite is slow
				delete(p, "note")
			}
			return p["name"] == "impact" || !older && p["name"] == "older tests"
		})
		strip(doc)
		b, err := json.MarshalIndent(doc, "", " ")
		if err != nil {
			return "", "", err
		}
		out[i] = string(b)
	}
	return out[0], out[1], nil
}

// both reports whether both documents have an object in the list whose field is the value.
func (v verdicts) both(list, field, value string) bool {
	n := 0
	for _, doc := range v {
		if slices.ContainsFunc(objects(doc[list]), func(o map[string]any) bool { return o[field] == value }) {
			n++
		}
	}
	return n == len(v)
}

func objects(list any) []map[string]any {
	var out []map[string]any
	all, _ := list.([]any)
	for _, e := range all {
		if o, ok := e.(map[string]any); ok {
			out = append(out, o)
		}
	}
	return out
}

// without leaves objects out of a list.
func without(list any, drop func(map[string]any) bool) any {
	all, ok := list.([]any)
	if !ok {
		return list
	}
	return slices.DeleteFunc(all, func(e any) bool {
		o, ok := e.(map[string]any)
		return ok && drop(o)
	})
}

func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range []string{"ms", "tests_ms", "log", "build"} {
			delete(v, k)
		}
		for _, e := range v {
			strip(e)
		}
	case []any:
		for _, e := range v {
			strip(e)
		}
	}
}
