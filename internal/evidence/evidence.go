// Package evidence makes and checks the signed account of a verification: what was verified,
// on what, in which isolation, by which commands, with which results.
//
// Invariants: a bundle is canonical JSON (RFC 8785), so that it has one form alone; its
// attestation is an in-toto statement in a DSSE envelope, and the statement follows from the
// record beside it to the last byte; checking needs the public key and nothing else, and names
// every part that is off; the same record under the same key gives the same bytes.
package evidence

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// The formats, as they stand in a bundle.
const (
	Format        = "daybreak-evidence/1"
	payloadType   = "application/vnd.in-toto+json"                               // of the in-toto attestation framework
	statementType = "https://in-toto.io/Statement/v1"                            //
	predicateType = "https://github.com/daybreak-agent/daybreak/verification/v1" //
)

// MaxBytes is the largest bundle that is read.
const MaxBytes = 64 << 20

// Bundle is the file.
type Bundle struct {
	Format      string        `json:"format"`
	Attestation dsse.Envelope `json:"attestation"`
	Record      Record        `json:"record"`
}

// Record is what the statement vouches for, in full.
type Record struct {
	Repository  string             `json:"repository"` // its name, without where it lies
	Base        string             `json:"base"`       // commit id
	HeadTree    string             `json:"head_tree"`  // tree id
	Change      Change             `json:"change"`
	Environment string             `json:"environment"` // snapshot digest
	Sandbox     task.Isolation     `json:"sandbox"`
	Commands    []task.PhaseRecord `json:"commands"`
	Results     Results            `json:"results"`
	Log         *Log               `json:"log,omitempty"` // of the task; absent where there was none
	Verifier    string             `json:"verifier"`
	Made        time.Time          `json:"made"` // UTC, when the verdict was reached
}

// Change lists the changed files by what the verification took them for.
type Change struct {
	Tests         []File `json:"tests"`
	Source        []File `json:"source"`
	Configuration []File `json:"configuration"`
}

// File is one changed path.
type File struct {
	Path    string `json:"path"`
	Mode    string `json:"mode,omitempty"`   // git's, octal
	SHA256  string `json:"sha256,omitempty"` // of the content, of a link its text
	Deleted bool   `json:"deleted,omitempty"`
}

// Results is the verdict without what stands elsewhere in the record.
type Results struct {
	Verdict      task.VerdictKind    `json:"verdict"`
	Reason       string              `json:"reason"`
	Runner       string              `json:"runner"`
	Reproduction []task.Reproduction `json:"reproduction"`
	Suite        task.SuiteResult    `json:"suite"`
	Guard        *task.Guard         `json:"guard,omitempty"`
	Findings     []task.Finding      `json:"findings"`
	Table        *task.Table         `json:"table,omitempty"` // what each run showed of each test of interest
}

// Log names a record of a task's hash-chained log, and with it all before.
type Log struct {
	Task task.ID `json:"task"`
	Seq  int64   `json:"seq"`
	Root string  `json:"root"`
}

// Input is what a record is made from.
type Input struct {
	Repo    string // a path or a URL; only its last element is kept
	Verdict task.Verdict
	Changes []git.Change
	Log     *Log
	Made    time.Time
}

// RecordOf gathers the record of a verification.
func RecordOf(in Input) Record {
	v := in.Verdict
	r := Record{
		Repository: strings.TrimSuffix(path.Base(strings.TrimRight(in.Repo, "/")), ".git"),
		Base:       v.Base, HeadTree: v.HeadTree, Environment: v.Environment, Sandbox: v.Sandbox, Commands: v.Phases,
		Results: Results{
			Verdict: v.Kind, Reason: v.Reason, Runner: v.Runner, Reproduction: v.Reproduction, Suite: v.Suite, Guard: v.Guard, Findings: v.Findings, Table: v.Table,
		},
		Log: in.Log, Verifier: v.Verifier, Made: in.Made.UTC().Truncate(time.Second),
	}
	r.Change = changeOf(in.Changes, v.Tests, v.Config)
	return r
}

