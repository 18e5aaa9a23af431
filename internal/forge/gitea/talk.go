package gitea

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "code.gitea.io/sdk/gitea"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const pageSize = 50 // the most that a server gives by default

// Issue implements [forge.Host].
func (f *Forge) Issue(ctx context.Context, address string, number int) (forge.Issue, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return forge.Issue{}, err
	}
	i, _, err := r.GetIssue(r.owner, r.name, int64(number))
	if err != nil {
		return forge.Issue{}, err
	}
	return issue(i), nil
}

func issue(i *sdk.Issue) forge.Issue {
	out := forge.Issue{
		Number: int(i.Index), Title: i.Title, Body: i.Body, URL: i.HTMLURL, Author: user(i.Poster), Open: i.State == sdk.StateOpen,
		PullRequest: i.PullRequest != nil, Created: i.Created.UTC(), Updated: i.Updated.UTC(),
	}
	if i.OriginalAuthor != "" { // migrated: its author is a name on another forge
		out.Author = forge.User{}
	}
	for _, l := range i.Labels {
		out.Labels = append(out.Labels, l.Name)
	}
	for _, a := range i.Assignees {
		out.Assignees = append(out.Assignees, a.UserName)
	}
	return out
}

// Changed implements [forge.Host].
func (f *Forge) Changed(ctx context.Context, address, label string, since time.Time) ([]forge.Issue, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	opt := sdk.ListIssueOption{State: sdk.StateOpen, Since: since}
	if label != "" {
		opt.Labels = []string{label}
	}
	all, err := wire.List(forge.MaxItems, issue, func(page int) ([]*sdk.Issue, int, error) {
		opt.ListOptions = sdk.ListOptions{Page: page, PageSize: pageSize}
		is, res, err := r.ListRepoIssues(r.owner, r.name, opt)
		return is, nextPage(res), err
	})
	slices.SortFunc(all, func(a, b forge.Issue) int { return a.Updated.Compare(b.Updated) })
	return all, err
}

func nextPage(r *sdk.Response) int {
	if r == nil {
		return 0
	}
	return r.NextPage
}

// timelineItem is what Gitea's timeline gives; the client library's own type does not fit it.
type timelineItem struct {
	Type            string    `json:"type"`
	User            *sdk.User `json:"user"`
	Body            string    `json:"body"`
	Created         time.Time `json:"created_at"`
	Label           *struct{ Name string }
	Assignee        *sdk.User `json:"assignee"`
	RemovedAssignee bool      `json:"removed_assignee"`
}

// Acts implements [forge.Host].
func (f *Forge) Acts(ctx context.Context, address string, number int) ([]forge.Act, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	items, err := wire.Pages(forge.MaxItems, func(page int) ([]timelineItem, int, error) {
		var got []timelineItem
		err := f.get(ctx, fmt.Sprintf("/api/v1/repos/%s/%s/issues/%d/timeline?page=%d&limit=%d", r.owner, r.name, number, page, pageSize), &got)
		next := 0
		if len(got) == pageSize {
			next = page + 1
		}
		return got, next, err
	})
	if err != nil {
		return nil, err
	}
	acts := make([]forge.Act, 0, len(items))
	for _, it := range items {
		a := forge.Act{Who: user(it.User), At: it.Created.UTC()}
		switch {
		case it.Type == "label" && it.Label != nil && it.Body == "1": // an empty body is a label taken off
			a.Kind, a.What = forge.Labeled, it.Label.Name
		case it.Type == "assignees" && it.Assignee != nil && !it.RemovedAssignee:
			a.Kind, a.What = forge.Assigned, it.Assignee.UserName
		}
		acts = append(acts, a)
	}
	slices.SortStableFunc(acts, func(a, b forge.Act) int { return a.At.Compare(b.At) })
	return acts, nil
}

// get reads what the client library has no call for.
func (f *Forge) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.web+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "token "+f.cfg.Token)
	req.Header.Set("Accept", "application/json")
	res, err := f.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(into)
}

