package gitlab

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "gitlab.com/gitlab-org/api/client-go"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const pageSize = 100

func page(n int) sdk.ListOptions { return sdk.ListOptions{Page: int64(n), PerPage: pageSize} }

func next(r *sdk.Response) int {
	if r == nil {
		return 0
	}
	return int(r.NextPage)
}

// Issue implements [forge.Host].
func (f *Forge) Issue(ctx context.Context, address string, number int) (forge.Issue, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return forge.Issue{}, err
	}
	i, _, err := f.api.Issues.GetIssue(id, int64(number), with(ctx))
	if err != nil {
		return forge.Issue{}, err
	}
	return issue(i), nil
}

func issue(i *sdk.Issue) forge.Issue {
	out := forge.Issue{
		Number: int(i.IID), Title: i.Title, Body: i.Description, URL: i.WebURL, Open: i.State == "opened", Created: wire.Time(i.CreatedAt), Updated: wire.Time(i.UpdatedAt), Labels: i.Labels,
	}
	if i.Author != nil && i.Author.Username != "ghost" {
		out.Author = forge.User{ID: strconv.FormatInt(i.Author.ID, 10), Name: i.Author.Username}
	}
	for _, a := range i.Assignees {
		out.Assignees = append(out.Assignees, a.Username)
	}
	return out
}

// Changed implements [forge.Host].
func (f *Forge) Changed(ctx context.Context, address, label string, since time.Time) ([]forge.Issue, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	opt := &sdk.ListProjectIssuesOptions{State: sdk.Ptr("opened"), OrderBy: sdk.Ptr("updated_at"), Sort: sdk.Ptr("asc")}
	if label != "" {
		opt.Labels = &sdk.LabelOptions{label}
	}
	if !since.IsZero() {
		opt.UpdatedAfter = &since
	}
	return wire.List(forge.MaxItems, issue, func(n int) ([]*sdk.Issue, int, error) {
		opt.ListOptions = page(n)
		is, res, err := f.api.Issues.ListProjectIssues(id, opt, with(ctx))
		return is, next(res), err
	})
}

// Acts implements [forge.Host]: labels only; who assigned whom is text for people on GitLab.
func (f *Forge) Acts(ctx context.Context, address string, number int) ([]forge.Act, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	all, err := wire.Pages(forge.MaxItems, func(n int) ([]*sdk.LabelEvent, int, error) {
		es, res, err := f.api.ResourceLabelEvents.ListIssueLabelEvents(id, int64(number), &sdk.ListLabelEventsOptions{ListOptions: page(n)}, with(ctx))
		return es, next(res), err
	})
	if err != nil {
		return nil, err
	}
	out := make([]forge.Act, len(all))
	for i, e := range all {
		out[i] = forge.Act{Who: user(&e.User), At: wire.Time(e.CreatedAt)}
		if e.Action == "add" {
			out[i].Kind, out[i].What = forge.Labeled, e.Label.Name
		}
	}
	return out, nil
}

// Comments implements [forge.Host]. Notes of the system are nobody's words.
func (f *Forge) Comments(ctx context.Context, address string, at forge.Ref) ([]forge.Comment, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	all, err := wire.Pages(forge.MaxItems, func(n int) ([]*sdk.Note, int, error) {
		if at.Pull {
			ns, res, err := f.api.Notes.ListMergeRequestNotes(id, int64(at.Number), &sdk.ListMergeRequestNotesOptions{ListOptions: page(n), OrderBy: sdk.Ptr("created_at"), Sort: sdk.Ptr("asc")}, with(ctx))
			return ns, next(res), err
		}
		ns, res, err := f.api.Notes.ListIssueNotes(id, int64(at.Number), &sdk.ListIssueNotesOptions{ListOptions: page(n), OrderBy: sdk.Ptr("created_at"), Sort: sdk.Ptr("asc")}, with(ctx))
		return ns, next(res), err
	})
	if err != nil {
		return nil, err
	}
	var out []forge.Comment
	for _, n := range all {
		if !n.System && n.Position == nil {
			out = append(out, note(n))
		}
	}
	return out, nil
}

func note(n *sdk.Note) forge.Comment {
	c := forge.Comment{ID: strconv.FormatInt(n.ID, 10), Body: n.Body, Created: wire.Time(n.CreatedAt), Updated: wire.Time(n.UpdatedAt), Internal: n.Internal}
	if n.Author.Username != "ghost" {
		c.Author = forge.User{ID: strconv.FormatInt(n.Author.ID, 10), Name: n.Author.Username}
	}
	return c
}

