package web

import (
	"bytes"
	"context"
	"hash/maphash"
	"io"
	"net/http"
	"strconv"

	"github.com/a-h/templ"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/store"
)

type ioWriter = io.Writer

// maxBurst is how many rows are sent at once; a page that missed more is told to load again.
const maxBurst = 2 * window

// taskLive sends what changed since a record: rows of the story and the pieces above them, whole,
// each under its element's id. The event's id is the newest record in it, so a browser that comes
// back misses nothing.
func (s *Site) taskLive(w http.ResponseWriter, r *http.Request) error {
	t, err := s.open(r, access.Read)
	if err != nil {
		return err
	}
	after, err := live.Position(r)
	if err != nil {
		return err
	}
	name, allowed := s.cfg.Gate.Watcher(viewer(r), t.Repo)
	stream, err := s.cfg.Hub.Subscribe(r.Context(), live.Watcher{Name: name, May: allowed}, t.ID, after)
	if err != nil {
		return err
	}
	defer stream.Close()
	out, err := live.NewSender(w)
	if err != nil {
		return nil
	}
	p := &patcher{site: s, r: r, task: t, pos: after, seed: maphash.MakeSeed(), sent: map[string]uint64{}}
	for {
		events, err := stream.Next(r.Context())
		if err != nil {
			return nil // the viewer left, or comes back and is told
		}
		if len(events) == 0 {
			out.Comment("still here")
		} else if last := events[len(events)-1].Seq; last > p.pos {
			if err := p.send(r.Context(), out, last); err != nil {
				s.cfg.Logger.ErrorContext(r.Context(), "live page failed", "task", t.ID, "error", err)
				return nil
			}
		}
		if out.Flush() != nil {
			return nil
		}
	}
}

// patcher is one viewer's way through the pieces of a page.
type patcher struct {
	site *Site
	r    *http.Request
	task store.Task
	pos  int64
	seed maphash.Seed
	sent map[string]uint64 // hash of each piece as it was sent last
}

func (p *patcher) send(ctx context.Context, out *live.Sender, upTo int64) error {
	var b bytes.Buffer
	again := false
	err := p.site.shelf.with(ctx, p.task.ID, upTo, func(k *book) error {
		v, err := p.site.view(p.r, p.task, k)
		if err != nil {
			return err
		}
		var changed []stepRow
		for _, row := range rows(v.Story.Items) {
			if row.Last > p.pos {
				changed = append(changed, row)
			}
		}
		if len(changed) > maxBurst {
			again = true
		}
		if !again {
			g := p.site.regions(v, k)
			for _, c := range []struct {
				id string
				c  templ.Component
			}{
				{"status", g.Status},
				{"verdict", g.Verdict},
				{"time", g.Time},
				{"evidence", g.Evidence},
				{"change", g.Change},
				{"findings", g.Findings},
				{"proposal", g.Proposal},
				{"budget", g.Budget},
				{"facts", g.Facts},
				{"actions", g.Actions},
			} {
				if err := p.piece(ctx, &b, c.id, c.c); err != nil {
					return err
				}
			}
			key := "rows after " + strconv.FormatInt(p.pos, 10)
			html, err := k.piece(key, func() (string, error) {
				var part bytes.Buffer
				err := p.site.rowsOf(v, changed, false).Render(ctx, &part)
				return part.String(), err
			})
			if err != nil {
				return err
			}
			b.WriteString(html)
		}
		p.pos = v.Sum().LastSeq
		return nil
	})
	if err != nil {
		return err
	}
	name := "patch"
	if again {
		name = "again"
	}
	out.Event(strconv.FormatInt(p.pos, 10), name, b.Bytes())
	return nil
}

// piece adds a piece unless it is as it was sent last.
func (p *patcher) piece(ctx context.Context, b *bytes.Buffer, id string, c templ.Component) error {
	var part bytes.Buffer
	if err := c.Render(ctx, &part); err != nil {
		return err
	}
	h := maphash.Bytes(p.seed, part.Bytes())
	if p.sent[id] == h {
		return nil
	}
	p.sent[id] = h
	b.Write(part.Bytes())
	return nil
}
