package mirror

import (
	"bytes"
	"crypto"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/ulikunitz/xz"
)

// TestDebianXZ: an archive whose package index is there as .xz alone is served, and bytes that
// are no such file are not.
func TestDebianXZ(t *testing.T) {
	for _, broken := range []bool{false, true} {
		r := newRig(t, nil)
		deb := r.up.files["/debian/"+debPath].body
		plain := fmt.Sprintf("Package: teamlib\nVersion: 1.0-1\nArchitecture: all\nFilename: %s\nSize: %d\nSHA256: %s\n\n", debPath, len(deb), sha(deb))
		var index bytes.Buffer
		if broken {
			index.WriteString(plain)
		} else {
			w, err := xz.NewWriter(&index)
			check(t, err)
			_, err = io.WriteString(w, plain)
			check(t, err)
			check(t, w.Close())
		}
		text := fmt.Sprintf("Origin: Test\nSuite: stable\nCodename: codename\nDate: %s\nArchitectures: amd64\nComponents: main\nSHA256:\n %s %d main/binary-amd64/Packages.xz\n",
			start.UTC().Format(time.RFC1123), sha(index.Bytes()), index.Len())
		var signed bytes.Buffer
		w, err := clearsign.Encode(&signed, r.m.archives["debian"].Keyring[0].PrivateKey, &packet.Config{Time: func() time.Time { return start }, DefaultHash: crypto.SHA512})
		check(t, err)
		_, err = io.WriteString(w, text)
		check(t, err)
		check(t, w.Close())
		r.up.put("/debian/dists/stable/InRelease", "text/plain", signed.Bytes())
		r.up.put("/debian/dists/stable/main/binary-amd64/Packages.xz", "application/x-xz", index.Bytes())
		s := r.session(nil)
		if broken {
			s.want("/debian/debian/"+debPath, 502, ReasonUpstream)
			continue
		}
		if got := s.want("/debian/debian/"+debPath, 200, ""); string(got) != string(deb) {
			t.Errorf("%q", got)
		}
	}
}
