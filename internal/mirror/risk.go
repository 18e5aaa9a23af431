package mirror

import (
	"net/http"
	"strings"
	"time"
)

// risk is what a registry says about one version that a person would want to know before it
// is used.
type risk struct {
	published     time.Time // zero when the registry does not say
	yanked        bool
	deprecated    string
	installScript bool
}

// release looks at a version nobody vouched for, before its file is handed out: too young is
// refused; what else is remarkable goes on the ledger once.
func (s *Session) release(r route, k risk) error {
	key := string(r.eco) + ":" + r.name + "@" + r.version
	if r.version == "" {
		key += r.file
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[key] || s.seen["release "+key] {
		return nil
	}
	age := s.cfg.Now().Sub(k.published)
	if s.cfg.MinAge > 0 && !k.published.IsZero() && age < s.cfg.MinAge {
		return deny(http.StatusForbidden, ReasonYoung, "%s was published %s ago, %s is the least", clip(r.name+" "+r.version+r.file), age.Round(time.Minute), s.cfg.MinAge)
	}
	var notes []string
	if k.yanked {
		notes = append(notes, "yanked")
	}
	if k.deprecated != "" {
		notes = append(notes, "deprecated: "+clip(k.deprecated))
	}
	if k.installScript {
		notes = append(notes, "runs a script when it is installed")
	}
	if s.cfg.MinAge > 0 && k.published.IsZero() {
		notes = append(notes, "the registry does not say when it was published")
	}
	if len(notes) > 0 {
		e := Entry{Ecosystem: r.eco, Name: r.name, Version: r.version, Status: http.StatusOK, Notes: notes}
		if r.version == "" {
			e.Detail = clip(r.file)
		}
		if err := s.report(e); err != nil {
			return unrecorded(err)
		}
	}
	s.seen["release "+key] = true
	return nil
}

// similar returns the known name that a new one could be mistaken for: one letter added, left
// out, changed, or two swapped.
func (s *Session) similar(eco Ecosystem, name string) string {
	for _, known := range s.cfg.Known[eco] {
		if oneEdit(name, known) {
			return known
		}
	}
	return ""
}

func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || a == b {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	if a[i+1:] == b[i+1:] {
		return true
	}
	return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

// when reads a time as registries write it; what cannot be read is unknown.
func when(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(s))
	if err != nil {
		return time.Time{}
	}
	return t
}