// changeOf sorts files into their parts; what is neither test nor configuration is source.
func changeOf(changes []git.Change, tests, config []string) Change {
	c := Change{Tests: []File{}, Source: []File{}, Configuration: []File{}}
	for _, f := range changes {
		e := File{Path: f.Path, Deleted: f.Deleted}
		if !f.Deleted {
			e.Mode, e.SHA256 = fmt.Sprintf("%06o", f.Mode), sum(f.Content)
		}
		to := &c.Source
		if slices.Contains(tests, f.Path) {
			to = &c.Tests
		} else if slices.Contains(config, f.Path) {
			to = &c.Configuration
		}
		*to = append(*to, e)
	}
	for _, list := range [][]File{c.Tests, c.Source, c.Configuration} {
		slices.SortFunc(list, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	}
	return c
}

// statement is in-toto's Statement v1. Field names and digest kinds are those of its
// specification.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// predicate holds what is small as it is, and of the rest a digest.
type predicate struct {
	Base          string           `json:"base"`
	Tests         string           `json:"tests"`
	Source        string           `json:"source"`
	Configuration string           `json:"configuration"`
	Environment   string           `json:"environment"`
	Sandbox       string           `json:"sandbox"`
	Commands      string           `json:"commands"`
	Results       string           `json:"results"`
	Verdict       task.VerdictKind `json:"verdict"`
	Log           *Log             `json:"log,omitempty"`
	Verifier      string           `json:"verifier"`
	Made          time.Time        `json:"made"`
}

// statementOf follows from the record alone.
func statementOf(r Record) (statement, error) {
	s := statement{
		Type: statementType, PredicateType: predicateType,
		Subject: []subject{{Name: r.Repository, Digest: map[string]string{"gitTree": r.HeadTree}}},
		Predicate: predicate{
			Base: r.Base, Environment: r.Environment, Verdict: r.Results.Verdict, Log: r.Log, Verifier: r.Verifier, Made: r.Made,
		},
	}
	for _, part := range []struct {
		to *string
		of any
	}{
		{&s.Predicate.Tests, r.Change.Tests},
		{&s.Predicate.Source, r.Change.Source},
		{&s.Predicate.Configuration, r.Change.Configuration},
		{&s.Predicate.Sandbox, r.Sandbox},
		{&s.Predicate.Commands, r.Commands},
		{&s.Predicate.Results, r.Results},
	} {
		b, err := Canonical(part.of)
		if err != nil {
			return s, err
		}
		*part.to = "sha256:" + sum(b)
	}
	return s, nil
}

// Signer signs with the operator's key.
type Signer interface {
	Sign(ctx context.Context, data []byte) ([]byte, error)
	KeyID() (string, error)
}

// Sign makes the bundle: canonical JSON and a line feed.
func Sign(ctx context.Context, r Record, key Signer) ([]byte, error) {
	s, err := statementOf(r)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	payload, err := Canonical(s)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	es, err := dsse.NewEnvelopeSigner(key)
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	env, err := es.SignPayload(ctx, payloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("sign the evidence: %w", err)
	}
	b, err := Canonical(Bundle{Format: Format, Attestation: *env, Record: r})
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	return append(b, '\n'), nil
}

// Digest names a bundle's bytes.
func Digest(bundle []byte) string { return "sha256:" + sum(bundle) }

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// Parse reads a bundle, and says whether its bytes are the only ones that a bundle with this
// content has. Errors are Invalid.
func Parse(b []byte) (bundle Bundle, exact bool, err error) {
	if len(b) > MaxBytes {
		return bundle, false, invalid("the evidence is larger than %d MiB", MaxBytes>>20)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&bundle); err != nil {
		return bundle, false, noBundle(err)
	}
	if bundle.Format != Format {
		return bundle, false, &task.Error{Class: task.Invalid, Err: fmt.Errorf("%w: %q, only %s is", errFormat, bundle.Format, Format)}
	}
	same, err := Canonical(bundle)
	if err != nil {
		return bundle, false, noBundle(err)
	}
	return bundle, bytes.Equal(append(same, '\n'), b), nil
}

var errFormat = errors.New("a format of evidence that is not known")

func noBundle(err error) error {
	return &task.Error{Class: task.Invalid, Msg: "this is no evidence bundle", Err: err}
}

func invalid(format string, args ...any) error {
	return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf(format, args...)}
}

// decode64 takes the one base64 form of some bytes.
func decode64(s string) ([]byte, bool) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return b, err == nil && base64.StdEncoding.EncodeToString(b) == s
}
