package storybook

import (
	"fmt"
	"time"

	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// bidi and tag are a name that tries to read and to act as another one.
const hostileRepo = "https://git.example.com/evil/\u202etxt.exe\"><script>alert(1)</script>"

// Fleet is a busy one: every stage, caps that are reached, a limit that is used up, names that act.
func Fleet(at time.Time) overview.Fleet {
	ago := func(m int) time.Time { return at.Add(-time.Duration(m) * time.Minute) }
	repos := []string{"https://git.example.com/shop/checkout", "https://git.example.com/shop/storefront.git", "/srv/git/billing-and-a-name-that-is-rather-long-for-a-phone", hostileRepo}
	owners := []string{"build-1:2211:81723@c0ffee", "build-2:904:17@decade"}
	f := overview.Fleet{Caps: overview.Caps{Total: 12, Repo: 3, Author: 4}, Streams: 5}
	states := []task.State{task.Preparing, task.Working, task.Working, task.Verifying, task.Working, task.Verifying, task.Publishing}
	titles := []string{
		"Cart total is wrong when a voucher and a gift card are used together", "Dates before 1970 are shown a day early", "The search page forgets its filter after going back",
		"An order of 0 items can be placed", "Retry the payment provider on 503", "Sort by price ignores the currency", "<img src=x onerror=alert(1)> in the footer\u200b",
	}
	for i, s := range states {
		repo := repos[i%len(repos)]
		t := overview.Running{
			Task: ID(i + 1), Repo: repo, Title: titles[i], State: s, Since: ago(3 * (i + 1)), Author: []string{"olga", "ben", "mira"}[i%3], Owner: owners[i%2], Epoch: int64(1 + i%3),
			Until: at.Add(time.Duration(25+3*i) * time.Second),
		}
		f.Running = append(f.Running, t)
		box := func(purpose, runtime string, m int) {
			f.Sandboxes = append(f.Sandboxes, overview.Sandbox{
				Task: t.Task, Repo: repo, ID: fmt.Sprintf("box-%d-%s", i, purpose), Purpose: purpose, Runtime: runtime, Isolation: "user namespace, seccomp, Landlock", Since: ago(m),
			})
		}
		switch s {
		case task.Preparing:
			box("prepare", "runc", 1)
		case task.Working:
			box("agent", []string{"runc", "runsc"}[i%2], 4+9*i)
		case task.Verifying:
			box("agent", "runc", 41)
			box("red", "runc", 0)
			box("green", "runc", 2)
		}
	}
	for i := range 9 {
		q := overview.Queued{
			Task: ID(20 + i), Repo: repos[i%3], Title: titles[(i+2)%len(titles)], State: task.Queued, Author: []string{"olga", "olga", "ben"}[i%3], Priority: 1 + i%4, Since: ago(4 + 7*i), Due: ago(4 + 7*i),
		}
		switch i {
		case 3:
			q.State = task.Working
		case 7:
			q.State, q.Due = task.Publishing, at.Add(7*time.Hour)
		}
		f.Queue = append(f.Queue, q)
	}
	f.Workers = []overview.Worker{{Owner: owners[0], Tasks: 4, Slots: 4, Here: true}, {Owner: owners[1], Tasks: 3}}
	f.Ready = overview.Ready{
		Repos: []overview.ReadyRepo{
			{Repo: repos[0], Waiting: 2, Claimed: 311, Missed: 24, Refill: 412, Asked: ago(0)},
			{Repo: repos[1], Waiting: 1, Claimed: 120, Missed: 19, Refill: 388, Asked: ago(2)},
			{Repo: repos[3], Claimed: 2, Missed: 3, Refill: 1460, Asked: ago(8)},
		},
		Sums: &overview.ReadySums{Waiting: 3, Most: 4, Memory: 96 << 20, Claimed: 433, Missed: 46, Discarded: 12, Refill: 431},
	}
	f.Limits = []overview.Limit{
		{Model: "anthropic/claude-sonnet-4-5", Meters: []overview.Meter{{Name: "requests", Most: 4000, Left: 3911, Gains: 4000}, {Name: "input", Most: 2_000_000, Left: 1_204_000, Gains: 2_000_000}, {Name: "output", Most: 400_000, Left: 21_000, Gains: 400_000}}},
		{Model: "openai/gpt-5-codex", Blocked: at.Add(40 * time.Second), Meters: []overview.Meter{{Name: "requests", Most: 500, Left: 0, Gains: 500}, {Name: "tokens", Most: 800_000, Left: 640_000, Gains: 800_000}}},
	}
	asked := func(i int, eco, name, version string, fresh bool, refused string) overview.Asked {
		return overview.Asked{At: at.Add(-time.Duration(i*13) * time.Second), Task: ID(1 + i%7), Repo: repos[i%4], Ecosystem: eco, Name: name, Version: version, New: fresh, Refused: refused}
	}
	f.Registries = overview.Registries{
		Recent: []overview.Asked{
			asked(0, "npm", "@shop/voucher", "", false, ""), asked(1, "go", "golang.org/x/exp", "v0.0.0-20260112", true, ""), asked(2, "pypi", "reqeusts", "", true, "name.similar"),
			asked(3, "npm", "left-pad-\u202eevil", "", true, "name.budget"), asked(4, "crates", "serde_json", "1.0.145", false, ""), asked(5, "debian", "libxml2-dev", "", false, ""),
		},
		Sums: &overview.RegistrySums{
			Upstreams: []string{"crates index.crates.io", "debian deb.debian.org", "go proxy.golang.org", "npm registry.npmjs.org", "pypi pypi.org"},
			Served:    18_204, Stored: 16_977, Refused: 31, Fetches: 1401, BytesOut: 5_412_000_000, BytesIn: 318_000_000,
		},
	}
	return f
}

// Outcomes are a year's: four repositories of different fortunes, weeks without any, and one that
// has just begun.
func Outcomes(at time.Time) (all []outcome.Outcome, repos []string) {
	repos = []string{"/srv/git/billing", hostileRepo, "https://git.example.com/shop/checkout", "https://git.example.com/shop/storefront.git"}
	n := uint32(20260302)
	next := func(below int) int { // the same ones every time
		n = n*1664525 + 1013904223
		return int(n>>16) % below
	}
	reasons := []string{"cannot_reproduce", "cannot_reproduce", "cannot_reproduce", "needs_information", "needs_information", "out_of_scope", "already_fixed"}
	for d := 0; d < 365; d++ {
		if d > 120 && d < 138 { // a holiday
			continue
		}
		for range next(4) {
			repo := repos[[]int{2, 2, 2, 3, 3, 0, 1}[next(7)]]
			if repo == repos[1] && d > 20 {
				repo = repos[3]
			}
			better := (365 - d) / 24 // it is learned what to ask for
			o := outcome.Outcome{
				Task: ID(len(all) + 1), Repo: repo, Created: at.Add(-time.Duration(d)*24*time.Hour - time.Duration(next(600))*time.Minute), Cost: task.MicroUSD(300_000 + next(2_400_000)), Steps: 10 + next(60),
				Tokens: task.Tokens{Input: int64(20_000 + next(60_000)), CacheRead: int64(200_000 + next(900_000)), CacheWrite: int64(30_000 + next(90_000)), Output: int64(4_000 + next(20_000))},
			}
			open := func() {
				o.PullRequest, o.ToPullRequest = "https://git.example.com/pulls", time.Duration(300+next(1500)+5*d+next(8)*next(500))*time.Second
			}
			switch luck := next(40) + better; {
			case luck < 6:
				o.State = []task.State{task.Failed, task.Exhausted, task.Stopped}[next(3)]
			case luck < 12:
				o.State, o.Declined = task.Declined, reasons[next(len(reasons))]
			case luck < 18:
				open()
				o.State, o.Closed = task.Closed, true
			case d < 9 && next(2) == 0:
				open()
				o.State = task.InReview
			case d == 0:
				o.State = task.Working
			default:
				open()
				o.State, o.Merged, o.ToMerge = task.Merged, true, o.ToPullRequest+time.Duration(1+next(60))*time.Hour
				o.Reverted, o.FollowUps = next(40) == 0, next(6)/5
			}
			all = append(all, o)
		}
	}
	return all, repos
}
