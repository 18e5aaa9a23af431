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

// rescue makes an error of a library that panics over an answer it did not expect: what a server
// sends must not end the process.
func (t tidy) rescue(err *error) {
	if r := recover(); r != nil {
		*err = &task.Error{Class: task.Transient, Msg: fmt.Sprintf("%s gave an answer that its client cannot read", t.Name()), Err: fmt.Errorf("%v", r)}
	}
}

func (t tidy) Push(ctx context.Context, p forge.Push) (v bool, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Push(ctx, p)
	return v, t.err(err)
}

func (t tidy) FindPullRequest(ctx context.Context, repo, branch string) (v *forge.PullRequest, err error) {
	defer t.rescue(&err)
	v, err = t.Host.FindPullRequest(ctx, repo, branch)
	return v, t.err(err)
}

func (t tidy) OpenPullRequest(ctx context.Context, pr forge.PullRequest) (v forge.PullRequest, found bool, err error) {
	defer t.rescue(&err)
	v, found, err = t.Host.OpenPullRequest(ctx, pr)
	return v, found, t.err(err)
}

func (t tidy) Home(ctx context.Context, repo, branch string) (v string, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Home(ctx, repo, branch)
	return v, t.err(err)
}

func (t tidy) Repository(ctx context.Context, repo string) (v forge.Repository, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Repository(ctx, repo)
	return v, t.err(err)
}

func (t tidy) Standing(ctx context.Context, repo string) (v forge.Standing, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Standing(ctx, repo)
	return v, t.err(err)
}

func (t tidy) Issue(ctx context.Context, repo string, number int) (v forge.Issue, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Issue(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Changed(ctx context.Context, repo, label string, since time.Time) (v []forge.Issue, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Changed(ctx, repo, label, since)
	return v, t.err(err)
}

func (t tidy) Acts(ctx context.Context, repo string, number int) (v []forge.Act, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Acts(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Comments(ctx context.Context, repo string, at forge.Ref) (v []forge.Comment, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Comments(ctx, repo, at)
	return v, t.err(err)
}

func (t tidy) ReviewComments(ctx context.Context, repo string, number int) (v []forge.Comment, err error) {
	defer t.rescue(&err)
	v, err = t.Host.ReviewComments(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Permission(ctx context.Context, repo, user string) (v forge.Permission, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Permission(ctx, repo, user)
	return v, t.err(err)
}

func (t tidy) PullRequest(ctx context.Context, repo string, number int) (v forge.PullRequest, err error) {
	defer t.rescue(&err)
	v, err = t.Host.PullRequest(ctx, repo, number)
	return v, t.err(err)
}

func (t tidy) Comment(ctx context.Context, repo string, at forge.Ref, body string) (v string, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Comment(ctx, repo, at, body)
	return v, t.err(err)
}

func (t tidy) EditComment(ctx context.Context, repo string, at forge.Ref, id, body string) (err error) {
	defer t.rescue(&err)
	return t.err(t.Host.EditComment(ctx, repo, at, id, body))
}

func (t tidy) Reply(ctx context.Context, repo string, number int, to forge.Comment, body string) (v string, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Reply(ctx, repo, number, to, body)
	return v, t.err(err)
}

func (t tidy) Acknowledge(ctx context.Context, repo string, at forge.Ref, id string) (err error) {
	defer t.rescue(&err)
	return t.err(t.Host.Acknowledge(ctx, repo, at, id))
}

func (t tidy) SetStatus(ctx context.Context, repo, commit string, s forge.Status) (err error) {
	defer t.rescue(&err)
	return t.err(t.Host.SetStatus(ctx, repo, commit, s))
}

func (t tidy) Parse(h http.Header, body []byte) (v forge.Delivery, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Parse(h, body)
	return v, t.err(err)
}

func (t tidy) Credential(ctx context.Context, repo string) (v forge.Credential, err error) {
	defer t.rescue(&err)
	v, err = t.Host.Credential(ctx, repo)
	return v, t.err(err)
}
