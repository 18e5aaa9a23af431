package taskview

import (
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/story"
)

// Package names a package for a person: "npm left-pad 1.3.0".
func Package(ecosystem, name, version string) string {
	return Escape(story.Package(ecosystem, name, version))
}

// network shows what sandboxes asked the registries. What the base's lockfiles name is there in
// full only: a project that fetches its own dependencies is no news.
func (p *printer) network(e event.Event, payload event.Payload) {
	switch v := payload.(type) {
	case *event.NetworkOpened:
		if p.opts.Full {
			p.item(e.Time, "%s", p.dim("the sandbox for %s may reach: %s (%s), %s known", Escape(v.Purpose), Escape(v.Mode), Escape(strings.Join(v.Upstreams, ", ")), story.Plural(v.Known, "name")))
		}
	case *event.NetworkAsked:
		for _, n := range v.Names {
			notes := ""
			if len(n.Notes) > 0 {
				notes = ": " + Escape(strings.Join(n.Notes, "; "))
			}
			switch name := Package(n.Ecosystem, n.Name, n.Version); {
			case v.New:
				p.item(e.Time, "registry: %s, which no lockfile of the base has%s", name, notes)
			case p.opts.Full || notes != "":
				p.item(e.Time, "registry: %s%s", name, notes)
			}
		}
	case *event.NetworkRefused:
		p.item(e.Time, "%s", p.red("registry: %s refused (%s) %s", Package(v.Ecosystem, v.Name, v.Version), Escape(v.Reason), Escape(v.Detail)))
	}
}
