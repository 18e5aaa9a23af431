package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Tidy makes every error of an adapter one [task.Error] in one line: client libraries wrap what
// the transport said in the request's address, and have errors of their own for an answer that
// they cannot read.
func Tidy(h forge.Host) forge.Host { return tidy{h} }

type tidy struct{ forge.Host }

func (t tidy) err(err error) error {
	if err == nil {
		return nil
	}
	var e *task.Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &task.Error{Class: task.Transient, Msg: fmt.Sprintf("%s gave an answer that cannot be used", t.Name()), Err: oneLine(err)}
}

func (t tidy) Push(ctx context.Context, p forge.Push) (bool, error) {
	v, err := t.Host.Push(ctx, p)
	return v, t.err(err)
}

func (t tidy) FindPullRequest(ctx context.Context, repo, branch string) (*forge.PullRequest, error) {
	v, err := t.Host.FindPullRequest(ctx, repo, branch)
	return v, t.err(err)
}

func (t tidy) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (forge.PullRequest, bool, error) {
	v, found, err := t.Host.OpenPullRequest(ctx, pr)
	return v, found, t.err(err)
}

func (t tidy) Repository(ctx context.Context, repo string) (forge.Repository, error) {
	v, err := t.Host.Repository(ctx, repo)
	return v, t.err(err)
}

func (t tidy) Standing(ctx context.Context, repo string) (forge.Standing, error) {
	v, err := t.Host.Standing(ctx, repo)
	return v, t.err(err)
}

func (t tidy) Issue(ctx context.Context, repo string, number int) (forge.Issue, error) {
	v, err := t.Host.Issue(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Changed(ctx context.Context, repo, label string, since time.Time) ([]forge.Issue, error) {
	v, err := t.Host.Changed(ctx, repo, label, since)
	return v, t.err(err)
}

func (t tidy) Acts(ctx context.Context, repo string, number int) ([]forge.Act, error) {
	v, err := t.Host.Acts(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Comments(ctx context.Context, repo string, at forge.Ref) ([]forge.Comment, error) {
	v, err := t.Host.Comments(ctx, repo, at)
	return v, t.err(err)
}

func (t tidy) ReviewComments(ctx context.Context, repo string, number int) ([]forge.Comment, error) {
	v, err := t.Host.ReviewComments(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Permission(ctx context.Context, repo, user string) (forge.Permission, error) {
	v, err := t.Host.Permission(ctx, repo, user)
	return v, t.err(err)
}

func (t tidy) PullRequest(ctx context.Context, repo string, number int) (forge.PullRequest, error) {
	v, err := t.Host.PullRequest(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Comment(ctx context.Context, repo string, at forge.Ref, body string) (string, error) {
	v, err := t.Host.Comment(ctx, repo, at, body)
	return v, t.err(err)
}

func (t tidy) EditComment(ctx context.Context, repo string, at forge.Ref, id, body string) error {
	return t.err(t.Host.EditComment(ctx, repo, at, id, body))
}

func (t tidy) Reply(ctx context.Context, repo string, number int, to forge.Comment, body string) (string, error) {
	v, err := t.Host.Reply(ctx, repo, number, to, body)
	return v, t.err(err)
}

func (t tidy) Acknowledge(ctx context.Context, repo string, at forge.Ref, id string) error {
	return t.err(t.Host.Acknowledge(ctx, repo, at, id))
}

func (t tidy) SetStatus(ctx context.Context, repo, commit string, s forge.Status) error {
	return t.err(t.Host.SetStatus(ctx, repo, commit, s))
}

func (t tidy) Parse(h http.Header, body []byte) (forge.Delivery, error) {
	v, err := t.Host.Parse(h, body)
	return v, t.err(err)
}

func (t tidy) Credential(ctx context.Context, repo string) (forge.Credential, error) {
	v, err := t.Host.Credential(ctx, repo)
	return v, t.err(err)
}