// ReviewComments implements [forge.Host].
func (f *Forge) ReviewComments(ctx context.Context, address string, number int) ([]forge.Comment, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return nil, err
	}
	all, err := wire.Pages(forge.MaxItems, func(n int) ([]*sdk.Discussion, int, error) {
		ds, res, err := f.api.Discussions.ListMergeRequestDiscussions(id, int64(number), &sdk.ListMergeRequestDiscussionsOptions{ListOptions: page(n)}, with(ctx))
		return ds, next(res), err
	})
	if err != nil {
		return nil, err
	}
	var out []forge.Comment
	for _, d := range all {
		for _, n := range d.Notes {
			if n.System || n.Position == nil {
				continue
			}
			c := note(n)
			c.Path, c.Line, c.Original = cmp.Or(n.Position.NewPath, n.Position.OldPath), int(n.Position.NewLine), int(cmp.Or(n.Position.NewLine, n.Position.OldLine))
			c.Commit, c.Thread = n.Position.HeadSHA, d.ID
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b forge.Comment) int { return a.Created.Compare(b.Created) })
	return out, nil
}

// Permission implements [forge.Host]: Developer and above may push.
func (f *Forge) Permission(ctx context.Context, address, name string) (forge.Permission, error) {
	id, _, err := f.at(ctx, address)
	if err != nil || name == "" {
		return forge.None, err
	}
	us, _, err := f.api.Users.ListUsers(&sdk.ListUsersOptions{Username: &name}, with(ctx))
	if err != nil {
		return forge.None, err
	}
	i := slices.IndexFunc(us, func(u *sdk.User) bool { return strings.EqualFold(u.Username, name) })
	if i < 0 || us[i].State != "active" || us[i].Bot {
		return forge.None, nil
	}
	m, _, err := f.api.ProjectMembers.GetInheritedProjectMember(id, us[i].ID, with(ctx))
	switch task.ClassOf(err) {
	case "":
	case task.NotFound:
		return forge.None, nil
	default:
		return forge.None, err
	}
	return level(m), nil
}

func level(m *sdk.ProjectMember) forge.Permission {
	switch l := m.AccessLevel; {
	case m.State != "" && m.State != "active":
		return forge.None
	case l >= sdk.MaintainerPermissions:
		return forge.Admin
	case l >= sdk.DeveloperPermissions:
		return forge.Write
	case l >= sdk.GuestPermissions:
		return forge.Read
	}
	return forge.None
}

// Comment implements [forge.Host].
func (f *Forge) Comment(ctx context.Context, address string, at forge.Ref, body string) (string, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return "", err
	}
	var n *sdk.Note
	if at.Pull {
		n, _, err = f.api.Notes.CreateMergeRequestNote(id, int64(at.Number), &sdk.CreateMergeRequestNoteOptions{Body: &body}, with(ctx))
	} else {
		n, _, err = f.api.Notes.CreateIssueNote(id, int64(at.Number), &sdk.CreateIssueNoteOptions{Body: &body}, with(ctx))
	}
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(n.ID, 10), nil
}

// EditComment implements [forge.Host].
func (f *Forge) EditComment(ctx context.Context, address string, at forge.Ref, comment, body string) error {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	n, err := wire.CommentNumber(comment)
	if err != nil {
		return err
	}
	if at.Pull {
		_, _, err = f.api.Notes.UpdateMergeRequestNote(id, int64(at.Number), n, &sdk.UpdateMergeRequestNoteOptions{Body: &body}, with(ctx))
	} else {
		_, _, err = f.api.Notes.UpdateIssueNote(id, int64(at.Number), n, &sdk.UpdateIssueNoteOptions{Body: &body}, with(ctx))
	}
	return err
}

// Reply implements [forge.Host].
func (f *Forge) Reply(ctx context.Context, address string, pull int, to forge.Comment, body string) (string, error) {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return "", err
	}
	n, _, err := f.api.Discussions.AddMergeRequestDiscussionNote(id, int64(pull), to.Thread, &sdk.AddMergeRequestDiscussionNoteOptions{Body: &body}, with(ctx))
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(n.ID, 10), nil
}

// Acknowledge implements [forge.Host]. Awarding the same twice is refused by the server, which
// is what once means.
func (f *Forge) Acknowledge(ctx context.Context, address string, at forge.Ref, comment string) error {
	id, _, err := f.at(ctx, address)
	if err != nil {
		return err
	}
	eyes := &sdk.CreateAwardEmojiOptions{Name: "eyes"}
	switch {
	case comment == "" && !at.Pull:
		_, _, err = f.api.AwardEmoji.CreateIssueAwardEmoji(id, int64(at.Number), eyes, with(ctx))
	case comment == "":
		_, _, err = f.api.AwardEmoji.CreateMergeRequestAwardEmoji(id, int64(at.Number), eyes, with(ctx))
	default:
		n, nerr := wire.CommentNumber(comment)
		if nerr != nil {
			return nerr
		}
		if at.Pull {
			_, _, err = f.api.AwardEmoji.CreateMergeRequestAwardEmojiOnNote(id, int64(at.Number), n, eyes, with(ctx))
		} else {
			_, _, err = f.api.AwardEmoji.CreateIssuesAwardEmojiOnNote(id, int64(at.Number), n, eyes, with(ctx))
		}
	}
	if c := task.ClassOf(err); c == task.NotFound || c == task.Invalid || c == task.Conflict {
		return nil // "Name has already been taken", with 404 on some versions
	}
	return err
}

