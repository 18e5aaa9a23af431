package warm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// poolable reports whether a sandbox of the spec can be started before anybody asks: it keeps
// nothing that it writes, its life has no limit that would begin too early, and others like it
// will be asked for.
func poolable(s sandbox.Spec) bool {
	return s.Work.Keep == "" && s.Home.Keep == "" && s.System.Keep == "" && s.Limits.Wall == 0 && !s.Once && s.Tree != ""
}

// plain is the spec without what belongs to a task: who asks, what for, where its forwards lead,
// and what its own files say.
func plain(s sandbox.Spec) sandbox.Spec {
	s.Task, s.Purpose = "", Purpose
	s.Forwards, s.Files = slices.Clone(s.Forwards), slices.Clone(s.Files)
	for i := range s.Forwards {
		s.Forwards[i].Socket = ""
	}
	for i := range s.Files {
		if s.Files[i].Own {
			s.Files[i].Text = nil
		}
	}
	return s
}

// ownFiles are the files of the spec that only one sandbox has.
func ownFiles(s sandbox.Spec) []sandbox.File {
	return slices.DeleteFunc(slices.Clone(s.Files), func(f sandbox.File) bool { return !f.Own })
}

// stands are the host directories that a sandbox is made of, beside the operator's.
func stands(s sandbox.Spec) []string {
	out := slices.Concat([]string{s.Tree}, s.Work.Lower, s.Home.Lower, s.System.Lower)
	if s.Index != "" {
		out = append(out, s.Index)
	}
	return out
}

// keys name everything that a sandbox is made of but its task. Host directories count by what
// they are, not by their names alone: one that was made anew is another. The family is the same
// for what stands on other commits of the group; without a group it is one of its own.
func keys(s sandbox.Spec) (key, family string, err error) {
	p := plain(s)
	var places []string
	dirs := stands(p)
	for _, m := range p.Mounts {
		dirs = append(dirs, m.Source)
	}
	for _, d := range dirs {
		fi, err := os.Stat(d)
		if err != nil {
			return "", "", err
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return "", "", fmt.Errorf("%s cannot be told from others", d)
		}
		places = append(places, fmt.Sprintf("%s %d %d", d, st.Dev, st.Ino))
	}
	if key, err = digest(p, places); err != nil || p.Group == "" {
		return key, key, err
	}
	p.Tree, p.Work.Lower, p.Home.Lower, p.System.Lower = "", nil, nil, nil
	if p.Index != "" {
		p.Index = sandbox.IndexDir
	}
	family, err = digest(p, nil)
	return key, family, err
}

func digest(s sandbox.Spec, places []string) (string, error) {
	b, err := json.Marshal(struct {
		Spec   sandbox.Spec
		Places []string
	}{s, places})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}
