package github

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const pageSize = 100

func next(r *github.Response) int {
	if r == nil {
		return 0
	}
	return r.NextPage
}

// Issue implements [forge.Host].
func (f *Forge) Issue(ctx context.Context, address string, number int) (forge.Issue, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return forge.Issue{}, err
	}
	i, _, err := r.Issues.Get(ctx, r.owner, r.name, number)
	if err != nil {
		return forge.Issue{}, err
	}
	return issue(i), nil
}

func issue(i *github.Issue) forge.Issue {
	out := forge.Issue{
		Number: i.GetNumber(), Title: i.GetTitle(), Body: i.GetBody(), URL: i.GetHTMLURL(), Author: user(i.User), Open: i.GetState() == "open",
		PullRequest: i.IsPullRequest(), Created: i.GetCreatedAt().UTC(), Updated: i.GetUpdatedAt().UTC(),
	}
	for _, l := range i.Labels {
		out.Labels = append(out.Labels, l.GetName())
	}
	for _, a := range i.Assignees {
		out.Assignees = append(out.Assignees, a.GetLogin())
	}
	return out
}

// Changed implements [forge.Host].
func (f *Forge) Changed(ctx context.Context, address, label string, since time.Time) ([]forge.Issue, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	opt := &github.IssueListByRepoOptions{State: "open", Sort: "updated", Direction: "asc", Since: since}
	if label != "" {
		opt.Labels = []string{label}
	}
	return wire.List(forge.MaxItems, issue, func(page int) ([]*github.Issue, int, error) {
		opt.ListOptions = github.ListOptions{Page: page, PerPage: pageSize}
		is, res, err := r.Issues.ListByRepo(ctx, r.owner, r.name, opt)
		return is, next(res), err
	})
}

// Acts implements [forge.Host].
func (f *Forge) Acts(ctx context.Context, address string, number int) ([]forge.Act, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	all, err := wire.Pages(forge.MaxItems, func(page int) ([]*github.IssueEvent, int, error) {
		es, res, err := r.Issues.ListIssueEvents(ctx, r.owner, r.name, number, &github.ListOptions{Page: page, PerPage: pageSize})
		return es, next(res), err
	})
	if err != nil {
		return nil, err
	}
	out := make([]forge.Act, len(all))
	for i, e := range all {
		out[i] = forge.Act{Who: user(e.Actor), At: e.GetCreatedAt().UTC()}
		switch e.GetEvent() {
		case "labeled":
			out[i].Kind, out[i].What = forge.Labeled, e.GetLabel().GetName()
		case "assigned":
			out[i].Kind, out[i].What = forge.Assigned, e.GetAssignee().GetLogin()
			if a := e.GetAssigner(); a != nil {
				out[i].Who = user(a)
			}
		}
	}
	return out, nil
}

// Comments implements [forge.Host].
func (f *Forge) Comments(ctx context.Context, address string, at forge.Ref) ([]forge.Comment, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	return wire.List(forge.MaxItems, comment, func(page int) ([]*github.IssueComment, int, error) {
		cs, res, err := r.Issues.ListComments(ctx, r.owner, r.name, at.Number, &github.IssueListCommentsOptions{ListOptions: github.ListOptions{Page: page, PerPage: pageSize}})
		return cs, next(res), err
	})
}

func comment(c *github.IssueComment) forge.Comment {
	return forge.Comment{
		ID: strconv.FormatInt(c.GetID(), 10), Author: user(c.User), Body: c.GetBody(), URL: c.GetHTMLURL(), Created: c.GetCreatedAt().UTC(), Updated: c.GetUpdatedAt().UTC(),
	}
}

// ReviewComments implements [forge.Host].
func (f *Forge) ReviewComments(ctx context.Context, address string, number int) ([]forge.Comment, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	return wire.List(forge.MaxItems, reviewComment, func(page int) ([]*github.PullRequestComment, int, error) {
		cs, res, err := r.PullRequests.ListComments(ctx, r.owner, r.name, number, &github.PullRequestListCommentsOptions{
			Sort: "created", Direction: "asc", ListOptions: github.ListOptions{Page: page, PerPage: pageSize},
		})
		return cs, next(res), err
	})
}