// gitScope is what the token needs for git: where branches go to a fork, it pushes nothing.
func (f *Forge) gitScope() string {
	if f.forks != nil {
		return "read_repository"
	}
	return "write_repository"
}

// Standing implements [forge.Host].
func (f *Forge) Standing(ctx context.Context, address string) (forge.Standing, error) {
	var s forge.Standing
	path, err := wire.Path(f.web, address, depth)
	if err != nil {
		return s, err
	}
	p, _, err := f.api.Projects.GetProject(path, nil, with(ctx))
	if err != nil {
		return s, err
	}
	me, _, err := f.api.Users.CurrentUser(with(ctx))
	if err != nil {
		return s, err
	}
	s.Repository, s.Bot = f.repository(p), forge.User{ID: strconv.FormatInt(me.ID, 10), Name: me.Username, Bot: me.Bot}
	if m, _, err := f.api.ProjectMembers.GetInheritedProjectMember(p.ID, me.ID, with(ctx)); err == nil {
		s.May = level(m)
	} else if task.ClassOf(err) != task.NotFound {
		return s, err
	}
	if s.May < forge.Write {
		s.Missing = append(s.Missing, "the role Developer")
	}
	if s.May > forge.Write {
		s.TooMuch = append(s.TooMuch, "its role is above Developer: it may change protections, members and variables")
	}
	if t, _, err := f.api.PersonalAccessTokens.GetSinglePersonalAccessToken(with(ctx)); err == nil {
		if !slices.Contains(t.Scopes, "api") {
			s.Missing = append(s.Missing, "the scope api")
		}
		if git := f.gitScope(); !slices.Contains(t.Scopes, git) && !slices.Contains(t.Scopes, "write_repository") {
			s.Missing = append(s.Missing, "the scope "+git)
		}
		for _, bad := range []string{"sudo", "admin_mode", "create_runner", "manage_runner"} {
			if slices.Contains(t.Scopes, bad) {
				s.TooMuch = append(s.TooMuch, "its token has the scope "+bad)
			}
		}
	} else {
		s.Unknown = append(s.Unknown, "the scopes of the token (api and "+f.gitScope()+" are enough)")
	}
	b, _, err := f.api.ProtectedBranches.GetProtectedBranch(p.ID, p.DefaultBranch, with(ctx))
	switch task.ClassOf(err) {
	case "":
		s.Protection.On = true
		// A rule for one user names a level as well, which says nothing; whom one for a group means is not told.
		open := func(what string, all []*sdk.BranchAccessDescription) (may bool) {
			for _, l := range all {
				switch {
				case l.UserID != 0:
					may = may || l.UserID == me.ID
				case l.GroupID != 0:
					s.Unknown = append(s.Unknown, "whether Daybreak's user is in a group that may "+what+" the default branch")
				case l.DeployKeyID == 0:
					may = may || l.AccessLevel > sdk.NoPermissions && l.AccessLevel <= sdk.DeveloperPermissions
				}
			}
			return may
		}
		s.Protection.BotPushes = open("push to", b.PushAccessLevels)
		s.Protection.BotMerges = open("merge into", b.MergeAccessLevels)
		s.Protection.Stale, s.Protection.Approvals = true, 1 // not known; the note says so
		s.Unknown = append(s.Unknown, "how many approvals a merge needs on this edition, and whether new commits dismiss them")
	case task.NotFound:
	case task.Auth:
		s.Unknown = append(s.Unknown, "how the default branch is protected")
	default:
		return s, err
	}
	s.Unknown = append(s.Unknown, "which variables pipelines have: those that are not protected are in the hands of every branch")
	ms, err := wire.Pages(forge.MaxItems, func(n int) ([]*sdk.ProjectMember, int, error) {
		ms, res, err := f.api.ProjectMembers.ListAllProjectMembers(p.ID, &sdk.ListProjectMembersOptions{ListOptions: page(n)}, with(ctx))
		return ms, next(res), err
	})
	if err != nil {
		return s, err
	}
	for _, m := range ms {
		if level(m) >= forge.Write && m.Username != me.Username {
			s.Steer = append(s.Steer, m.Username)
		}
	}
	return s, nil
}
