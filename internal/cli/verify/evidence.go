package verify

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Check is what `verify-evidence --json` prints.
type Check struct {
	Type    string           `json:"type"` // "evidence"
	Digest  string           `json:"digest"`
	Good    bool             `json:"good"`
	Faults  []evidence.Fault `json:"faults"`
	Checked []string         `json:"checked"` // what the bundle was held against
	Verdict task.VerdictKind `json:"verdict"`
	Base    string           `json:"base"`
	Tree    string           `json:"head_tree"`
}

// NewEvidenceCmd makes `verify-evidence`.
func NewEvidenceCmd(env *kit.Env) *cobra.Command {
	var key, repo, log string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify-evidence FILE --key KEY",
		Short: "Check a signed account of a verification, offline",
		Long: "Checks that the key's owner signed exactly what the file says, and names every part that is off. With --repo the\n" +
			"base and the change are compared with a clone, with --log the log's root with an exported log of the task.\n\n" +
			"Exit codes: 0 all is as it was signed; 6 something is off; 2 this is no evidence, or wrong usage.",
		Args: kit.Takes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if key == "" {
				return &kit.ExitError{Code: kit.Usage, Err: errors.New("--key is needed: the public key of the installation that made the evidence, as `daybreak key` prints it there")}
			}
			pub, err := kit.PublicKey(key)
			if err != nil {
				return err
			}
			file, err := readBundle(args[0])
			if err != nil {
				return err
			}
			c, err := check(cmd.Context(), file, pub, repo, log)
			if err != nil {
				return err
			}
			return c.show(env, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "public key, or a file with it")
	f.StringVar(&repo, "repo", "", "a clone that has the base and the change")
	f.StringVar(&log, "log", "", "a `FILE` with the task's log, as daybreak task export prints it")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func readBundle(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &task.Error{Class: task.Invalid, Msg: "cannot read the evidence", Err: err}
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, evidence.MaxBytes+1))
}

func check(ctx context.Context, file []byte, pub ed25519.PublicKey, repo, log string) (Check, error) {
	b, faults, err := evidence.Check(ctx, file, pub)
	if err != nil {
		return Check{}, err
	}
	c := Check{
		Type: "evidence", Digest: evidence.Digest(file), Checked: []string{"key " + event.KeyID(pub)},
		Verdict: b.Record.Results.Verdict, Base: b.Record.Base, Tree: b.Record.HeadTree,
	}
	if b.Format == "" { // it cannot be read
		repo, log = "", ""
	}
	if repo != "" {
		more, err := inRepo(ctx, b, repo)
		if err != nil {
			return c, err
		}
		faults, c.Checked = append(faults, more...), append(c.Checked, "repository "+repo)
	}
	if log != "" {
		f, err := os.Open(log)
		if err != nil {
			return c, &task.Error{Class: task.Invalid, Msg: "cannot read the log", Err: err}
		}
		events, err := taskview.VerifyExport(f)
		_ = f.Close()
		switch {
		case err != nil:
			faults = append(faults, evidence.Fault{Part: "log", Detail: err.Error()})
		case len(events) == 0:
			faults = append(faults, evidence.Fault{Part: "log", Detail: "the export holds no event"})
		default:
			faults = append(faults, b.AgainstLog(events[0].Task, events)...)
		}
		c.Checked = append(c.Checked, "log "+log)
	}
	c.Faults, c.Good = append([]evidence.Fault{}, faults...), len(faults) == 0
	return c, nil
}

// inRepo compares with a clone, which is only read.
func inRepo(ctx context.Context, b evidence.Bundle, repo string) ([]evidence.Fault, error) {
	home, err := os.MkdirTemp("", "daybreak-git-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(home) }()
	g, err := git.New(git.Config{Home: home})
	if err != nil {
		return nil, err
	}
	dir, err := g.Dir(ctx, repo)
	if err != nil {
		return nil, err
	}
	var faults []evidence.Fault
	for _, o := range []struct{ part, id string }{{"base", b.Record.Base}, {"head tree", b.Record.HeadTree}} {
		if !git.IsID(o.id) {
			faults = append(faults, evidence.Fault{Part: o.part, Detail: fmt.Sprintf("%q is no object id", o.id)})
		} else if _, err := g.TreeID(ctx, dir, o.id); task.ClassOf(err) == task.NotFound {
			faults = append(faults, evidence.Fault{Part: o.part, Detail: fmt.Sprintf("%s is not in the repository; fetch the branch with the change", o.id)})
		} else if err != nil {
			return nil, err
		}
	}
	if len(faults) > 0 {
		return faults, nil
	}
	changes, err := prover.Changes(ctx, g, dir, b.Record.Base, b.Record.HeadTree)
	if err != nil {
		return nil, err
	}
	return b.Against(changes), nil
}

func (c Check) show(env *kit.Env, asJSON bool) error {
	if asJSON {
		b, err := json.Marshal(c)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Out, "%s\n", b)
	} else if c.Good {
		fmt.Fprintf(env.Out, "good: %s\n", c.Digest)
		for _, s := range c.Checked {
			fmt.Fprintf(env.Out, "  checked with %s\n", taskview.Escape(s))
		}
		fmt.Fprintf(env.Out, "  verdict      %s\n  base         %s\n  head tree    %s\n", taskview.Escape(string(c.Verdict)), taskview.Escape(c.Base), taskview.Escape(c.Tree))
	} else {
		for _, f := range c.Faults {
			fmt.Fprintf(env.Out, "off: %s\n", taskview.Escape(f.String()))
		}
	}
	if !c.Good {
		return &kit.ExitError{Code: kit.NotVerified}
	}
	return nil
}

// NewKeyCmd makes `key`.
func NewKeyCmd(env *kit.Env) *cobra.Command {
	var asPEM bool
	cmd := &cobra.Command{
		Use: "key", Short: "Print the public key that this installation signs with", Args: cobra.NoArgs,
		Long: "Prints the public half of the key that signs this installation's evidence and logs: base64 of its 32 bytes, for\n" +
			"`verify-evidence --key`, or PEM for other programs. Publish it where reviewers look.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := env.Open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer func() { _ = a.Close() }()
			pub := ed25519.PublicKey(a.PublicKey())
			if !asPEM {
				fmt.Fprintln(env.Out, base64.StdEncoding.EncodeToString(pub))
				return nil
			}
			der, err := x509.MarshalPKIXPublicKey(pub)
			if err != nil {
				return err
			}
			return pem.Encode(env.Out, &pem.Block{Type: "PUBLIC KEY", Bytes: der})
		},
	}
	cmd.Flags().BoolVar(&asPEM, "pem", false, "print it as PEM")
	return cmd
}

// attest signs what came of a verification.
func attest(ctx context.Context, a *app.App, repo string, out prover.Outcome) ([]byte, error) {
	return evidence.Sign(ctx, evidence.RecordOf(evidence.Input{
		Repo: repo, Verdict: out.Verdict, Changes: out.Changes, Made: a.Now(),
	}), a.Attest())
}