func reviewComment(c *github.PullRequestComment) forge.Comment {
	thread := c.GetInReplyTo()
	if thread == 0 {
		thread = c.GetID()
	}
	return forge.Comment{
		ID: strconv.FormatInt(c.GetID(), 10), Author: user(c.User), Body: c.GetBody(), URL: c.GetHTMLURL(), Created: c.GetCreatedAt().UTC(), Updated: c.GetUpdatedAt().UTC(),
		Path: c.GetPath(), Line: c.GetLine(), Original: c.GetOriginalLine(), Commit: cmp.Or(c.GetOriginalCommitID(), c.GetCommitID()), Hunk: c.GetDiffHunk(),
		Thread: strconv.FormatInt(thread, 10), Review: strconv.FormatInt(c.GetPullRequestReviewID(), 10),
	}
}

// Permission implements [forge.Host]. The role "maintain" is write, "triage" is read.
func (f *Forge) Permission(ctx context.Context, address, name string) (forge.Permission, error) {
	r, err := f.at(ctx, address)
	if err != nil || name == "" {
		return forge.None, err
	}
	p, _, err := r.Repositories.GetPermissionLevel(ctx, r.owner, r.name, name)
	if task.ClassOf(err) == task.NotFound {
		return forge.None, nil
	}
	if err != nil {
		return forge.None, err
	}
	if u := p.GetUser(); u != nil && !strings.EqualFold(u.GetLogin(), name) {
		return forge.None, nil // a name that was given to somebody else
	}
	return map[string]forge.Permission{"read": forge.Read, "write": forge.Write, "admin": forge.Admin}[p.GetPermission()], nil
}

// Comment implements [forge.Host].
func (f *Forge) Comment(ctx context.Context, address string, at forge.Ref, body string) (string, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return "", err
	}
	c, _, err := r.Issues.CreateComment(ctx, r.owner, r.name, at.Number, &github.IssueComment{Body: &body})
	return strconv.FormatInt(c.GetID(), 10), err
}

// EditComment implements [forge.Host].
func (f *Forge) EditComment(ctx context.Context, address string, _ forge.Ref, id, body string) error {
	r, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	n, err := wire.CommentNumber(id)
	if err != nil {
		return err
	}
	_, _, err = r.Issues.EditComment(ctx, r.owner, r.name, n, &github.IssueComment{Body: &body})
	return err
}

// Reply implements [forge.Host].
func (f *Forge) Reply(ctx context.Context, address string, pull int, to forge.Comment, body string) (string, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return "", err
	}
	n, err := wire.CommentNumber(cmp.Or(to.Thread, to.ID))
	if err != nil {
		return "", err
	}
	// The library's own call for this is not the one that GitHub describes.
	req, err := r.NewRequest(ctx, "POST", fmt.Sprintf("repos/%s/%s/pulls/%d/comments/%d/replies", r.owner, r.name, pull, n), map[string]string{"body": body})
	if err != nil {
		return "", err
	}
	var c github.PullRequestComment
	_, err = r.Do(req, &c)
	return strconv.FormatInt(c.GetID(), 10), err
}

// Acknowledge implements [forge.Host].
func (f *Forge) Acknowledge(ctx context.Context, address string, at forge.Ref, id string) error {
	r, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	if id == "" {
		_, _, err = r.Reactions.CreateIssueReaction(ctx, r.owner, r.name, at.Number, "eyes")
		return err
	}
	c, err := wire.CommentNumber(id)
	if err != nil {
		return err
	}
	_, _, err = r.Reactions.CreateIssueCommentReaction(ctx, r.owner, r.name, c, "eyes")
	return err
}

