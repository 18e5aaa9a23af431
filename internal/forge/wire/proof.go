package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

func notProven() error {
	return &task.Error{Class: task.Auth, Msg: "the delivery is not signed with the secret of this forge"}
}

// one returns the only value of a header; two of them prove nothing.
func one(h http.Header, name string) (string, bool) {
	v := h.Values(name)
	if len(v) != 1 {
		return "", false
	}
	return v[0], true
}

// VerifyHex checks a header that holds prefix and the hex HMAC-SHA256 of the raw body, as
// GitHub's X-Hub-Signature-256 ("sha256=") and Gitea's X-Gitea-Signature (""). The comparison
// takes the same time wherever the difference is. An empty secret proves nothing.
func VerifyHex(h http.Header, name, prefix string, body, secret []byte) error {
	v, ok := one(h, name)
	hexSum, has := strings.CutPrefix(v, prefix)
	got, err := hex.DecodeString(hexSum)
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	if !ok || !has || err != nil || len(secret) == 0 || !hmac.Equal(got, mac.Sum(nil)) {
		return notProven()
	}
	return nil
}

// VerifyToken checks a header that holds the secret itself, as GitLab's X-Gitlab-Token.
func VerifyToken(h http.Header, name string, secret []byte) error {
	v, ok := one(h, name)
	// Sums have one length, so that not even the length of the secret can be measured.
	a, b := sha256.Sum256([]byte(v)), sha256.Sum256(secret)
	if !hmac.Equal(a[:], b[:]) || !ok || len(secret) == 0 {
		return notProven()
	}
	return nil
}

// clockSlack is how far a signed time may be from ours.
const clockSlack = 5 * time.Minute

// VerifyStandard checks a delivery signed as https://www.standardwebhooks.com says: the
// signature is over the id, the time and the body, and the time is near now.
func VerifyStandard(h http.Header, body, secret []byte, now time.Time) error {
	id, ok1 := one(h, "Webhook-Id")
	at, ok2 := one(h, "Webhook-Timestamp")
	sigs, ok3 := one(h, "Webhook-Signature")
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(secret), "whsec_"))
	sec, terr := strconv.ParseInt(at, 10, 64)
	if !ok1 || !ok2 || !ok3 || err != nil || terr != nil || len(key) == 0 || now.Sub(time.Unix(sec, 0)).Abs() > clockSlack {
		return notProven()
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	found := false
	for s := range strings.FieldsSeq(sigs) {
		got, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1,"))
		found = found || err == nil && strings.HasPrefix(s, "v1,") && hmac.Equal(got, want)
	}
	if !found {
		return notProven()
	}
	return nil
}