// Comments implements [forge.Host].
func (f *Forge) Comments(ctx context.Context, address string, at forge.Ref) ([]forge.Comment, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	all, _, err := r.ListIssueComments(r.owner, r.name, int64(at.Number), sdk.ListIssueCommentOptions{}) // the server does not page these
	if err != nil {
		return nil, err
	}
	out := make([]forge.Comment, 0, len(all))
	for _, c := range all[:min(len(all), forge.MaxItems)] {
		out = append(out, comment(c))
	}
	slices.SortStableFunc(out, func(a, b forge.Comment) int { return a.Created.Compare(b.Created) })
	return out, nil
}

func comment(c *sdk.Comment) forge.Comment {
	out := forge.Comment{ID: strconv.FormatInt(c.ID, 10), Author: user(c.Poster), Body: c.Body, URL: c.HTMLURL, Created: c.Created.UTC(), Updated: c.Updated.UTC()}
	if c.OriginalAuthor != "" {
		out.Author = forge.User{}
	}
	return out
}

// ReviewComments implements [forge.Host].
func (f *Forge) ReviewComments(ctx context.Context, address string, number int) ([]forge.Comment, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	reviews, err := wire.Pages(200, func(page int) ([]*sdk.PullReview, int, error) {
		rs, res, err := r.ListPullReviews(r.owner, r.name, int64(number), sdk.ListPullReviewsOptions{ListOptions: sdk.ListOptions{Page: page, PageSize: pageSize}})
		return rs, nextPage(res), err
	})
	if err != nil {
		return nil, err
	}
	var out []forge.Comment
	for _, rv := range reviews {
		if rv.State == sdk.ReviewStatePending || rv.CodeCommentsCount == 0 {
			continue
		}
		cs, _, err := r.ListPullReviewComments(r.owner, r.name, int64(number), rv.ID)
		if err != nil {
			return nil, err
		}
		for _, c := range cs {
			out = append(out, forge.Comment{
				ID: strconv.FormatInt(c.ID, 10), Author: user(c.Reviewer), Body: c.Body, URL: c.HTMLURL, Created: c.Created.UTC(), Updated: c.Updated.UTC(),
				Path: c.Path, Line: int(c.LineNum), Original: int(cmp.Or(c.LineNum, c.OldLineNum)), Commit: cmp.Or(c.OrigCommitID, c.CommitID), Hunk: c.DiffHunk,
				Review: strconv.FormatInt(rv.ID, 10),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b forge.Comment) int { return a.Created.Compare(b.Created) })
	return out, nil
}

// Permission implements [forge.Host]. The server tells a user's permission to administrators
// of the repository only. Others may read who can be assigned: in a repository of a user that
// is who may write, in one of an organisation it is not, so there Daybreak's user must be an
// administrator.
func (f *Forge) Permission(ctx context.Context, address, name string) (forge.Permission, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return forge.None, err
	}
	if name == "" {
		return forge.None, nil
	}
	p, _, err := r.CollaboratorPermission(r.owner, r.name, name)
	switch task.ClassOf(err) {
	case "":
		return map[sdk.AccessMode]forge.Permission{sdk.AccessModeRead: forge.Read, sdk.AccessModeWrite: forge.Write, sdk.AccessModeAdmin: forge.Admin, sdk.AccessModeOwner: forge.Admin}[p.Permission], nil
	case task.NotFound:
		return forge.None, nil
	case task.Auth:
	default:
		return forge.None, err
	}
	if _, _, oerr := r.GetOrg(r.owner); oerr == nil {
		return forge.None, &task.Error{
			Class: task.Auth, Msg: fmt.Sprintf("%s does not tell Daybreak's user who may write to %s", f.cfg.Name, r.Path),
			Fix: "make Daybreak's user an administrator of that repository: in an organisation nobody else may ask",
		}
	} else if task.ClassOf(oerr) != task.NotFound {
		return forge.None, oerr
	}
	us, _, err := r.GetAssignees(r.owner, r.name)
	if err != nil {
		return forge.None, err
	}
	if strings.EqualFold(name, r.owner) {
		return forge.Admin, nil
	}
	if slices.ContainsFunc(us, func(u *sdk.User) bool { return strings.EqualFold(u.UserName, name) }) {
		return forge.Write, nil
	}
	return forge.Read, nil
}

// Comment implements [forge.Host].
func (f *Forge) Comment(ctx context.Context, address string, at forge.Ref, body string) (string, error) {
	r, err := f.at(ctx, address)
	if err != nil {
		return "", err
	}
	c, _, err := r.CreateIssueComment(r.owner, r.name, int64(at.Number), sdk.CreateIssueCommentOption{Body: body})
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(c.ID, 10), nil
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
	_, _, err = r.EditIssueComment(r.owner, r.name, n, sdk.EditIssueCommentOption{Body: body})
	return err
}

// Reply implements [forge.Host]: the server has no replies to a thread yet, so the answer goes
// below, with the line it is about.
func (f *Forge) Reply(ctx context.Context, address string, pull int, to forge.Comment, body string) (string, error) {
	line := to.Line
	if line == 0 {
		line = to.Original
	}
	return f.Comment(ctx, address, forge.Ref{Number: pull, Pull: true}, fmt.Sprintf("`%s` line %d: %s", strings.ReplaceAll(to.Path, "`", "'"), line, body))
}

// Acknowledge implements [forge.Host].
func (f *Forge) Acknowledge(ctx context.Context, address string, at forge.Ref, id string) error {
	r, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	if id == "" {
		_, _, err = r.PostIssueReaction(r.owner, r.name, int64(at.Number), "eyes")
		return err
	}
	c, err := wire.CommentNumber(id)
	if err != nil {
		return err
	}
	_, _, err = r.PostIssueCommentReaction(r.owner, r.name, c, "eyes")
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
	c, err := f.api(ctx)
	if err != nil {
		return s, err
	}
	me, _, err := c.GetMyUserInfo()
	if err != nil {
		return s, err
	}
	s.Repository, s.Bot = f.repository(full), user(me)
	owner, name, _ := strings.Cut(full.FullName, "/")
	if p := full.Permissions; p != nil {
		switch {
		case p.Admin:
			s.May = forge.Admin
			s.TooMuch = append(s.TooMuch, "it may administer the repository: change protections, secrets and members")
		case p.Push:
			s.May = forge.Write
		case p.Pull:
			s.May = forge.Read
		}
	}
	if me.IsAdmin {
		s.TooMuch = append(s.TooMuch, "it is an administrator of the whole server")
	}
	if s.May < forge.Write {
		s.Missing = append(s.Missing, wire.WriteAccess(f.forks != nil))
	}
	s.Unknown = append(s.Unknown, "the scopes of the token, which the server tells nobody (write:repository, write:issue and read:user are enough)")
	b, _, err := c.GetRepoBranch(owner, name, full.DefaultBranch)
	if err != nil {
		return s, err
	}
	s.Protection = forge.Protection{On: b.Protected, Approvals: int(b.RequiredApprovals), BotPushes: b.UserCanPush, BotMerges: b.UserCanMerge}
	if ps, _, err := c.ListBranchProtections(owner, name, sdk.ListBranchProtectionsOptions{}); err == nil {
		for _, p := range ps {
			if p.RuleName == b.EffectiveBranchProtectionName {
				s.Protection.Stale = p.DismissStaleApprovals
			}
		}
	} else {
		s.Unknown = append(s.Unknown, "whether new commits dismiss approvals")
	}
	if secrets, _, err := c.ListRepoActionSecret(owner, name, sdk.ListRepoActionSecretOption{}); err == nil {
		for _, x := range secrets {
			s.Secrets = append(s.Secrets, x.Name)
		}
	} else {
		s.Unknown = append(s.Unknown, "which secrets the repository's workflows have")
	}
	us, _, err := c.GetAssignees(owner, name)
	if err != nil {
		return s, err
	}
	for _, u := range us {
		if u.UserName != me.UserName {
			s.Steer = append(s.Steer, u.UserName)
		}
	}
	return s, nil
}