// Standing implements [forge.Host].
func (f *Forge) Standing(ctx context.Context, address string) (forge.Standing, error) {
	var s forge.Standing
	path, err := wire.Path(f.web, address, 2)
	if err != nil {
		return s, err
	}
	full, err := f.full(ctx, path)
	if err != nil {
		return s, err
	}
	me, scopes, err := f.me(ctx)
	if err != nil {
		return s, err
	}
	s.Repository, s.Bot = f.repository(full), user(me)
	if err := f.rights(ctx, path, full, scopes, &s); err != nil {
		return s, err
	}
	c, err := f.for1(ctx, path)
	if err != nil {
		return s, err
	}
	owner, name, _ := strings.Cut(full.GetFullName(), "/")
	b, _, err := c.Repositories.GetBranch(ctx, owner, name, full.GetDefaultBranch(), 0)
	if err != nil {
		return s, err
	}
	s.Protection.On = b.GetProtected()
	if p, _, err := c.Repositories.GetBranchProtection(ctx, owner, name, full.GetDefaultBranch()); err == nil {
		if rv := p.GetRequiredPullRequestReviews(); rv != nil {
			s.Protection.Approvals, s.Protection.Stale, s.Protection.OwnersReview, s.Protection.LastPusher = rv.RequiredApprovingReviewCount, rv.DismissStaleReviews, rv.RequireCodeOwnerReviews, rv.RequireLastPushApproval
		}
	} else if b.GetProtected() {
		s.Unknown = append(s.Unknown, "how many approvals a merge needs and whether new commits dismiss them")
		s.Protection.Approvals = 1 // not known; the note above says so
		s.Protection.Stale = true
	}
	s.Unknown = append(s.Unknown, "which secrets the repository's workflows have")
	us, err := wire.Pages(forge.MaxItems, func(page int) ([]*github.User, int, error) {
		us, res, err := c.Repositories.ListCollaborators(ctx, owner, name, &github.ListCollaboratorsOptions{Affiliation: "all", ListOptions: github.ListOptions{Page: page, PerPage: pageSize}})
		return us, next(res), err
	})
	if err != nil && task.ClassOf(err) != task.Auth && task.ClassOf(err) != task.NotFound {
		return s, err
	}
	if err != nil {
		s.Unknown = append(s.Unknown, "who may steer; it is asked for each person when they do")
	}
	for _, u := range us {
		if u.GetPermissions().GetPush() && u.GetLogin() != s.Bot.Name {
			s.Steer = append(s.Steer, u.GetLogin())
		}
	}
	return s, nil
}

// rights says what the token or the App may do, what it lacks and what it should not have.
func (f *Forge) rights(ctx context.Context, path string, full *github.Repository, scopes []string, s *forge.Standing) error {
	if f.cfg.App == nil {
		p := full.GetPermissions()
		switch {
		case p.GetAdmin():
			s.May = forge.Admin
			s.TooMuch = append(s.TooMuch, "it may administer the repository: change protections, secrets and members")
		case p.GetPush():
			s.May = forge.Write
		case p.GetPull():
			s.May = forge.Read
		}
		if s.May < forge.Write {
			s.Missing = append(s.Missing, wire.WriteAccess(f.forks != nil))
		}
		for _, bad := range []string{"workflow", "admin:org", "admin:repo_hook", "delete_repo", "admin:enterprise"} {
			if slices.Contains(scopes, bad) {
				s.TooMuch = append(s.TooMuch, "its token has the scope "+bad)
			}
		}
		if len(scopes) == 0 {
			s.Unknown = append(s.Unknown, "the permissions of a fine-grained token (issues and pull requests: write, contents: "+f.contents()+", are enough)")
		} else {
			s.TooMuch = append(s.TooMuch, "a classic token is good for every repository of its user; a fine-grained one or an App is for one")
		}
		return nil
	}
	c, err := f.asApp()
	if err != nil {
		return err
	}
	owner, name, _ := strings.Cut(path, "/")
	inst, _, err := c.Apps.GetRepositoryInstallation(ctx, owner, name)
	if err != nil {
		return err
	}
	p := inst.GetPermissions()
	s.May = forge.Write
	if got := p.GetContents(); got != "write" && got != f.contents() {
		s.Missing = append(s.Missing, f.contents()+" access to contents")
	}
	for what, got := range map[string]string{"issues": p.GetIssues(), "pull requests": p.GetPullRequests(), "checks": p.GetChecks()} {
		if got != "write" {
			s.Missing = append(s.Missing, "write access to "+what)
		}
	}
	slices.Sort(s.Missing)
	for what, got := range map[string]string{"workflows": p.GetWorkflows(), "administration": p.GetAdministration(), "secrets": p.GetSecrets(), "members": p.GetMembers()} {
		if got == "write" {
			s.TooMuch = append(s.TooMuch, "the App may write "+what+", which no task's token ever has")
		}
	}
	slices.Sort(s.TooMuch)
	return nil
}
